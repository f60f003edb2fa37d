"""What the kernel answers when the view asks for printed lines."""

from __future__ import annotations

import json
import queue
from collections.abc import Sequence
from typing import Any, cast

import pytest

from det_jupyter.client import Client
from det_jupyter.errors import NotFound
from det_jupyter.notebook.handles.log_answers import answer, answer_soon
from det_jupyter.wire import LogLine, LogPage, LogQuery

ASKED = {"type": "logs", "request": 4, "trial_id": 3, "rank": 1, "level": "error", "search": "",
         "after": 7, "tail": 1000}  # fmt: skip


class Master:
    """Answers with these lines, or raises."""

    def __init__(self, error: Exception | None = None, lines: Sequence[str] = ("ERROR",)) -> None:
        self.error, self.lines = error, lines

    def experiment_logs(self, experiment_id: int, query: LogQuery, *, trial_id: int) -> LogPage:
        if self.error is not None:
            raise self.error
        assert (experiment_id, trial_id) == (9, 3)
        assert query == LogQuery(after=7, tail=1000, rank=1, level="error")
        lines = [
            LogLine(id=8 + i, at=1.0, trial_id=3, run=1, rank=1, text=text)
            for i, text in enumerate(self.lines)
        ]
        return LogPage(lines=lines, total=len(lines), last_id=8, is_over=False)

    def as_client(self) -> Client:
        return cast("Client", self)


def test_the_answer_has_the_lines_and_comes_from_another_thread() -> None:
    sent: queue.Queue[dict[str, Any]] = queue.Queue()
    answer_soon(Master().as_client(), 9, ASKED, sent.put)
    said = sent.get(timeout=10)
    assert (said["type"], said["request"], said["error"]) == ("logs", 4, "")
    assert [line["text"] for line in said["lines"]] == ["ERROR"]
    assert (said["total"], said["last_id"], said["is_over"]) == (1, 8, False)


def test_an_answer_is_never_too_large_for_a_message() -> None:
    printed = ["old"] + ["x" * 9000] * 400 + ["new"]
    said = answer(Master(lines=printed).as_client(), 9, ASKED)
    assert len(json.dumps(said)) < 400_000
    assert said["total"] == 402
    assert said["lines"][-1]["text"] == "new"
    assert said["lines"][-2]["text"] == "x" * 1000 + "…"
    assert 290 < len(said["lines"]) <= 300


@pytest.mark.parametrize(
    ("error", "asked", "said"),
    [
        (NotFound("there is no trial 3"), ASKED, "there is no trial 3"),
        (OSError("broken"), ASKED, "OSError: broken"),
        (None, {**ASKED, "level": "loud"}, "level: got 'loud', expected one of debug, info"),
    ],
)
def test_an_error_is_said_in_the_panel(
    error: Exception | None, asked: dict[str, Any], said: str
) -> None:
    answered = answer(Master(error).as_client(), 9, asked)
    assert answered["request"] == 4
    assert answered["error"].startswith(said)
