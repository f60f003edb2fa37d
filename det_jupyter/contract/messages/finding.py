"""Which experiments are asked for, and a row for each that is found."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from det_jupyter.contract.messages.states import State, Wire
from det_jupyter.contract.messages.status import Status
from det_jupyter.contract.messages.views import ExperimentFields
from det_jupyter.contract.values.bounds import Moment, Whole
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
    since: Moment | None = None  # submitted then or later
    until: Moment | None = None  # submitted before
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
