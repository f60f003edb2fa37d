"""Measured numbers over time, in the resolution of a picture."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from det_jupyter.bounds import Moment
from det_jupyter.wire.states import Wire

MAX_COLUMNS = 4000


class SeriesQuery(Wire):
    """Which series of a trial (or of an agent: `system` alone) are asked for, and how fine.

    Args:
        of: `metrics`; `timings`: parts of an interval, in seconds per batch; `system`.
        axis: What `x` is: UTC seconds, or batches trained (not of `system`).
        names: Only these; None for all.
        sources: Only of these; None for all.
        since: Only from there on, on the axis.
        until: Only up to there, on the axis.
        columns: At most so many points of each series.
    """

    of: Literal["metrics", "timings", "system"]
    axis: Literal["time", "batches"] = "time"
    names: list[str] | None = None
    sources: list[str] | None = None
    since: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    until: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    columns: Annotated[int, Field(ge=1, le=MAX_COLUMNS)] = 600


class Series(Wire):
    """One series as parallel lists, a point for each column of the picture that has a value.

    Args:
        source: What it is of: the group of a metric; `rank:RANK`; a source of a SystemSample,
            without the allocation (`host`, `gpu:UUID`, `rank:0`, `workers:0`).
        x: Where the column's values begin.
        low: The smallest value of the column.
        mid: Their mean.
        high: The largest.
        missing: Why there are no values.
    """

    source: str
    name: str
    title: str
    unit: str = ""
    x: list[float] = []
    low: list[float] = []
    mid: list[float] = []
    high: list[float] = []
    missing: str = ""


class SeriesPage(Wire):
    """The answer to a SeriesQuery.

    Args:
        began_at: Of the trial's first run; of an agent, when the kept samples begin.
        ended_at: Of the trial; None while it may train on.
        interval_s: Between the kept samples: after rolling up, coarser than they were taken.
    """

    series: list[Series]
    began_at: Moment | None
    ended_at: Moment | None = None
    interval_s: float = 1.0
