"""Queries for experiments, log lines and measured series, and the answers to them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from det_jupyter.contract.messages.status import State, Status
from det_jupyter.contract.messages.views import ExperimentFields
from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import Timestamp, Whole
from det_jupyter.contract.values.direction import Direction

Pattern = Annotated[str, Field(max_length=1000)]
MAX_IDS = 200
Sort = Literal["newest", "oldest", "metric"]


class ExperimentQuery(Wire):
    """Which experiments are asked for; what is not given does not matter."""

    ids: Annotated[list[Whole] | None, Field(max_length=MAX_IDS)] = None  # only of these numbers
    # Words that are all in the name, description, labels, notebook or entrypoint.
    text: Pattern = ""
    name: Pattern = ""  # the name, in which `*` and `?` stand for anything
    label: list[Pattern] = []  # labels that it has, all of them
    # The notebook's path or its end, such as `train.ipynb`; with `*` and `?`.
    notebook: Pattern = ""
    # States, of which it is in one; RUNNING and QUEUED are the two kinds of ACTIVE.
    state: list[Pattern] = []
    since: Timestamp | None = None  # submitted then or later
    until: Timestamp | None = None  # submitted before
    archived: bool = False  # archived ones too
    # "metric" has the best first, each metric for itself, and those without a value last.
    sort: Sort = "newest"
    limit: Annotated[Whole, Field(ge=0)] | None = None  # at most so many rows; None: all


class ListedExperiment(ExperimentFields):
    """An experiment in a list, wherever it is listed: in tables, and in JupyterLab's sidebar."""

    name: str
    status: Status
    progress: float  # from 0 to 1
    metric: str
    smaller_is_better: bool
    best_metric: float | None = None  # of all its trials
    num_trials: int
    slots_per_trial: int
    entrypoint: str
    labels: list[str] = []
    description: str = ""
    notebook: str | None = None
    num_slots: int = 0  # that its trials hold now
    failure: str = ""  # why it failed, a sentence; empty if it did not
    alarm: str = ""  # what makes its training useless, while it goes on
    position: float = 0.0  # its place in the queue among those of its priority
    is_quiet: bool = False  # its end is not notified: what submitted it reports


class ExperimentRow(ListedExperiment):
    """An experiment as the master lists it."""

    state: State
    hparams: dict[str, Any] = {}  # of the best trial; of the first while there is no value yet
    pool: str = ""
    parent_id: int | None = None  # it was forked from that experiment

    @property
    def direction(self) -> Direction:
        """Which values of the metric are better."""
        return Direction.of(smaller_is_better=self.smaller_is_better)


class ExperimentRows(Wire):
    """The rows that were asked for."""

    rows: list[ExperimentRow]
    num_more: int = 0  # how many more there are beyond the limit
    num_archived: int = 0  # how many archived ones there are, which were not asked for
    last_seq: int = 0  # the number of the feed's last item, which the rows include


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


MAX_COLUMNS = 4000


class SeriesQuery(Wire):
    """Which series of a trial (or of an agent: `system` alone) are asked for, and how fine."""

    # `metrics`; `timings`: parts of an interval, in seconds per batch; `system`.
    of: Literal["metrics", "timings", "system"]
    # What `x` is: UTC seconds, or batches trained (not of `system`).
    axis: Literal["time", "batches"] = "time"
    names: list[str] | None = None  # only these; None for all
    sources: list[str] | None = None  # only of these; None for all
    # Only from there on, on the axis.
    since: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    # Only up to there, on the axis.
    until: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    # At most so many points of each series.
    columns: Annotated[int, Field(ge=1, le=MAX_COLUMNS)] = 600


class Series(Wire):
    """One series as parallel lists, a point for each column of the picture that has a value."""

    # What it is of: the group of a metric; `rank:RANK`; a source of a SystemSample, without the
    # allocation (`host`, `gpu:UUID`, `rank:0`, `workers:0`).
    source: str
    name: str
    title: str
    unit: str = ""
    x: list[float] = []  # where the column's values begin
    low: list[float] = []  # the smallest value of the column
    mid: list[float] = []  # their mean
    high: list[float] = []  # the largest
    missing: str = ""  # why there are no values


class SeriesPage(Wire):
    """The answer to a SeriesQuery."""

    series: list[Series]
    began_at: (
        Timestamp | None
    )  # of the trial's first run; of an agent, when the kept samples begin
    ended_at: Timestamp | None = None  # of the trial; None while it may train on
    # Between the kept samples: after rolling up, coarser than they were taken.
    interval_s: float = 1.0
    left_out: int = 0  # how many series it lacks, as a message to a page has no room for them
