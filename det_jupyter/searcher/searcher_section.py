"""The part of a configuration's section `searcher` that all search methods share.

A method is one file here, with the class of its section and the method itself (method.py), and is
listed in methods.py. Before a search runs, the rest of the program uses only the section. Its
class methods take the section as it was written (a mapping without nulls, not checked yet); its
other methods belong to a checked instance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from det_jupyter.contract.schema.fields import (
    Bool,
    Count,
    Int,
    Number,
    PositiveInt,
    PositiveLength,
    Section,
    Text,
    Title,
)
from det_jupyter.contract.values.lengths import Length
from det_jupyter.errors import Problem
from det_jupyter.searcher.method import SearchMethod
from det_jupyter.searcher.planning import BracketForecast
from det_jupyter.searcher.rung_lengths import MAX_RUNGS
from det_jupyter.searcher.trials import Trials

MAX_TRIALS = 10_000_000
TrialCount = Annotated[Int, Field(ge=1, le=MAX_TRIALS)]
Rungs = Annotated[Int, Field(ge=1, le=MAX_RUNGS)]
Divisor = Annotated[Number, Field(gt=1)]


class SearcherSection(Section):
    """The fields of all searchers."""

    metric: Title
    """The validation metric that trials are judged by."""
    smaller_is_better: Bool = True
    """Whether a smaller metric is a better one."""
    source_trial_id: PositiveInt | None = None
    """Trials begin with the weights of this trial's latest checkpoint."""
    source_checkpoint_uuid: Text | None = None
    """Trials begin with the weights of this checkpoint."""
    elastic: Bool = False
    """Whether trials get free slots too, as if slots_per_trial was a range from that number on."""
    name: str
    """The search method."""

    # Whether trials differ, so that ranges and several trials make sense.
    is_search: ClassVar[bool] = True
    # Whether the search trains every point of the space, so that ranges need a `count`.
    is_exhaustive: ClassVar[bool] = False
    # Whether an experiment that is over can be continued: a search that compares trials cannot.
    is_continuable: ClassVar[bool] = False

    @property
    def unit(self) -> str:
        """The unit in which training is measured: a unit of lengths, or a time metric."""
        raise NotImplementedError

    def make(self, trials: Trials) -> SearchMethod:
        """Return the search method, which creates and directs these trials."""
        raise NotImplementedError

    def plan(self, hyperparameters: Mapping[str, Any]) -> list[BracketForecast]:
        """Return the planned training, the bracket with the most rungs first."""
        raise NotImplementedError

    def sample(
        self, hyperparameters: Mapping[str, Any], seed: int, number: int
    ) -> list[dict[str, Any]]:
        """Return the hyperparameters of the first trials, or examples of them."""
        trials = Trials(hyperparameters, seed)
        return [trials.create().hparams for _ in range(number)]

    @classmethod
    def computed_defaults(cls, searcher: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults that depend on other values."""
        return {}

    @classmethod
    def find_contradictions(
        cls, searcher: Mapping[str, Any], hyperparameters: Mapping[str, Any]
    ) -> Iterator[Problem]:
        """Yield the problems with values that contradict or need one another."""
        yield from ()

    @classmethod
    def is_endless(cls, searcher: Mapping[str, Any]) -> bool:
        """Return whether the section sets no end to the training."""
        return False

    @classmethod
    def lowest_rung(cls, searcher: Mapping[str, Any]) -> Length | None:
        """Return the lowest rung of trials that are measured by a reported unit; else None."""
        return None


class OfLength(SearcherSection):
    """The fields of searchers whose training is measured by `max_length`."""

    max_length: PositiveLength
    """How long a trial trains at most; a bare number counts batches."""

    @property
    def unit(self) -> str:
        """The unit in which training is measured."""
        return self.max_length.unit

    @classmethod
    def is_endless(cls, searcher: Mapping[str, Any]) -> bool:
        """Return whether no length is given."""
        return searcher.get("max_length") is None


class OfTrials(OfLength):
    """The fields of searchers with a length and a number of trials."""

    max_trials: TrialCount
    """How many trials there are in all."""
    max_concurrent_trials: Count = 16
    """How many trials are at work at a time, 1,000 at most; 0: all, or what the rungs need."""
