"""Puts questions to Optuna's samplers and pruners.

A study in memory (optuna_study.py) stands for each search that asks. It is updated at every call,
and made anew from the trials when it is not there: after a restart of the master, or when
the space was narrowed. Nothing of it is stored. What a restart in the middle changes:

    random, TPE, GP, brute force, QMC      no sample
    CMA-ES, NSGA-II, NSGA-III              no sample, unless a trial ended in the milliseconds in
                                           which another one was chosen: that trial may count for
                                           another generation then
    pruners                                no decision, but for successive halving and Hyperband:
                                           in what order trials reported is not known any more

Questions come one at a time; configurations may be checked in other threads meanwhile. What Optuna
logs and warns of is not shown.
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

_MOST_STUDIES = 8  # in memory; others are made anew when they are asked again
_NUM_REHEARSED = 12  # most samplers begin to think after the tenth trial


class Samplers:
    """The samplers and pruners of all searches that have questions."""

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
            experiment_id: Whose study it is.
            index: The trial's place; the trials before it are `history`.
            history: The experiment's trials in the order of their indices.

        Raises:
            Exception: Whatever Optuna, or a library that it uses, raises.
        """
        if index < len(history):  # asked twice, around a restart: it was answered
            return dict(history[index].hparams)
        assert index == len(history), "trials are sampled in their order"
        with quiet:
            return self._study_of(experiment_id, config, history).ask()

    def judge(
        self,
        experiment_id: int,
        config: Mapping[str, Any],
        index: int,
        history: Sequence[TrialHistory],
    ) -> bool:
        """Return whether the pruner wants to end a trial; arguments and errors as of `sample`."""
        with quiet:
            return self._study_of(experiment_id, config, history).should_prune(index)

    def _study_of(
        self, experiment_id: int, config: Mapping[str, Any], history: Sequence[TrialHistory]
    ) -> OptunaStudy:
        # It is taken out while it is updated: if that fails, the next question makes a new one.
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
    """Refuse what Optuna would not do; in another thread, as importing it takes a while."""
    if isinstance(config.searcher, OptunaSearcher):
        problems = await asyncio.to_thread(find_problems, config.searcher, config.hyperparameters)
        if problems:
            raise ConfigError(problems)


def find_problems(searcher: OptunaSearcher, hyperparameters: Mapping[str, Any]) -> list[Problem]:
    """Return everything that Optuna would not do with this space, valid by itself.

    Imports Optuna and tries the sampler out, without training anything: that takes a moment.
    """
    with quiet:
        problems = _find_name_problems(searcher)
        return problems or list(_rehearse(searcher, hyperparameters))


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


def _rehearse(searcher: OptunaSearcher, hyperparameters: Mapping[str, Any]) -> Iterator[Problem]:
    """Try whether sampler and pruner work with this space and these arguments."""
    # A Gaussian process imports torch when it begins to think, and thinks for seconds.
    is_slow = find_name(SAMPLER, searcher.sampler) == "GPSampler"
    config = {
        "searcher": searcher.model_dump(),
        "hyperparameters": hyperparameters,
        "reproducibility": {"experiment_seed": 0},
    }
    history: list[TrialHistory] = []
    who, name = "pruner", searcher.pruner
    try:
        study = OptunaStudy(config)
        for index in range(2 if is_slow else _NUM_REHEARSED):
            who, name = "sampler", searcher.sampler
            history.append(_rehearsed(index, study.ask()))
            study.update(history)
            who, name = "pruner", searcher.pruner
            study.should_prune(index)
            history[index] = replace(history[index], state="complete")
            study.update(history)
    except Exception as error:  # whatever Optuna raises about the user's arguments
        yield Problem(f"searcher.{who}_args", f"{name} refuses: {error_text(error)}")


def _rehearsed(index: int, hparams: dict[str, Any]) -> TrialHistory:
    value = 1 / (index + 1)
    return TrialHistory(
        index=index, hparams=hparams, state="running", value=value, reports=[(1, value)]
    )


class _Quiet:
    """Keeps Optuna from writing to the master's output while a question is being answered.

    A new sampler for every question would say everything at every question. What is switched off
    belongs to the whole process, so the last one out puts it back.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._restore = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._restore.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
                self._restore.callback(_switch_logging_off())
            self._inside += 1

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._restore.close()


def _switch_logging_off() -> Callable[[], None]:
    """Return what switches it on again as it was."""
    try:
        from optuna import logging
    except ImportError:
        return lambda: None
    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    return lambda: logging.set_verbosity(before)


quiet = _Quiet()
