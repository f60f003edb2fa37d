"""Which experiments are asked for, and a row for each that is found."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from det_jupyter.bounds import Moment, Whole
from det_jupyter.direction import Direction
from det_jupyter.wire.states import AllocationState, State, Wire

Pattern = Annotated[str, Field(max_length=1000)]
MAX_IDS = 200
Sort = Literal["newest", "oldest", "metric"]


class ExperimentQuery(Wire):
    """Which experiments are asked for; what is not given does not matter.

    Args:
        ids: Only of these numbers.
        text: Words that are all in the name, description, labels, notebook or entrypoint.
        name: The name, in which `*` and `?` stand for anything.
        label: Labels that it has, all of them.
        notebook: The notebook's path or its end, such as `train.ipynb`; with `*` and `?`.
        state: States, of which it is in one; RUNNING and QUEUED are the two kinds of ACTIVE.
        since: Submitted then or later.
        until: Submitted before.
        archived: Archived ones too.
        sort: "metric" has the best first, each metric for itself, and those without a value last.
        limit: At most so many rows; None: all.
    """

    ids: Annotated[list[Whole] | None, Field(max_length=MAX_IDS)] = None
    text: Pattern = ""
    name: Pattern = ""
    label: list[Pattern] = []
    notebook: Pattern = ""
    state: list[Pattern] = []
    since: Moment | None = None
    until: Moment | None = None
    archived: bool = False
    sort: Sort = "newest"
    limit: Annotated[Whole, Field(ge=0)] | None = None


class ExperimentRow(Wire):
    """What a list has of an experiment.

    Args:
        status: Its state, in which RUNNING or QUEUED stands for ACTIVE.
        best_metric: Of all its trials.
        hparams: Of the best trial; of the first while there is no value yet.
        gangs: The states that allocations of its trials are in now.
        num_slots: That its trials hold now.
        failure: Why it failed; empty if it did not.
        parent_id: It was forked from that experiment.
    """

    id: int
    name: str
    state: State
    status: str
    progress: float
    metric: str
    smaller_is_better: bool
    best_metric: float | None = None
    hparams: dict[str, Any] = {}
    num_trials: int
    slots_per_trial: int
    entrypoint: str
    labels: list[str] = []
    description: str = ""
    notebook: str | None = None
    created_at: float
    ended_at: float | None = None
    is_archived: bool = False
    gangs: list[AllocationState] = []
    num_slots: int = 0
    failure: str = ""
    pool: str = ""
    parent_id: int | None = None

    @property
    def direction(self) -> Direction:
        """Which values of the metric are better."""
        return Direction.of(smaller_is_better=self.smaller_is_better)


class ExperimentRows(Wire):
    """The rows that were asked for.

    Args:
        num_more: How many more there are beyond the limit.
        num_archived: How many archived ones there are, which were not asked for.
        last_seq: The number of the feed's last item, which the rows include.
    """

    rows: list[ExperimentRow]
    num_more: int = 0
    num_archived: int = 0
    last_seq: int = 0
