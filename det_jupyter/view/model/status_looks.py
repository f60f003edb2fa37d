"""Marks and colours of states of experiments and trials."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict  # pydantic accepts no other before Python 3.12

from det_jupyter.contract.messages.status import ENDED, STATUS_WORDS, Status, Verb

Mark = Literal["promoted", "finished", "running", "resting", "stopped", "error", "canceled"]
Tone = Literal["brand", "good", "warn", "bad", "text"]


class MarkLook(TypedDict):
    """A mark's word, shape and tone; `path` is a centred, relative SVG path of 8 by 8."""

    word: str
    path: str
    is_filled: bool
    tone: Tone


def _look(word: str, tone: Tone, path: str, *, is_filled: bool = False) -> MarkLook:
    return MarkLook(word=word, path=path, is_filled=is_filled, tone=tone)


# In the order of legends. The shapes differ, so that marks are distinct without their colours.
MARKS: dict[Mark, MarkLook] = {
    "promoted": _look("promoted", "brand", "m0-4l4 7h-8z", is_filled=True),
    "finished": _look("trained to the end", "good", "m0-4l4 4l-4 4l-4-4z", is_filled=True),
    "running": _look("training to it", "brand", "m-3-4l7 4l-7 4z"),
    "resting": _look("waiting to be promoted", "warn", "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z"),
    "stopped": _look("stopped", "text", "m-2.5-2.5h5v5h-5z", is_filled=True),
    "error": _look("error", "bad", "m-3-3l6 6m0-6l-6 6"),
    "canceled": _look("canceled", "text", "m-4 0h8"),
}


__all__ = [
    "ENDED",
    "MARKS",
    "STATUS_WORDS",
    "Mark",
    "MarkLook",
    "Status",
    "Tone",
    "Verb",
]
