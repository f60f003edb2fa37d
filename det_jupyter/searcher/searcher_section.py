"""The section `searcher` of a configuration, as far as all search methods have it.

A method is one file here: a section with its fields, and the method itself (method.py). It is
entered in methods.py. What the rest of the program needs of a method before it runs, it gets from
the section: from class methods for a section as it was written (a mapping without nulls, not
checked yet), else from a checked instance.
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
from det_jupyter.searcher.planning import PlannedBracket
from det_jupyter.searcher.rung_lengths import MAX_RUNGS
from det_jupyter.searcher.trials import Trials

MAX_TRIALS = 10_000_000
TrialCount = Annotated[Int, Field(ge=1, le=MAX_TRIALS)]
Rungs = Annotated[Int, Field(ge=1, le=MAX_RUNGS)]
Divisor = Annotated[Number, Field(gt=1)]


class SearcherSection(Section):
    """What all searchers have."""

    metric: Title
    """The validation metric that trials are judged by."""
    smaller_is_better: Bool = True
    """Whether a smaller metric is a better one."""
    source_trial_id: PositiveInt | None = None
    """Trials begin with the weights of this trial's latest checkpoint."""
    source_checkpoint_uuid: Text | None = None
    """Trials begin with the weights of this checkpoint."""
    name: str
    """The search method."""

    # Whether its trials differ, so that ranges, and several trials, make sense.
    is_search: ClassVar[bool] = True
    # Whether it trains every point of the space: ranges need a `count` then.
    is_exhaustive: ClassVar[bool] = False
    # Whether an experiment that is over can be continued: a search that compares trials cannot.
    is_continuable: ClassVar[bool] = False

    @property
    def unit(self) -> str:
        """What training is measured in: a unit of lengths, or a time metric."""
        raise NotImplementedError

    def make(self, trials: Trials) -> SearchMethod:
        """Return the method, which creates and directs these trials."""
        raise NotImplementedError

    def plan(self, hyperparameters: Mapping[str, Any]) -> list[PlannedBracket]:
        """Return what it would train, the bracket with most rungs first."""
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
        """Return whether it sets no end to the training."""
        return False

    @classmethod
    def lowest_rung(cls, searcher: Mapping[str, Any]) -> Length | None:
        """Return the length at which trials that report by themselves are first judged."""
        return None


class OfLength(SearcherSection):
    """What searchers have whose training is measured by `max_length`."""

    max_length: PositiveLength
    """How long a trial trains at most; a bare number counts batches."""

    @property
    def unit(self) -> str:
        """What training is measured in."""
        return self.max_length.unit

    @classmethod
    def is_endless(cls, searcher: Mapping[str, Any]) -> bool:
        """Return whether no length is given."""
        return searcher.get("max_length") is None


class OfTrials(OfLength):
    """What searchers have that are given a length and a number of trials."""

    max_trials: TrialCount
    """How many trials there are in all."""
    max_concurrent_trials: Count = 16
    """How many trials are at work at a time, 1,000 at most; 0: all, or what the rungs need."""
