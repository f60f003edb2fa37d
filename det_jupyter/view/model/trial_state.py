"""The JSON of one trial: its ranks, curves, failure, traces and checkpoints."""

from __future__ import annotations

from typing import Literal, TypedDict

from det_jupyter.view.model.slots_and_queue import Wait
from det_jupyter.view.model.status_looks import Status
from det_jupyter.view.model.verdict_state import VerdictState


class ChartSeries(TypedDict):
    """One curve: parallel lists; a value that is not a finite number is None.

    Curves with the same `look` have the same colour in all charts. There are four colours; curves
    with a look of 4 or more are dashed. Curves with `is_faint` are drawn in the background,
    without a look of their own. `last` is None if the newest value is not finite. `lowest` and
    `highest` are of the whole curve; `steps` and `values` may be a sample of it. `seconds` is the
    time of each point since the trial's first report. `steps_per_epoch` is None if the
    configuration does not define an epoch.
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
    """The curves of one metric. `hidden` is the number of curves that are left out."""

    title: str
    series: list[ChartSeries]
    hidden: int


class RankStatus(TypedDict):
    """One rank of a trial that holds slots; `hangs` if others wait for it and it is stuck."""

    rank: int
    pid: int
    slot: str
    device: str
    status: Status
    hangs: bool


class HungTrial(TypedDict):
    """A trial without progress: since when, which ranks do not move, and where they are."""

    trial_id: int
    since: float
    sentence: str


class Failure(TypedDict):
    """Why a run has ended; `again` if the trial continued in another run."""

    rank: int | None
    exit_code: int | None
    error: str
    where: str
    traceback: str
    again: bool


class ChangeLine(TypedDict):
    """A change of a running trial: `lr 0.1 → 0.05`.

    `steps_completed` is None until the change takes effect; `error` is why it was refused.
    """

    id: int
    trial_id: int
    steps_completed: int | None
    text: str
    error: str


class TraceLine(TypedDict):
    """A trace of one rank by torch.profiler. `text` describes it, or says why there is none."""

    trial_id: int
    rank: int
    path: str
    size_bytes: int
    text: str


class TrialStatus(TypedDict):
    """The fields that every description of a trial has."""

    id: int
    status: Status
    status_word: str
    steps_completed: int


class TrialResult(TrialStatus):
    """A trial with the best and the last value of the searcher metric, None before the first."""

    best: float | None
    latest: float | None


class TrialDetails(TrialResult):
    """One trial; `first_step_s` is the time from its start to the first step.

    `num_steps` is the number of batches of its whole training, None if it is not known yet.

    `makes_room` is a sentence on the experiment for which it is being preempted, or "". `verdict`
    is None until a run has reported its timings.
    """

    progress: float
    num_steps: int | None
    restarts: int
    num_recoveries: int
    hparams: str
    wait: Wait | None
    makes_room: str
    backend: str
    launch_note: str
    first_step_s: float | None
    ranks: list[RankStatus]
    failure: Failure | None
    verdict: VerdictState | None
    traces: list[TraceLine]


class Checkpoints(TypedDict):
    """The number and total size of checkpoints, and the best searcher metric so far."""

    count: int
    size_bytes: int
    latest_step: int | None
    metric: str
    best_metric: float | None
    best_step: int | None
