"""Measured numbers over time, in the resolution of a picture."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from det_jupyter.contract.messages.states import Wire
from det_jupyter.contract.values.bounds import Moment

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
    began_at: Moment | None  # of the trial's first run; of an agent, when the kept samples begin
    ended_at: Moment | None = None  # of the trial; None while it may train on
    # Between the kept samples: after rolling up, coarser than they were taken.
    interval_s: float = 1.0
    left_out: int = 0  # how many series it lacks, as a message to a page has no room for them
