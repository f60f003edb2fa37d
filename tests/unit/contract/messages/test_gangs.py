"""What the master reads of agents' messages, some of which are damaged."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from det_jupyter.contract.messages import (
    PROTOCOL,
    AgentReports,
    Chunk,
    RegisterAgent,
    SlotView,
    Unreadable,
)

CHUNK = {
    "kind": "chunk", "allocation_id": "1.1.1", "stream": "output-0", "offset": 0, "size_bytes": 2,
    "text": "a\n",
}  # fmt: skip


@pytest.mark.parametrize(
    ("damaged", "problem"),
    [
        (CHUNK | {"offset": -1}, "chunk.offset: Input should be greater than or equal to 0"),
        (CHUNK | {"other": 1}, "chunk.other: Extra inputs are not permitted"),
        ({"kind": "none"}, "kind: Input tag 'none' found using 'kind' does not match any of"),
        (7, "kind: Input should be a valid dictionary"),
    ],
)
def test_an_unreadable_report_does_not_hide_the_others(damaged: object, problem: str) -> None:
    batch = AgentReports.model_validate({"session": "s", "reports": [CHUNK, damaged, CHUNK]})
    first, unreadable, last = batch.reports
    assert first == last == Chunk.model_validate(CHUNK)
    assert isinstance(unreadable, Unreadable)
    assert unreadable.content == damaged
    assert unreadable.problem.startswith(problem)


@pytest.mark.parametrize(("ids", "is_right"), [([0, 1], True), ([0, 0], False), ([-1], False)])
def test_slots_are_registered_with_ids_of_their_own(ids: list[int], is_right: bool) -> None:
    def register() -> RegisterAgent:
        slots = [SlotView(id=number, kind="cpu", index=0, name="CPU") for number in ids]
        return RegisterAgent(
            protocol=PROTOCOL, version="0", session="s", hostname="h", pid=1, slots=slots, runs=[]
        )

    if is_right:
        assert [slot.id for slot in register().slots] == ids
    else:
        with pytest.raises(ValidationError, match="expected slots with numbers of their own"):
            register()
