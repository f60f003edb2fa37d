"""The JSON that one view of an experiment is drawn from; written down here and nowhere else.

`labextension/src/model.ts` has an interface for each class below (`ViewState` is `IViewState`);
a test compares them field by field. Everything is text, numbers, booleans, lists and None, so
that any transport can carry it: the anywidget's trait today, a WebSocket tomorrow. Times are UTC
seconds since the epoch. What a reader sees of states is text made here, so that the live view, the
static card and the plain text say the same.
"""

from __future__ import annotations

from typing import Literal, TypedDict

Status = Literal[
    "queued",
    "starting",
    "running",
    "pausing",
    "paused",
    "stopping",
    "completed",
    "canceled",
    "failed",
]
Verb = Literal["pause", "activate", "kill"]
VERBS: tuple[Verb, ...] = ("pause", "activate", "kill")

STATUS_WORDS: dict[Status, str] = {
    "queued": "Queued",
    "starting": "Starting",
    "running": "Running",
    "pausing": "Pausing",
    "paused": "Paused",
    "stopping": "Stopping",
    "completed": "Completed",
    "canceled": "Canceled",
    "failed": "Failed",
}
ENDED: frozenset[Status] = frozenset({"completed", "canceled", "failed"})


class Action(TypedDict):
    """A button: what it asks for, whether that is possible now, and why (or what it does)."""

    verb: Verb
    label: str
    enabled: bool
    why: str


class Series(TypedDict):
    """One curve: parallel lists, a value None where it was not a finite number.

    Curves with the same `look` look alike in all charts: there are four colours, and from 4 on
    the curve is dashed.
    `last` is None when the newest value was not finite; `lowest` and `highest` are of the whole
    curve, of which `steps` and `values` may be a sample.
    """

    label: str
    kind: Literal["line", "points"]
    look: int
    steps: list[int]
    values: list[float | None]
    last: float | None
    lowest: float | None
    highest: float | None


class Chart(TypedDict):
    """The curves of one metric. `hidden` counts the curves left out."""

    title: str
    series: list[Series]
    hidden: int


class Rank(TypedDict):
    """One rank of a trial that holds slots."""

    rank: int
    pid: int
    slot: str
    device: str
    status: Status


class Failure(TypedDict):
    """Why a run ended; `again` when the trial went on to another run."""

    rank: int | None
    exit_code: int | None
    error: str
    where: str
    traceback: str
    again: bool


class Trial(TypedDict):
    """One trial; `waiting_for` is a sentence, or empty. `first_step_s` counts from the start."""

    id: int
    status: Status
    status_word: str
    progress: float
    steps_completed: int
    restarts: int
    hparams: str
    waiting_for: str
    backend: str
    launch_note: str
    first_step_s: float | None
    ranks: list[Rank]
    failure: Failure | None


class Checkpoints(TypedDict):
    """What was saved, and the best value of the searcher's metric so far."""

    count: int
    size_bytes: int
    latest_step: int | None
    metric: str
    best_metric: float | None
    best_step: int | None


class Captured(TypedDict):
    """One name that travelled from the notebook to the ranks."""

    name: str
    cell: str
    type: str
    size_bytes: int


class ViewState(TypedDict):
    """Everything the view of one experiment shows.

    `as_of` is when it was true. `eta_s` is None while it cannot be known. `steps_per_epoch` is
    None when the configuration does not say how long an epoch is. `num_trials`, `num_captured`
    and `more_metrics` tell what was left out of `trials`, `captured` and `charts`.
    """

    id: int
    name: str
    status: Status
    status_word: str
    as_of: float
    created_at: float
    ended_at: float | None
    progress: float
    eta_s: float | None
    steps_per_epoch: float | None
    message: str
    actions: list[Action]
    charts: list[Chart]
    more_metrics: list[str]
    trials: list[Trial]
    num_trials: int
    checkpoints: Checkpoints
    captured: list[Captured]
    num_captured: int
    notices: list[str]
