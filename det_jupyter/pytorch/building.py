"""Making a trial and its data, with every mistake in them told before training begins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.context import PyTorchTrialContext
from det_jupyter.pytorch.data import DataLoader
from det_jupyter.pytorch.rng import seed_everything
from det_jupyter.pytorch.trial import PyTorchTrial, check_searcher_metric, check_trial_class


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
    problems = [f"entrypoint: {problem}" for problem in check_trial_class(trial_class)]
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
