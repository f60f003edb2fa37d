"""`try_out`: trains a few batches of a trial in this process, for debugging."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from det_jupyter import core
from det_jupyter.config import ExperimentConfig, Length
from det_jupyter.pytorch.rules import RunRules, RunStart
from det_jupyter.pytorch.training.building import build_trial
from det_jupyter.pytorch.training.init import init_context
from det_jupyter.pytorch.training.trainer import Trainer
from det_jupyter.pytorch.trial.definition import PyTorchTrial, context_class


def try_out(
    trial_class: type[PyTorchTrial],
    config: ExperimentConfig,
    hparams: Mapping[str, Any],
    *,
    batches: int = 5,
) -> PyTorchTrial:
    """Train a few batches on one rank, evaluate as many, save a checkpoint, and return the trial.

    It trains like an experiment on one slot. The checkpoint is only a test, and is removed at the
    end.

    Args:
        trial_class: The user's class.
        config: The experiment's configuration.
        hparams: The trial's hyperparameters.
        batches: How many batches to train, and to evaluate.

    Raises:
        ConfigError: The trial or its configuration is wrong.
    """
    __tracebackhide__ = True  # IPython omits this frame from tracebacks
    began = time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="det-local-") as folder,
        init_context(
            context_class(trial_class),
            hparams,
            config.to_document(),
            distributed=core.DistributedContext(),
            seed=None,
            checkpoint_storage=folder,
        ) as context,
    ):
        seed = context.get_trial_seed()
        trial = build_trial(trial_class, context, config.searcher.metric, seed)
        rules = RunRules(
            length=Length("batches", batches),
            reporting=Length("batches", 1),
            metric=config.searcher.metric,
            needs_metric=config.searcher.name == "single",
            validation_batches=batches,
            on_nan_loss=config.on_nan_loss,
        )
        Trainer(trial, context).run(rules, RunStart(seed=seed), is_kept=False)
    seconds = time.perf_counter() - began
    sys.stdout.write(
        f"{batches} batches, their validation and a checkpoint worked in {seconds:.1f} s on "
        f"{context.device}; {trial_class.__name__} is returned as it is now\n"
    )
    return trial
