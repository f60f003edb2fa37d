"""What a page may say whose user may see only a part."""

from __future__ import annotations

import json
from typing import Any

import pytest

from det_jupyter.front.jupyter_server.relay import ReadGate
from det_jupyter.front.jupyter_server.routes import ACTIONS, RESOURCES


def gate(**fewer: list[str]) -> ReadGate:
    """Return the gate of a user who may do everything but for what is given."""
    return ReadGate({resource: list(ACTIONS) for resource in RESOURCES} | fewer)


@pytest.mark.parametrize(
    ("frame", "needs"),
    [
        ({"op": "follow", "id": 1, "document": "experiments"}, "experiments"),
        ({"op": "follow", "id": 1, "document": "experiment"}, "experiments"),
        ({"op": "follow", "id": 1, "document": "cluster"}, "cluster"),
        ({"op": "follow", "id": 1, "document": "usage"}, "cluster"),
        ({"op": "ask", "id": 1, "question": {"type": "logs"}}, "logs"),
        ({"op": "ask", "id": 1, "question": {"type": "stacks"}}, "kernels"),
        ({"op": "ask", "id": 1, "question": {"type": "config"}}, "experiments"),
        ({"op": "ask", "id": 1, "question": {"type": "series", "trial_id": 3}}, "experiments"),
        ({"op": "ask", "id": 1, "question": {"type": "series", "agent_id": "a"}}, "cluster"),
        ({"op": "leave", "id": 1}, "experiments"),
    ],
)
def test_what_a_frame_needs_is_asked_for(frame: dict[str, Any], needs: str) -> None:
    text = json.dumps(frame)
    assert gate().refusal(text) == ""
    others: dict[str, list[str]] = {each: [] for each in RESOURCES if each != needs}
    assert gate(**others).refusal(text) == ""
    refusal = json.loads(gate(**{needs: []}).refusal(text))
    assert refusal["id"] == 1
    assert refusal["op"] == ("answer" if frame["op"] == "ask" else "error")
    assert f"read det_jupyter:{needs}" in refusal["error"]


@pytest.mark.parametrize(
    "text",
    ["", "no JSON", "[]", "3", "{}", '{"op": []}', b"\xff\x00", "[" * 100_000],
    ids=lambda text: repr(text[:10]),
)
def test_what_is_no_frame_is_left_to_the_reader(text: str | bytes) -> None:
    assert gate(logs=[]).refusal(text) == ""


def test_only_who_may_write_may_write() -> None:
    assert gate().may_write
    assert not gate(experiments=["read"]).may_write
