"""Queries Optuna's samplers and pruners, and checks whether Optuna accepts a configuration.

Each search that uses Optuna has a study in memory (optuna_study.py). It is updated at every query,
and rebuilt from the trials if it does not exist: after a restart of the master, or when the search
space was narrowed. It is not stored. A restart in the middle of a search changes:

    random, TPE, GP, brute force, QMC      no sample
    CMA-ES, NSGA-II, NSGA-III              no sample, unless a trial ended in the milliseconds in
                                           which another one was sampled: it may then count for
                                           another generation
    pruners                                no decision, except for successive halving and
                                           Hyperband: the order in which trials reported is lost

Queries are made one at a time; meanwhile, configurations may be checked in other threads. Log
messages and warnings of Optuna are suppressed.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from threading import Lock
from typing import Any

from det_jupyter.config import ExperimentConfig
from det_jupyter.contract.values.text import error_text
from det_jupyter.errors import ConfigError, Problem
from det_jupyter.master.sampling.optuna_classes import (
    PRUNER,
    SAMPLER,
    find_missing_optuna,
    find_name,
    find_part_problems,
)
from det_jupyter.master.sampling.optuna_study import OptunaStudy, TrialHistory
from det_jupyter.searcher.optuna import OptunaSearcher

_MOST_STUDIES = 8  # most studies kept in memory; others are rebuilt when they are queried
_NUM_TRIED = 12  # simulated trials; most samplers sample at random before the tenth


class Samplers:
    """The samplers and pruners of all searches that use Optuna. Not thread-safe."""

    def __init__(self) -> None:
        self._studies: dict[int, OptunaStudy] = {}

    def sample(
        self,
        experiment_id: int,
        config: Mapping[str, Any],
        index: int,
        history: Sequence[TrialHistory],
    ) -> dict[str, Any]:
        """Return hyperparameters for a trial.

        Args:
            experiment_id: The experiment.
            config: Its configuration.
            index: The trial's index.
            history: The experiment's other trials, in the order of their indices.

        Raises:
            Exception: Any error of Optuna, or of a library that it uses.
        """
        if index < len(history):  # a query that was answered before, repeated after a restart
            return dict(history[index].hparams)
        assert index == len(history), "trials are sampled in the order of their indices"
        with quiet:
            return self._study_of(experiment_id, config, history).ask()

    def judge(
        self,
        experiment_id: int,
        config: Mapping[str, Any],
        index: int,
        history: Sequence[TrialHistory],
    ) -> bool:
        """Return whether the pruner ends a trial; arguments and errors are as in `sample`."""
        with quiet:
            return self._study_of(experiment_id, config, history).should_prune(index)

    def _study_of(
        self, experiment_id: int, config: Mapping[str, Any], history: Sequence[TrialHistory]
    ) -> OptunaStudy:
        # Removed while it is updated: if that fails, the next query builds a new one.
        study = self._studies.pop(experiment_id, None)
        if study is not None and study.fits(config, history):
            study.update(history)
        else:
            study = OptunaStudy(config)
            study.replay(history)
        self._studies[experiment_id] = study
        if len(self._studies) > _MOST_STUDIES:
            del self._studies[next(iter(self._studies))]
        return study


async def check_sampler(config: ExperimentConfig) -> None:
    """Check in a thread that Optuna accepts a configuration, if it uses Optuna.

    Raises:
        ConfigError: Optuna does not accept it; the error has all problems.
    """
    if isinstance(config.searcher, OptunaSearcher):
        problems = await asyncio.to_thread(find_problems, config.searcher, config.hyperparameters)
        if problems:
            raise ConfigError(problems)


def find_problems(searcher: OptunaSearcher, hyperparameters: Mapping[str, Any]) -> list[Problem]:
    """Return all problems of a search that Optuna finds; `hyperparameters` are otherwise valid.

    Imports Optuna and runs the sampler on simulated trials, which takes a moment.
    """
    with quiet:
        problems = _find_name_problems(searcher)
        return problems or list(_try_out(searcher, hyperparameters))


def _find_name_problems(searcher: OptunaSearcher) -> list[Problem]:
    if missing := find_missing_optuna():
        return [missing]
    paths = ("searcher.sampler", "searcher.sampler_args")
    problems = [*find_part_problems(SAMPLER, searcher.sampler, searcher.sampler_args, *paths)]
    args = searcher.pruner_args
    match searcher.pruner:
        case "asha" if args:
            problems.append(
                Problem("searcher.pruner_args", "asha has num_rungs and divisor instead")
            )
        case "none" if args:
            problems.append(
                Problem("searcher.pruner_args", "there is no pruner to take them; remove them")
            )
        case "asha" | "none":
            pass
        case name:
            paths = ("searcher.pruner", "searcher.pruner_args")
            problems += find_part_problems(PRUNER, name, args, *paths)
    return problems


def _try_out(searcher: OptunaSearcher, hyperparameters: Mapping[str, Any]) -> Iterator[Problem]:
    """Run sampler and pruner on simulated trials, and yield the error that they raise, if any."""
    # After random trials, a Gaussian process imports torch and computes for seconds.
    is_slow = find_name(SAMPLER, searcher.sampler) == "GPSampler"
    config = {
        "searcher": searcher.model_dump(),
        "hyperparameters": hyperparameters,
        "reproducibility": {"experiment_seed": 0},
    }
    history: list[TrialHistory] = []
    key, name = "pruner", searcher.pruner
    try:
        study = OptunaStudy(config)
        for index in range(2 if is_slow else _NUM_TRIED):
            key, name = "sampler", searcher.sampler
            value = float(index)
            trial = TrialHistory(
                index=index,
                hparams=study.ask(),
                state="running",
                value=value,
                reports=[(1, value)],
            )
            history.append(trial)
            study.update(history)
            key, name = "pruner", searcher.pruner
            study.should_prune(index)
            history[index] = replace(trial, state="complete")
            study.update(history)
    except Exception as error:  # any error that Optuna raises about the user's arguments
        yield Problem(f"searcher.{key}_args", f"{name} refuses: {error_text(error)}")


class _Quiet:
    """Context manager that suppresses Optuna's log messages and warnings.

    A new sampler is created for every query, and each would repeat its warnings. Warning filters
    and log levels belong to the whole process, so the last thread that leaves restores them.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._num_inside = 0
        self._restore = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if not self._num_inside:
                self._restore.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
                self._restore.callback(_silence_logging())
            self._num_inside += 1

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._num_inside -= 1
            if not self._num_inside:
                self._restore.close()


def _silence_logging() -> Callable[[], None]:
    """Silence Optuna's logger; return a function that restores its level."""
    try:
        from optuna import logging
    except ImportError:
        return lambda: None
    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    return lambda: logging.set_verbosity(before)


quiet = _Quiet()
