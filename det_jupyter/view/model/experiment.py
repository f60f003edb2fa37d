"""The JSON that one view of an experiment is drawn from.

The front end's `labextension/src/model/state.ts` is generated from these classes (`__main__.py`).
Everything is text, numbers, booleans, lists and None, so that any transport can carry it. Times
are UTC seconds since the epoch. States and reasons are put into words here, so that the live view,
the static card and the plain text say the same.
"""

from __future__ import annotations

from typing import Literal, TypedDict, get_args

from det_jupyter.view.model.cluster import Cluster, Wait
from det_jupyter.view.model.verdict import Verdict

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
VERBS: tuple[Verb, ...] = get_args(Verb)

STATUS_WORDS: dict[Status, str] = {status: status.capitalize() for status in get_args(Status)}
STATUS_WORDS["stopped"] = "Stopped early"
ENDED: tuple[Status, ...] = ("completed", "stopped", "canceled", "failed")

Mark = Literal["promoted", "finished", "running", "resting", "stopped", "failed", "canceled"]
Tone = Literal["brand", "good", "warn", "bad", "text"]


class MarkLook(TypedDict):
    """How a mark looks: a path in SVG's relative commands, about 8 by 8 around its place."""

    word: str
    path: str
    is_filled: bool
    tone: Tone


def _look(word: str, tone: Tone, path: str, *, is_filled: bool = False) -> MarkLook:
    return MarkLook(word=word, path=path, is_filled=is_filled, tone=tone)


# In the order of legends; told apart by shape alone, too.
MARKS: dict[Mark, MarkLook] = {
    "promoted": _look("promoted", "brand", "m0-4l4 7h-8z", is_filled=True),
    "finished": _look("trained to the end", "good", "m0-4l4 4l-4 4l-4-4z", is_filled=True),
    "running": _look("training to it", "brand", "m-3-4l7 4l-7 4z"),
    "resting": _look("waiting to be promoted", "warn", "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z"),
    "stopped": _look("stopped", "text", "m-2.5-2.5h5v5h-5z", is_filled=True),
    "failed": _look("failed", "bad", "m-3-3l6 6m0-6l-6 6"),
    "canceled": _look("canceled", "text", "m-4 0h8"),
}


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
    curve, of which `steps` and `values` may be a sample. `seconds` has the time of each point,
    since the trial's first report. `steps_per_epoch` is None when the configuration does not say
    how long an epoch is.
    """

    trial_id: int
    label: str
    kind: Literal["line", "points"]
    look: int
    is_faint: bool
    steps: list[int]
    values: list[float | None]
    seconds: list[float]
    steps_per_epoch: float | None
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


class Change(TypedDict):
    """A change of a running trial: `lr 0.1 → 0.05`.

    `steps_completed` is None until it takes effect; `error` says why it was refused.
    """

    id: int
    trial_id: int
    steps_completed: int | None
    text: str
    error: str


class Trace(TypedDict):
    """A trace of torch.profiler, of one rank; `text` says what is in it, or why there is none."""

    trial_id: int
    rank: int
    path: str
    size_bytes: int
    text: str


class Trial(TypedDict):
    """One trial; `first_step_s` counts from the start.

    `makes_room` is a sentence or empty: for which experiment it was asked to leave. `verdict` is
    None until a run has reported where its time goes.
    """

    id: int
    status: Status
    status_word: str
    progress: float
    steps_completed: int
    restarts: int
    hparams: str
    wait: Wait | None
    makes_room: str
    backend: str
    launch_note: str
    first_step_s: float | None
    ranks: list[Rank]
    failure: Failure | None
    verdict: Verdict | None
    traces: list[Trace]


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
        marks: How it stands at each rung it has reached, then at `aim` if that is beyond them.
        best: The searcher's metric, None if it has none yet.
        values: Its place on each of the search's axes, None where it has no such hyperparameter.
        metrics: The last value of each of the search's other metrics, None where it has none.
    """

    id: int
    status: Status
    status_word: str
    bracket: int | None
    rungs: list[float | None]
    aim: int
    marks: list[Mark]
    best: float | None
    latest: float | None
    steps_completed: int
    num_slots: int
    values: list[float | None]
    metrics: list[float | None]


class Rung(TypedDict):
    """An amount of training at which trials are compared: `4 epochs`."""

    label: str
    short_label: str
    num_results: int
    num_promoted: int


class Bracket(TypedDict):
    """One bracket of a search; the lowest rung comes first."""

    rungs: list[Rung]
    num_created: int
    max_trials: int


class Improvement(TypedDict):
    """A value better than all before, `after_s` seconds after the experiment was submitted."""

    after_s: float
    value: float
    trial_id: int


class Remark(TypedDict):
    """A sentence about some trials, the first few of which are named."""

    trial_ids: list[int]
    is_failure: bool
    text: str


class Counts(TypedDict):
    """How many trials are in each state; every trial counts once."""

    done: int
    running: int
    resting: int
    waiting: int
    failed: int
    canceled: int


class Chosen(TypedDict):
    """The trial that the reader has chosen, in full."""

    trial: Trial
    charts: list[Chart]
    more_metrics: list[str]
    no_metrics: str


class Share(TypedDict):
    """The part of a hyperparameter in all the importance there is, from 0 to 1."""

    name: str
    share: float


class Importance(TypedDict):
    """How much each hyperparameter sets the best trials apart; the largest share comes first.

    `sentence` says how many trials are compared, or why there are no shares.
    """

    shares: list[Share]
    sentence: str


class Search(TypedDict):
    """An experiment of many trials.

    `metrics` names the metrics besides the searcher's, of which rows have the last values.
    `importance` is None while it is not known.

    `rows` has all trials, in the order they were created. `brackets` is empty where trials are
    not compared on the way. `num_more_remarks` tells how many `remarks` were left out. `wait` is
    None while a trial holds slots.
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
    metrics: list[str]
    importance: Importance | None
    improvements: list[Improvement]
    wait: Wait | None
    remarks: list[Remark]
    num_more_remarks: int
    chosen: Chosen | None


class Captured(TypedDict):
    """One name that was captured from the notebook for the ranks."""

    name: str
    cell: str
    type: str
    size_bytes: int


class ViewState(TypedDict):
    """Everything the view of one experiment shows.

    Args:
        as_of: When it was true.
        eta_s: None while it cannot be known.
        steps_per_epoch: None when the configuration does not say how long an epoch is.
        summary: What has been done, a few words each: `step 58`, `epoch 2.6`.
        more_metrics: Metrics for which `charts` had no room.
        no_metrics: Why there are no charts; empty if there are some.
        trials: Those of an experiment of one trial; a search has its own.
        search: None for an experiment of one trial.
        cluster: None for one that is over, and while nothing is known.
        num_captured: All names, of which `captured` has some.
        alarms: What makes the training useless, such as a loss that is NaN.
        changes: Of all trials while they trained, to be drawn on their curves.
    """

    id: int
    name: str
    labels: list[str]
    description: str
    status: Status
    status_word: str
    as_of: float
    created_at: float
    ended_at: float | None
    progress: float
    eta_s: float | None
    steps_per_epoch: float | None
    summary: list[str]
    message: str
    actions: list[Action]
    charts: list[Chart]
    more_metrics: list[str]
    no_metrics: str
    trials: list[Trial]
    num_trials: int
    search: Search | None
    cluster: Cluster | None
    checkpoints: Checkpoints
    captured: list[Captured]
    num_captured: int
    notices: list[str]
    alarms: list[str]
    changes: list[Change]
