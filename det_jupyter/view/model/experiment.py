"""The JSON that one view of an experiment is drawn from; written down here and nowhere else.

`labextension/src/model/state.ts` has an interface for each class below (`IRow` for `Row`);
a test compares them field by field. Everything is text, numbers, booleans, lists and None, so
that any transport can carry it: the anywidget's trait today, a WebSocket tomorrow. Times are UTC
seconds since the epoch. What a reader sees of states is text made here, so that the live view, the
static card and the plain text say the same.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from det_jupyter.view.model.cluster import Cluster

Status = Literal[
    "queued",
    "starting",
    "running",
    "pausing",
    "paused",
    "resting",
    "stopping",
    "completed",
    "stopped",
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
    "resting": "Resting",
    "stopping": "Stopping",
    "completed": "Completed",
    "stopped": "Stopped early",
    "canceled": "Canceled",
    "failed": "Failed",
}
ENDED: frozenset[Status] = frozenset({"completed", "stopped", "canceled", "failed"})


class Action(TypedDict):
    """A button: what it asks for, whether that is possible now, and why (or what it does)."""

    verb: Verb
    label: str
    enabled: bool
    why: str


class Series(TypedDict):
    """One curve: parallel lists, a value None where it was not a finite number.

    Curves with the same `look` look alike in all charts: there are four colours, and from 4 on
    the curve is dashed. Those that `is_faint` have no look of their own: they are the background
    that the others are seen against.
    `last` is None when the newest value was not finite; `lowest` and `highest` are of the whole
    curve, of which `steps` and `values` may be a sample.
    """

    trial_id: int
    label: str
    kind: Literal["line", "points"]
    look: int
    is_faint: bool
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
    """One trial; `first_step_s` counts from the start.

    `waiting_for` and `makes_room` are sentences, or empty: why it does not run, and for whom it
    was asked to leave.
    """

    id: int
    status: Status
    status_word: str
    progress: float
    steps_completed: int
    restarts: int
    hparams: str
    waiting_for: str
    makes_room: str
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


class Axis(TypedDict):
    """A hyperparameter that varies: `optimizer.lr`, and the values it may have.

    Of a category, values are places in `labels`. Else they are numbers from `low` to `high`,
    `is_whole` when there is nothing between two integers.
    """

    name: str
    scale: Literal["linear", "log", "category"]
    is_whole: bool
    low: float
    high: float
    labels: list[str]


class Row(TypedDict):
    """One trial among many: a row of the table, a line and dots in the pictures.

    Args:
        bracket: Its place in the search's brackets.
        rungs: The searcher's metric at each rung it has reached, None where there was none.
        aim: The rung that it trains to, or trained to last; beyond `rungs` if it fell short.
        best: The searcher's metric, None if it has none yet.
        values: Its place on each of the search's axes, None where it has no such hyperparameter.
    """

    id: int
    status: Status
    status_word: str
    bracket: int | None
    rungs: list[float | None]
    aim: int
    best: float | None
    latest: float | None
    steps_completed: int
    num_slots: int
    values: list[float | None]


class Rung(TypedDict):
    """An amount of training at which trials are compared: `4 epochs`."""

    label: str
    short_label: str
    num_results: int
    num_promoted: int


class Bracket(TypedDict):
    """A tournament of its own within a search; lowest rung first."""

    rungs: list[Rung]
    num_created: int
    max_trials: int


class Improvement(TypedDict):
    """A value better than all before, `after_s` seconds after the experiment was submitted."""

    after_s: float
    value: float
    trial_id: int


class Remark(TypedDict):
    """What a reader should know of some trials, the first few of which are named."""

    trial_ids: list[int]
    is_failure: bool
    text: str


class Counts(TypedDict):
    """How many trials are what; every trial counts once."""

    done: int
    running: int
    resting: int
    waiting: int
    failed: int
    canceled: int


class Chosen(TypedDict):
    """The trial that the reader has chosen, shown as if there was no other."""

    trial: Trial
    charts: list[Chart]
    more_metrics: list[str]


class Search(TypedDict):
    """An experiment of many trials.

    `rows` has all trials, in the order they were created. `brackets` is empty where trials are
    not compared on the way. `num_more_remarks` tells how many `remarks` were left out.
    """

    searcher: str
    metric: str
    smaller_is_better: bool
    max_trials: int
    divisor: float | None
    counts: Counts
    axes: list[Axis]
    brackets: list[Bracket]
    rows: list[Row]
    improvements: list[Improvement]
    waiting_for: str
    remarks: list[Remark]
    num_more_remarks: int
    chosen: Chosen | None


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
    and `more_metrics` tell what was left out of `trials`, `captured` and `charts`. `search` is
    None for an experiment of one trial; else it has the trials, and `trials` is empty. `cluster`
    is None for one that is over, and while nothing is known.
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
    search: Search | None
    cluster: Cluster | None
    checkpoints: Checkpoints
    captured: list[Captured]
    num_captured: int
    notices: list[str]
