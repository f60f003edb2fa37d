"""TrainingArguments of transformers: made from hyperparameters, and checked for a trial."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from transformers import TrainingArguments

from det_jupyter import core
from det_jupyter.errors import ConfigError, DetError, Problem
from det_jupyter.integrations.common import find_size_problem


def training_arguments(hparams: Mapping[str, Any], **fixed: Any) -> TrainingArguments:
    """Return TrainingArguments with hyperparameters and fixed arguments, by their names.

    In a trial, `seed` defaults to the trial's, and `use_cpu` to true if its ranks have no GPUs.
    The states of callbacks are restored after a pause.

    Args:
        hparams: Hyperparameters, all of which are arguments of TrainingArguments.
        fixed: Other arguments.

    Raises:
        ConfigError: A name is no argument, or is given twice; all of them are in the message.
    """
    if problems := find_name_problems(hparams, fixed):
        raise ConfigError(problems)
    return TrainingArguments(**{**_defaults(), **hparams, **fixed})


def find_name_problems(hparams: Iterable[str], fixed: Iterable[str]) -> list[Problem]:
    """Return what is wrong with the names of hyperparameters and fixed arguments."""
    hparams, fixed = set(hparams), set(fixed)
    names = {each.name for each in dataclasses.fields(TrainingArguments) if each.init}
    problems = []
    for name in sorted(hparams | fixed):
        if name in hparams & fixed:
            text = "is an argument of training_arguments(...) too; give one of them"
        elif name not in names:
            close = difflib.get_close_matches(name, names, 3)
            meant = f"; did you mean {' or '.join(close)}?" if close else ""
            text = f"TrainingArguments has no such argument{meant}"
            if name in hparams:
                begin = " If" if close else "; if"
                text += f"{begin} it is yours, take it out before: hparams.pop({name!r})"
        else:
            continue
        place = "hyperparameters" if name in hparams else "training_arguments"
        problems.append(Problem(f"{place}.{name}", text))
    return problems


def _defaults() -> dict[str, Any]:
    info = core.get_cluster_info()
    if info is None:
        return {}
    return {
        "seed": info.trial_seed,
        "use_cpu": info.device.type == "cpu",
        "disable_tqdm": True,
        "restore_callback_states_from_checkpoint": True,
    }


def check_arguments(args: TrainingArguments, size: int) -> None:
    """Check that a Trainer with these arguments can train a trial of `size` ranks.

    Raises:
        DetError: The Trainer cannot train it.
    """
    problems = []
    for_cpu = "TrainingArguments(use_cpu=True)"
    if problem := find_size_problem("Trainer", args.world_size, size, args.device, for_cpu):
        problems.append(problem)
    if args.n_gpu > 1:
        problems.append(
            f"the Trainer has {args.n_gpu} GPUs in one process; write resources: "
            f"{{slots_per_trial: {args.n_gpu}}}, which starts a process for each"
        )
    if args.save_strategy == "best":
        problems.append(
            "save_strategy is best, and a paused trial needs its last state; write epoch or "
            "steps: experiment.best_checkpoint() is the best"
        )
    if args.save_only_model:
        problems.append(
            "save_only_model is set, and a paused trial needs more than its model; leave it out"
        )
    if problems:
        raise DetError("\n".join(f"DetCallback: {problem}" for problem in problems))
