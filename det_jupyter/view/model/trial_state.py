"""One trial and what comes from its training: curves, failures, traces, checkpoints."""

from __future__ import annotations

from typing import Literal, TypedDict

from det_jupyter.view.model.slots_and_queue import Wait
from det_jupyter.view.model.status_looks import Status
from det_jupyter.view.model.verdict_state import Verdict


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


class TrialStatus(TypedDict):
    """What is shown of every trial."""

    id: int
    status: Status
    status_word: str
    steps_completed: int


class Trial(TrialStatus):
    """One trial; `first_step_s` counts from the start.

    `makes_room` is a sentence or empty: for which experiment it was asked to leave. `verdict` is
    None until a run has reported where its time goes.
    """

    progress: float
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
