"""Making a trial and its data, with every mistake in them told before training begins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import parallel
from det_jupyter.pytorch.data import BatchStream, DataLoader, smallest_share
from det_jupyter.pytorch.own_frames import warn_user
from det_jupyter.pytorch.rng import seed_everything
from det_jupyter.pytorch.trial.context import PyTorchTrialContext
from det_jupyter.pytorch.trial.definition import (
    PyTorchTrial,
    check_constructor,
    check_searcher_metric,
    check_trial_class,
)


def build_trial(
    trial_class: type[PyTorchTrial], context: PyTorchTrialContext, metric: str | None, seed: int
) -> PyTorchTrial:
    """Return the trial, made with all generators seeded.

    Args:
        trial_class: The user's class.
        context: What it gets.
        metric: The searcher's, if there is one.
        seed: The trial's.

    Raises:
        ConfigError: The class, or what it has wrapped, cannot be trained.
    """
    found = check_trial_class(trial_class) + check_constructor(trial_class)
    problems = [f"entrypoint: {problem}" for problem in found]
    if not problems and metric is not None:
        problems = check_searcher_metric(trial_class, metric)
    if problems:
        raise ConfigError(problems)
    seed_everything(seed)
    trial = trial_class(context)
    check_wrapped(trial, context)
    return trial


def check_wrapped(trial: PyTorchTrial, context: PyTorchTrialContext) -> None:
    """Check that the trial has wrapped what is to be trained.

    Raises:
        ConfigError: It has wrapped no model, or no optimizer.
    """
    name = type(trial).__name__
    wrapped = {"wrap_model": context.models, "wrap_optimizer": context.optimizers}
    problems = [
        f"entrypoint: {name}.__init__ has to call context.{method}"
        for method, things in wrapped.items()
        if not things
    ]
    if problems:
        raise ConfigError(problems)


def build_loader(trial: PyTorchTrial, context: PyTorchTrialContext, method: str) -> Any:
    """Return the data loader that the trial's method makes: a recipe, or whatever is allowed.

    Raises:
        ConfigError: It is something else.
    """
    loader = getattr(trial, method)()
    if isinstance(loader, DataLoader) or (
        context.accepts_any_loader and isinstance(loader, Iterable)
    ):
        return loader
    kind = type(loader)
    raise ConfigError(
        [
            f"{method}: returned a {kind.__module__}.{kind.__qualname__}, "
            "expected a det_jupyter.pytorch.DataLoader, which can be sharded and resumed "
            "(context.experimental.disable_dataset_reproducibility_checks() allows other loaders)"
        ]
    )


def warn_of_lonely_records(context: PyTorchTrialContext, stream: BatchStream) -> None:
    """Warn, on the chief, if the last batch of a pass leaves a rank a single record to normalize.

    BatchNorm refuses it, or learns its statistics from it, and only when the first pass ends.

    Args:
        context: Of the trial, which has wrapped its models.
        stream: Its training data.
    """
    if not context.distributed.is_chief or smallest_share(stream) != 1:
        return
    layers = [
        f"{name} ({type(layer).__name__}) of model {index}"
        for index, model in enumerate(context.models)
        for name, layer in parallel.unwrap(model).named_modules()
        if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d))
    ]
    if layers:
        warn_user(
            "build_training_data_loader: the last batch of each pass is a short one, of which a "
            f"rank gets 1 record: too few for {layers[0]} to normalize, which fails ('Expected "
            "more than 1 value per channel') or learns statistics of a single record; pass "
            "drop_last=True to the DataLoader, or choose another global_batch_size"
        )
