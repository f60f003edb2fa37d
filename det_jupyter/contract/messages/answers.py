"""Answers to the questions that pages ask of a kernel or of the feeder (answers/answers.py).

TypeScript's interfaces of them are generated (view/model/__main__.py).
"""

from __future__ import annotations

from typing import Any

from det_jupyter.contract.messages.orders import TraceView
from det_jupyter.contract.messages.series import SeriesPage
from det_jupyter.contract.messages.states import Wire
from det_jupyter.contract.messages.views import CheckpointView


class CheckpointsAnswer(Wire):
    """The newest checkpoints of an experiment, the newest first."""

    checkpoints: list[CheckpointView]
    total: int  # how many there are
    best: str  # the uuid of the best one; empty: there is none


class SeriesAnswer(Wire):
    """The series of one trial, or of one agent."""

    page: SeriesPage


class SeriesByTrial(Wire):
    """The series of several trials, by trial."""

    pages: dict[str, SeriesPage]


class RankStack(Wire):
    """Where a rank is: its stack, or in `error` why it does not answer."""

    rank: int
    stack: str = ""
    error: str = ""


class StacksAnswer(Wire):
    """The stacks of a trial's ranks."""

    trial_id: int
    stacks: list[RankStack]


class ProfileAnswer(Wire):
    """A profile that was recorded: the first rank's trace, and what became of all of them."""

    path: str
    size_bytes: int
    text: str
    traces: list[TraceView]


class ChangeAnswer(Wire):
    """A change that was made: what became which, and after how many batches."""

    text: str
    steps_completed: int | None


class KeptAnswer(Wire):
    """What a notebook keeps of an experiment, by MIME type."""

    kept: dict[str, Any]


class TabsAnswer(Wire):
    """The code of the tabs that a view begins without."""

    text: str
