"""The JSON of a search: its axes, brackets, and a row for each trial."""

from __future__ import annotations

from typing import Literal, TypedDict

from det_jupyter.view.model.slots_and_queue import Wait
from det_jupyter.view.model.status_looks import Mark
from det_jupyter.view.model.trial_state import Chart, TrialDetails, TrialResult


class Axis(TypedDict):
    """An axis of the pictures: a hyperparameter that varies, such as `optimizer.lr`, or a metric.

    `start` and `end` are the values at its left and right or lower and upper end. On the scale
    "category", values are indices of `labels`. `ticks` are the values that have a label beside the
    axis, `tick_labels`.
    """

    name: str
    scale: Literal["linear", "log", "category"]
    is_whole: bool
    start: float
    end: float
    labels: list[str]
    ticks: list[float]
    tick_labels: list[str]


class TrialRow(TrialResult):
    """One trial of a search: a row of the table, a line and dots in the pictures.

    Args:
        bracket: The index of its bracket.
        rungs: The searcher metric at each rung that it has reached, None where it is missing.
        aim: The rung that it trains to, or trained to last, whether it reached it or not.
        marks: Its mark at each rung that it has reached, then at `aim` if that rung is higher.
        values: Its value on each of the search's axes, None where it lacks the hyperparameter.
        metrics: The last value of each other metric of the search, None where it has none.
    """

    bracket: int | None
    rungs: list[float | None]
    aim: int
    marks: list[Mark]
    num_slots: int
    values: list[float | None]
    metrics: list[float | None]


class RungState(TypedDict):
    """An amount of training at which trials are compared: `4 epochs`.

    `left` is the left end of its column, as a share of the picture's width.
    """

    label: str
    short_label: str
    left: float
    num_results: int
    num_promoted: int


class BracketState(TypedDict):
    """One bracket of a search; the lowest rung comes first."""

    rungs: list[RungState]
    num_created: int
    max_trials: int


class Improvement(TypedDict):
    """A value better than all earlier ones, `after_s` seconds after the submission."""

    after_s: float
    value: float
    trial_id: int


class Remark(TypedDict):
    """A sentence about some trials; only the first of them are named."""

    trial_ids: list[int]
    is_failure: bool
    text: str


class TrialCounts(TypedDict):
    """The number of trials in each state; every trial is counted once."""

    done: int
    running: int
    resting: int
    waiting: int
    failed: int
    canceled: int


class Chosen(TypedDict):
    """The details of the trial that the user has chosen."""

    trial: TrialDetails
    charts: list[Chart]
    more_metrics: list[str]
    no_metrics: str


class HparamShare(TypedDict):
    """The share of a hyperparameter in the sum of all importances, from 0 to 1."""

    name: str
    share: float


class Importance(TypedDict):
    """The importance of each hyperparameter for reaching the best values; the largest first.

    `sentence` contains the number of compared trials, or the reason why there are no shares.
    `num_ended` is the number of trials that had ended: it is computed again when more have ended.
    """

    num_ended: int
    shares: list[HparamShare]
    sentence: str


class SearchState(TypedDict):
    """An experiment with many trials.

    `axes` has an axis for each hyperparameter that varies. The searcher metric has an axis for
    the best values of trials, one for those at rungs, and one for `improvements`; each ends with
    the best. `metrics` has an axis for each other metric, whose last values are in rows.

    `rows` has all trials in the order of their creation. `brackets` is empty for a search without
    rungs; `rung_width` is the width of a rung's column, as a share of the picture's. `importance`
    is None before it is fetched. `num_more_remarks` is the number of remarks left out. `wait` is
    None while a trial holds slots.
    """

    searcher: str
    metric: str
    smaller_is_better: bool
    max_trials: int
    divisor: float | None
    counts: TrialCounts
    axes: list[Axis]
    best_axis: Axis
    rung_axis: Axis
    progress_axis: Axis
    metrics: list[Axis]
    brackets: list[BracketState]
    rung_width: float
    rows: list[TrialRow]
    importance: Importance | None
    improvements: list[Improvement]
    wait: Wait | None
    remarks: list[Remark]
    num_more_remarks: int
    chosen: Chosen | None
