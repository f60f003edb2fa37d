"""Making a trial and its data, with every mistake in them told before training begins."""

from __future__ import annotations

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.context import PyTorchTrialContext
from det_jupyter.pytorch.data import DataLoader
from det_jupyter.pytorch.rng import seed_everything
from det_jupyter.pytorch.trial import PyTorchTrial, check_searcher_metric, check_trial_class


def build_trial(
    trial_class: type[PyTorchTrial], context: PyTorchTrialContext, metric: str, seed: int
) -> PyTorchTrial:
    """Return the trial, made with all generators seeded.

    Args:
        trial_class: The user's class.
        context: What it gets.
        metric: The searcher's.
        seed: The trial's.

    Raises:
        ConfigError: The class, or what it has wrapped, cannot be trained.
    """
    problems = [f"entrypoint: {problem}" for problem in check_trial_class(trial_class)]
    if not problems:
        problems = check_searcher_metric(trial_class, metric)
    if problems:
        raise ConfigError(problems)
    seed_everything(seed)
    trial = trial_class(context)
    wrapped = {"wrap_model": context.models, "wrap_optimizer": context.optimizers}
    for method, things in wrapped.items():
        if not things:
            name = trial_class.__name__
            raise ConfigError([f"entrypoint: {name}.__init__ has to call context.{method}"])
    return trial


def build_recipe(trial: PyTorchTrial, method: str) -> DataLoader:
    """Return the recipe of a data loader that the trial's method makes.

    Raises:
        ConfigError: It is something else.
    """
    recipe = getattr(trial, method)()
    if not isinstance(recipe, DataLoader):
        kind = type(recipe)
        raise ConfigError(
            [
                f"{method}: returned a {kind.__module__}.{kind.__qualname__}, "
                "expected a det_jupyter.pytorch.DataLoader, which can be sharded and resumed"
            ]
        )
    return recipe
