"""The search of an experiment of many trials: its axes, brackets, and a row for each trial."""

from __future__ import annotations

from typing import Literal, TypedDict

from det_jupyter.view.model.slots_and_queue import Wait
from det_jupyter.view.model.status_looks import Mark
from det_jupyter.view.model.trial_state import Chart, Trial, TrialStatus


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


class Row(TrialStatus):
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

    bracket: int | None
    rungs: list[float | None]
    aim: int
    marks: list[Mark]
    best: float | None
    latest: float | None
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
