"""One study of Optuna, in memory, built from the trials of a search.

For every query a new sampler is constructed, seeded by the experiment's seed and the trial's
index, so its random numbers do not depend on earlier samples. It uses all trials, also running
ones:

    a metric that is not a number       counts as the worst value, as with ASHA
    a trial that failed                 does not affect sampling
    a trial outside a narrowed space    does not affect sampling either

Some samplers and pruners also store state in the study at each trial: CMA-ES and NSGA-II their
population and generation, QMC its position in the sequence, successive halving its rungs. `replay`
rebuilds it: it repeats all queries, each after the trials that had ended before it.

The number of a trial in the study is its index in the experiment.
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
    keeps_state,
    make,
)
from det_jupyter.searcher.optuna import OptunaSearcher
from det_jupyter.searcher.optuna_space import find_dimensions, to_hparams, to_params

_NAME = "search"  # name of the study, from which Hyperband derives brackets
# Private attributes in which samplers cache the intersection of the search spaces of all trials. A
# new sampler would compute it again, which takes most of the time of a query from some hundred
# trials on. If another version of Optuna names them differently, queries only take longer.
_SPACES = ("_search_space", "_intersection_search_space")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialHistory:
    """The data of a trial that samplers and pruners use; `pruned`: the search stopped it early."""

    index: int  # within the experiment, from 0
    hparams: dict[str, Any]
    state: Literal["running", "complete", "pruned", "failed"]
    value: float | None = None  # the searcher metric, as last reported
    reports: Sequence[tuple[int, float]] = ()  # at validations: (batches, metric), ascending
    created_at: float = 0.0  # when its hyperparameters were sampled
    ended_at: float | None = None  # None: it is not over, or the time is not stored


@dataclass(slots=True)
class _Entry:
    """A trial as it was added to the study."""

    trial_id: int
    is_over: bool = False
    reports: dict[int, float] = field(default_factory=dict)
    # On the last report; a pruner with state must get each report once.
    verdict: bool | None = None


class OptunaStudy:
    """A study that mirrors a search. Optuna must be installed."""

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
        """Return whether the study can be updated: same search space, and no trial was lost."""
        is_same_space: bool = self._hyperparameters == config["hyperparameters"]
        return is_same_space and len(self._entries) <= len(history)

    def ask(self) -> dict[str, Any]:
        """Sample hyperparameters for the next trial, and add it as a running one."""
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
        """Return whether the pruner decides to end a trial."""
        entry = self._entries[index]
        if entry.is_over:
            return False
        if entry.verdict is None:
            trial = self._storage.get_trial(entry.trial_id)
            entry.verdict = bool(self._study.pruner.prune(self._study, trial))
        return entry.verdict

    def update(self, history: Sequence[TrialHistory]) -> None:
        """Add new trials and reports."""
        for past in history:
            if past.index == len(self._entries):
                self._add(past)
            self._report(past)

    def replay(self, history: Sequence[TrialHistory]) -> None:
        """Add all trials to a new study, and rebuild the state of its sampler and pruner."""
        repeat_sampling = keeps_state(self._make_sampler(0))
        ended = sorted((past for past in history if _is_over(past)), key=_ended_at)
        num_reported = 0
        for past in history:
            while num_reported < len(ended) and _ended_at(ended[num_reported]) <= past.created_at:
                self._report(ended[num_reported], repeat_pruning=True)
                num_reported += 1
            self._add(past, repeat_sampling=repeat_sampling)
        for past in history:
            self._report(past, repeat_pruning=True)

    def _add(self, past: TrialHistory, *, repeat_sampling: bool = False) -> None:
        """Add a running trial with its hyperparameters."""
        params = to_params(self._hyperparameters, past.hparams)
        state = self._optuna.trial.TrialState
        if params is not None and repeat_sampling:
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

    def _report(self, past: TrialHistory, *, repeat_pruning: bool = False) -> None:
        """Add a trial's new reports, and its end if it is over."""
        entry = self._entries[past.index]
        if entry.is_over:
            return
        repeat_pruning = repeat_pruning and keeps_state(self._study.pruner)
        for step, metric in past.reports:
            if entry.reports.get(step) != metric:  # new, or reported again after a restart
                entry.reports[step] = metric
                entry.verdict = None
                self._storage.set_trial_intermediate_value(entry.trial_id, step, metric)
                if repeat_pruning:
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
