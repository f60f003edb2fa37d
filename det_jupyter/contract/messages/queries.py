"""Queries for experiments, log lines and measured series, and the answers to them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from det_jupyter.contract.messages.disks import DiskStatus
from det_jupyter.contract.messages.leaving import Leaving
from det_jupyter.contract.messages.resources import RemedyButton
from det_jupyter.contract.messages.status import Action, AlarmKind, State, Status
from det_jupyter.contract.messages.views import ExperimentFields
from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import Timestamp, Whole
from det_jupyter.contract.values.direction import Direction
from det_jupyter.contract.values.sizes import Sizes

Pattern = Annotated[str, Field(max_length=1000)]
MAX_IDS = 200
Sort = Literal["newest", "oldest", "metric"]


class ExperimentQuery(Wire):
    """A query for experiments: those that meet all conditions that are given."""

    # Only experiments with these numbers.
    ids: Annotated[list[Whole] | None, Field(max_length=MAX_IDS)] = None
    # Words, each of which is in the name, description, labels, notebook or entrypoint.
    text: Pattern = ""
    name: Pattern = ""  # the whole name; `*` and `?` are wildcards
    label: list[Pattern] = []  # the experiment has all of these labels
    # The notebook's path or its end, such as `train.ipynb`; `*` and `?` are wildcards.
    notebook: Pattern = ""
    # It is in one of these states; RUNNING and QUEUED are the two kinds of ACTIVE.
    state: list[Pattern] = []
    since: Timestamp | None = None  # submitted then or later
    until: Timestamp | None = None  # submitted before
    archived: bool = False  # include archived ones
    # "metric": grouped by metric, the best first, those without a value last.
    sort: Sort = "newest"
    limit: Annotated[Whole, Field(ge=0)] | None = None  # largest number of rows; None: all


class ExperimentRow(ExperimentFields):
    """An experiment in a list: in the answer to an ExperimentQuery, and in JupyterLab's sidebar.

    What follows `num_slots` depends on the queue, or is only for pages: an answer to a query does
    not have it.
    """

    name: str
    state: State
    status: Status
    status_word: str  # with the kind of its alarm
    progress: float  # from 0 to 1
    metric: str
    smaller_is_better: bool
    best_metric: float | None = None  # best value of all its trials
    num_trials: int
    slots_per_trial: Sizes
    entrypoint: str
    labels: list[str] = []
    description: str = ""
    notebook: str | None = None
    failure: str = ""  # why it failed, a sentence; empty if it did not
    alarm: str = ""  # what is wrong with its training, while it continues
    alarm_kind: AlarmKind = ""
    position: float = 0.0  # orders the queue among experiments of one priority
    is_quiet: bool = False  # no notification at its end: the client that submitted it reports it
    hparams: dict[str, Any] = {}  # of the best trial; of the first one if no trial has a value
    pool: str = ""
    parent_id: int | None = None  # the experiment that it was forked from
    leaving: Leaving | None = None  # while it pauses or stops: a gang that holds slots
    num_slots: int = 0  # number of slots that its trials hold now

    key: str = ""  # of its places in a page (view/forms/notebook_output.py)
    # Number of trials before its first one in the queue; None: it does not wait, or is not near
    # the front.
    queue_place: int | None = None
    # Why its first waiting trial waits, or what delays its ranks that have to leave, in a
    # sentence; "" if none waits.
    wait: str = ""
    # Changes that would start that trial, or end those ranks.
    remedies: list[RemedyButton] = []
    actions: list[Action] = []  # its buttons; none after its end

    @property
    def direction(self) -> Direction:
        """Which values of the metric are better."""
        return Direction.of(smaller_is_better=self.smaller_is_better)


class ExperimentRows(Wire):
    """The answer to an ExperimentQuery."""

    rows: list[ExperimentRow]
    num_more: int = 0  # number of further rows beyond the limit
    num_archived: int = 0  # number of archived ones that the query left out
    sources: dict[int, str] = {}  # of imported ones: where their runs come from
    disks: list[DiskStatus] = []  # disks that are full, or will be soon


Level = Literal["debug", "info", "warning", "error", "critical"]
LEVELS: dict[Level, int] = {  # the numbers of Python's logging
    "debug": 10,
    "info": 20,
    "warning": 30,
    "error": 40,
    "critical": 50,
}
MAX_LINES = 10_000  # lines in one answer; a query with `after` returns the rest
MAX_WAIT_S = 20.0


class LogLine(Wire):
    """One line that a rank printed.

    An open line is a progress bar that is still being rewritten (or several bars, with a line
    each): the next line of this run and rank replaces it.
    """

    id: int
    at: float  # when the master received it
    trial_id: int
    run: int
    rank: int
    text: str
    level: Level | None = None  # recognised in the text
    is_open: bool = False
    agent: str = ""  # of the rank; "": stored by an older version


class LogQuery(Wire):
    """A query for log lines."""

    after: Whole = 0  # only lines with a larger id
    # Only the last `tail` lines. None: the first ones, at most `MAX_LINES`.
    tail: Whole | None = None
    rank: Whole | None = None  # only lines of this rank
    # Only lines of ranks on this agent.
    agent: Annotated[str | None, Field(max_length=200)] = None
    # Only lines since then, UTC seconds.
    since: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    level: Level | None = None  # only of this level or a higher one
    # Only lines with this text in any case; between slashes, a regular expression.
    search: Annotated[str | None, Field(max_length=1000)] = None
    # How long to wait for a matching line, in seconds, unless no more can come.
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = 0.0


class LogPage(Wire):
    """The answer to a LogQuery."""

    lines: list[LogLine]  # oldest first
    total: int | None  # number of matching lines; None: counting them took too long
    last_id: int  # id of the newest line examined: `after` of the next query
    is_over: bool  # no more lines can come


MAX_COLUMNS = 4000
MAX_POINTS = 400_000


class SeriesQuery(Wire):
    """A query for the series of a trial, or of an agent (which has `system` only)."""

    # `metrics`; `timings`: parts of an interval, in seconds per batch; `system`.
    of: Literal["metrics", "timings", "system"]
    # What `x` is: UTC seconds, or batches trained (not of `system`).
    axis: Literal["time", "batches"] = "time"
    names: list[str] | None = None  # only these; None: all
    sources: list[str] | None = None  # only of these; None: all
    # Only from this value of the axis on.
    since: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    # Only up to this value of the axis.
    until: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    # The largest number of points of a series.
    columns: Annotated[int, Field(ge=1, le=MAX_COLUMNS)] = 600
    # Of all series together. With more series each has fewer points; the last series are left out
    # if there are too many.
    max_points: Annotated[int, Field(ge=1, le=MAX_POINTS)] = MAX_POINTS


class Series(Wire):
    """One series as parallel lists, with a point for each column of the plot that has values."""

    # The group of a metric; `rank:RANK` of timings; of system metrics the source of a
    # SystemSample, without the allocation (`host`, `gpu:UUID`, `rank:0`, `workers:0`).
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
    # Seconds between the stored samples, of which old ones are combined into coarser ones.
    interval_s: float = 1.0
