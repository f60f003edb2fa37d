"""One study of Optuna, in memory, made of the trials of a search.

A new sampler is made for every question, seeded by the experiment's seed and the trial's index, so
that what it draws does not depend on what was drawn before. What it goes by are the trials, those
that are at work included:

    metric          no number: the worst there is; as with ASHA
    failed          tells nothing of its hyperparameters
    narrowed space  a trial that is not in it any more tells nothing either

Some samplers and pruners write notes at each trial besides: CMA-ES and NSGA-II their population
and generation, QMC its place in the sequence, successive halving the rungs. `replay` makes them
again: it asks all the questions again, each when the trials were over that were over then.

Numbers of trials in the study are their indices in the experiment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from det_jupyter.contract.schema.seeds import trial_seed
from det_jupyter.contract.values.direction import Direction
from det_jupyter.contract.values.json_numbers import to_finite
from det_jupyter.master.sampling.optuna_classes import (
    PRUNER,
    SAMPLER,
    distribution_of,
    find_name,
    make,
    writes_notes,
)
from det_jupyter.searcher.optuna import OptunaSearcher
from det_jupyter.searcher.optuna_space import find_dimensions, to_hparams, to_params

_NAME = "search"  # Hyperband goes by it
# Where samplers remember the trials whose spaces they have compared. A new one would compare all
# again: most of the time of a question, from some hundred trials on. Should Optuna call them
# otherwise some day, questions only take longer.
_SPACES = ("_search_space", "_intersection_search_space")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialHistory:
    """What became of one trial so far; one that was `pruned` was ended early by the search."""

    index: int  # its place within the experiment, from 0
    hparams: dict[str, Any]
    state: Literal["running", "complete", "pruned", "failed"]
    value: float | None = None  # the searcher metric as it was last reported
    reports: Sequence[tuple[int, float]] = ()  # at validations: (batches, metric), ascending
    created_at: float = 0.0  # when its hyperparameters were chosen
    ended_at: float | None = None  # None: it is not over, or the time is not known


@dataclass(slots=True)
class _Entry:
    """What the study has of a trial."""

    trial_id: int
    is_over: bool = False
    reports: dict[int, float] = field(default_factory=dict)
    verdict: bool | None = None  # on the last report; a pruner with notes has to see each once


class OptunaStudy:
    """A study that follows a search. Optuna has to be installed."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        import optuna

        self._optuna = optuna
        self._searcher = OptunaSearcher.model_validate(config["searcher"])
        self._direction = Direction.of(smaller_is_better=self._searcher.smaller_is_better)
        self._seed = int(config["reproducibility"]["experiment_seed"])
        self._hyperparameters = config["hyperparameters"]
        self._distributions = {
            dimension.name: distribution_of(dimension)
            for dimension in find_dimensions(self._hyperparameters)
        }
        self._storage = optuna.storages.InMemoryStorage()
        self._study = optuna.create_study(
            storage=self._storage,
            study_name=_NAME,
            direction=self._direction.value,
            pruner=self._make_pruner(),
        )
        self._entries: list[_Entry] = []

    def _make_pruner(self) -> Any:
        if self._searcher.pruner in PRUNER.ours:
            return self._optuna.pruners.NopPruner()
        return make(PRUNER, self._searcher.pruner, self._searcher.pruner_args)

    def fits(self, config: Mapping[str, Any], history: Sequence[TrialHistory]) -> bool:
        """Return whether `update` suffices: the space is as it was, and no answer was lost."""
        is_same_space: bool = self._hyperparameters == config["hyperparameters"]
        return is_same_space and len(self._entries) <= len(history)

    def ask(self) -> dict[str, Any]:
        """Return hyperparameters for the next trial, which is at work from now on."""
        index = len(self._entries)
        self._study.sampler = self._make_sampler(index)
        trial = self._study.ask(self._distributions)
        self._entries.append(_Entry(self._find_id(index)))
        return to_hparams(self._hyperparameters, trial.params)

    def _make_sampler(self, index: int) -> Any:
        sampler = make(
            SAMPLER,
            self._searcher.sampler,
            self._searcher.sampler_args,
            seed=trial_seed(self._seed, index),
            search_seed=self._seed,
        )
        last = self._study.sampler
        for name in _SPACES:
            if type(sampler) is type(last) and hasattr(last, name):
                setattr(sampler, name, getattr(last, name))
        return sampler

    def should_prune(self, index: int) -> bool:
        """Return whether the pruner wants to end a trial."""
        entry = self._entries[index]
        if entry.is_over:
            return False
        if entry.verdict is None:
            trial = self._storage.get_trial(entry.trial_id)
            entry.verdict = bool(self._study.pruner.prune(self._study, trial))
        return entry.verdict

    def update(self, history: Sequence[TrialHistory]) -> None:
        """Take note of what is new."""
        for past in history:
            if past.index == len(self._entries):
                self._add(past)
            self._tell(past)

    def replay(self, history: Sequence[TrialHistory]) -> None:
        """Take note of everything, in a study that is new."""
        is_asked_again = writes_notes(find_name(SAMPLER, self._searcher.sampler) or "")
        ended = sorted((past for past in history if _is_over(past)), key=_ended_at)
        num_told = 0
        for past in history:
            while num_told < len(ended) and _ended_at(ended[num_told]) <= past.created_at:
                self._tell(ended[num_told], is_judged_again=True)
                num_told += 1
            self._add(past, is_asked_again=is_asked_again)
        for past in history:
            self._tell(past, is_judged_again=True)

    def _add(self, past: TrialHistory, *, is_asked_again: bool = False) -> None:
        """Enter a trial that is at work with the hyperparameters that it has."""
        params = to_params(self._hyperparameters, past.hparams)
        state = self._optuna.trial.TrialState
        if params is not None and is_asked_again:
            self.ask()
            trial_id = self._entries[-1].trial_id
            for name, distribution in self._distributions.items():
                number = distribution.to_internal_repr(params[name])
                self._storage.set_trial_param(trial_id, name, number, distribution)
            return
        self._study.add_trial(
            self._optuna.trial.create_trial(state=state.FAIL)
            if params is None
            else self._optuna.trial.create_trial(
                state=state.RUNNING, params=params, distributions=self._distributions
            )
        )
        index = len(self._entries)
        self._entries.append(_Entry(self._find_id(index), is_over=params is None))

    def _find_id(self, index: int) -> int:
        study_id = self._storage.get_study_id_from_name(_NAME)
        return self._storage.get_trial_id_from_study_id_trial_number(study_id, index)

    def _tell(self, past: TrialHistory, *, is_judged_again: bool = False) -> None:
        entry = self._entries[past.index]
        if entry.is_over:
            return
        is_judged_again = is_judged_again and writes_notes(type(self._study.pruner).__name__)
        for step, metric in past.reports:
            if entry.reports.get(step) != metric:  # a trial that was set back reports again
                entry.reports[step] = metric
                entry.verdict = None
                self._storage.set_trial_intermediate_value(entry.trial_id, step, metric)
                if is_judged_again:
                    self.should_prune(past.index)
        if not _is_over(past):
            return
        entry.is_over = True
        states = self._optuna.trial.TrialState
        if past.state == "complete":
            number = to_finite(past.value)
            value = self._direction.worst if number is None else number
            self._study.tell(past.index, value, states.COMPLETE)
        else:
            state = states.PRUNED if past.state == "pruned" else states.FAIL
            self._study.tell(past.index, state=state)


def _is_over(past: TrialHistory) -> bool:
    return past.state != "running"


def _ended_at(past: TrialHistory) -> float:
    return past.created_at if past.ended_at is None else past.ended_at
