"""The `searcher` section: one shape for each search method, told apart by `name`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from det_jupyter.config.fields import (
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

MAX_RUNGS = 1000
MAX_TRIALS = 10_000_000
TrialCount = Annotated[Int, Field(ge=1, le=MAX_TRIALS)]
Rungs = Annotated[Int, Field(ge=1, le=MAX_RUNGS)]
Divisor = Annotated[Number, Field(gt=1)]


class _Searcher(Section):
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


class _OfLength(_Searcher):
    max_length: PositiveLength
    """How long a trial trains at most; a bare number counts batches."""


class _OfTrials(_OfLength):
    max_trials: TrialCount
    """How many trials there are in all."""
    max_concurrent_trials: Count = 16
    """How many trials are at work at a time, 1,000 at most; 0: all, or what the rungs need."""


class SingleSearcher(_OfLength):
    """One trial, trained to its full length."""

    name: Literal["single"]


class RandomSearcher(_OfTrials):
    """Trials with hyperparameters drawn at random, each trained to its full length."""

    name: Literal["random"]


class GridSearcher(_OfLength):
    """Every point of a grid, each trained to its full length."""

    name: Literal["grid"]
    max_concurrent_trials: Count = 16
    """How many trials are at work at a time, 1,000 at most; 0: all, or what the rungs need."""


class _Halving(_Searcher):
    """What both ASHA searchers have.

    Training is measured by `max_length` (promotion, or rung by rung with `stop_once`), or by a
    metric that the validations report: `time_metric` up to `max_time` (stopping only).
    """

    max_length: PositiveLength | None = None
    """How long a trial trains at most; a bare number counts batches."""
    max_trials: TrialCount
    """How many trials there are in all."""
    max_concurrent_trials: Count = 16
    """How many trials are at work at a time, 1,000 at most; 0: all, or what the rungs need."""
    divisor: Divisor = 4
    """The best 1/divisor of the trials at each rung continue to the next."""
    stop_once: Bool = False
    """Judge a trial once per rung and stop it for good, instead of letting it rest."""
    time_metric: Title | None = None
    """Measure training by this validation metric (batches, records and epochs are known)."""
    max_time: PositiveInt | None = None
    """The time_metric at which the best trials end."""


class AsyncHalvingSearcher(_Halving):
    """One bracket of ASHA."""

    name: Literal["async_halving"]
    num_rungs: Rungs
    """At how many lengths trials are compared, the last included."""


class AdaptiveAshaSearcher(_Halving):
    """Several brackets of ASHA with different numbers of rungs."""

    name: Literal["adaptive_asha"]
    mode: Literal["standard", "aggressive", "conservative"] = "standard"
    """How early trials are stopped; conservative tries more kinds of brackets."""
    max_rungs: Rungs = 5
    """The most rungs that a bracket gets."""
    bracket_rungs: list[Rungs] = []
    """The rungs of each bracket, instead of what mode and max_rungs come to."""


class OptunaSearcher(_OfTrials):
    """Hyperparameters chosen by a sampler of Optuna; trials ended early by ASHA or a pruner.

    `pruner: asha` stops trials rung by rung (as `async_halving` with `stop_once` does) with
    `num_rungs` and `divisor`; `none` trains every trial to its full length; any other name is a
    pruner class of Optuna, which judges every validation.
    """

    name: Literal["optuna"]
    sampler: Text = "TPESampler"
    """Name of a sampler class of Optuna."""
    sampler_args: dict[str, Any] = {}
    """Keyword arguments of the sampler."""
    pruner: Text = "asha"
    """asha, none, or the name of a pruner class of Optuna."""
    pruner_args: dict[str, Any] = {}
    """Keyword arguments of the pruner."""
    num_rungs: Rungs = 3
    """At how many lengths trials are compared, the last included."""
    divisor: Divisor = 4
    """The best 1/divisor of the trials at each rung continue to the next."""


Searcher = Annotated[
    SingleSearcher
    | RandomSearcher
    | GridSearcher
    | AsyncHalvingSearcher
    | AdaptiveAshaSearcher
    | OptunaSearcher,
    Field(discriminator="name"),
]
