"""What ranks printed: lines, their levels, and how some of them are asked for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from det_jupyter.contract.messages.states import Wire
from det_jupyter.contract.values.bounds import Whole

Level = Literal["debug", "info", "warning", "error", "critical"]
LEVELS: dict[Level, int] = {  # as numbers: those of Python's logging
    "debug": 10,
    "info": 20,
    "warning": 30,
    "error": 40,
    "critical": 50,
}
MAX_LINES = 10_000  # in one answer; `after` gets the rest
MAX_WAIT_S = 20.0


class LogLine(Wire):
    """One line that a rank printed.

    An open line is a progress bar that is still being rewritten (of several bars, a line each):
    the next line of this run and rank takes its place.
    """

    id: int
    at: float  # when the master received it
    trial_id: int
    run: int
    rank: int
    text: str
    level: Level | None = None  # recognised in the text
    is_open: bool = False


class LogQuery(Wire):
    """Which lines are asked for."""

    after: Whole = 0  # only lines with a larger id
    # Only the last ones. Without it, the first ones, `MAX_LINES` at most.
    tail: Whole | None = None
    rank: Whole | None = None  # only of this rank
    # Only since then, in seconds since the epoch.
    since: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    level: Level | None = None  # only of this level or a higher one
    # Only with this text, upper or lower case; between slashes, a regular expression.
    search: Annotated[str | None, Field(max_length=1000)] = None
    # Wait so long for a line that fits, unless no more can come.
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = 0.0


class LogPage(Wire):
    """Lines, oldest first."""

    lines: list[LogLine]
    total: int | None  # number of lines that fit; None: counting them took too long
    last_id: int  # of the newest line that was looked at; `after` for what comes next
    is_over: bool  # no more lines can come
