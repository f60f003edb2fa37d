"""A validation: every rank evaluates its share, and all learn the metrics of the whole.

Ranks may have different numbers of batches, and none at all: nothing here is collective between
the first batch and the last.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.callbacks import PyTorchCallback
from det_jupyter.pytorch.context import PyTorchTrialContext
from det_jupyter.pytorch.data import DataLoader
from det_jupyter.pytorch.distributed_model import share_buffers
from det_jupyter.pytorch.metrics import MetricSeries, as_metrics
from det_jupyter.pytorch.mistakes import TrialMistake
from det_jupyter.pytorch.reducers import Reducer, reduce_batches, reduce_ranks
from det_jupyter.pytorch.trial import PyTorchTrial, overrides


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """What one rank found: over how many batches, and each metric reduced over them."""

    batches: int
    metrics: dict[str, float]


def validate(
    trial: PyTorchTrial,
    context: PyTorchTrialContext,
    recipe: DataLoader,
    callbacks: Sequence[PyTorchCallback],
) -> dict[str, float]:
    """Return the validation metrics, over all ranks' data. Collective.

    Raises:
        ConfigError: There is no validation data, or the reducers do not fit the metrics, or the
            metrics are none (a TrialMistake).
    """
    share_buffers(context.models)
    for model in context.models:
        model.eval()
    for callback in callbacks:
        callback.on_validation_start()
    with torch.no_grad():
        if overrides(type(trial), "evaluate_full_dataset"):
            metrics = _evaluate_whole(trial, context, recipe)
        else:
            metrics = _evaluate_shares(trial, context, recipe, callbacks)
    for callback in callbacks:
        callback.on_validation_end(metrics)
    set_training(context.models)
    return metrics


def set_training(models: Sequence[nn.Module]) -> None:
    """Put all models into training mode."""
    for model in models:
        model.train()


def _evaluate_whole(
    trial: PyTorchTrial, context: PyTorchTrialContext, recipe: DataLoader
) -> dict[str, float]:
    metrics: dict[str, float] = {}
    if context.distributed.is_chief:
        source = "evaluate_full_dataset"
        series = MetricSeries(source)
        loader = recipe.get_data_loader(seed=context.get_trial_seed())
        series.add(as_metrics(source, trial.evaluate_full_dataset(loader)), 0)
        values = series.take().flatten().tolist()
        metrics = dict(zip(series.names, values, strict=True))
    return context.distributed.broadcast(metrics)


def _evaluate_shares(
    trial: PyTorchTrial,
    context: PyTorchTrialContext,
    recipe: DataLoader,
    callbacks: Sequence[PyTorchCallback],
) -> dict[str, float]:
    distributed = context.distributed
    loader = recipe.get_data_loader(
        num_replicas=distributed.size, rank=distributed.rank, seed=context.get_trial_seed()
    )
    for callback in callbacks:
        callback.on_validation_epoch_start()
    series = MetricSeries("evaluate_batch")
    takes_index = len(inspect.signature(trial.evaluate_batch).parameters) > 1
    outputs = []
    for batch_idx, host_batch in enumerate(loader):
        batch = context.to_device(host_batch)
        returned = (
            trial.evaluate_batch(batch, batch_idx) if takes_index else trial.evaluate_batch(batch)  # type: ignore[call-arg]  # Determined's older form
        )
        metrics = as_metrics("evaluate_batch", returned)
        series.add(metrics, batch_idx)
        if callbacks:
            outputs.append(metrics)
    for callback in callbacks:
        callback.on_validation_epoch_end(outputs)
    reducers = trial.evaluation_reducer()
    return _combine(reducers, distributed.allgather(_share(reducers, series)))


def _share(reducers: Reducer | Mapping[str, Reducer], series: MetricSeries) -> _Share:
    batches = len(series)
    if batches == 0:
        return _Share(batches=0, metrics={})
    chosen = _reducers_by_name(reducers, series.names)
    rows = zip(series.names, series.take(), strict=True)
    metrics = {name: reduce_batches(chosen[name], row) for name, row in rows}
    return _Share(batches=batches, metrics=metrics)


def _combine(
    reducers: Reducer | Mapping[str, Reducer], shares: Sequence[_Share]
) -> dict[str, float]:
    """Return the metrics of all ranks' shares. Every rank comes to the same, or the same error."""
    by_rank = {rank: share for rank, share in enumerate(shares) if share.batches}
    if not by_rank:
        raise ConfigError(["build_validation_data_loader: the validation data has no batches"])
    first_rank, first = next(iter(by_rank.items()))
    for rank, share in by_rank.items():
        if share.metrics.keys() != first.metrics.keys():
            raise TrialMistake(
                "evaluate_batch",
                f"evaluate_batch: rank {rank} returns {', '.join(share.metrics)}, "
                f"rank {first_rank} {', '.join(first.metrics)}; "
                "all ranks have to return the same metrics",
            )
    chosen = _reducers_by_name(reducers, list(first.metrics))
    batches = [share.batches for share in by_rank.values()]
    return {
        name: reduce_ranks(
            chosen[name], [share.metrics[name] for share in by_rank.values()], batches
        )
        for name in first.metrics
    }


def _reducers_by_name(
    reducers: Reducer | Mapping[str, Reducer], names: list[str]
) -> dict[str, Reducer]:
    if isinstance(reducers, Reducer):
        return dict.fromkeys(names, reducers)
    if not isinstance(reducers, Mapping) or sorted(reducers) != sorted(names):
        raise ConfigError(
            [
                f"evaluation_reducer: got {reducers!r}, expected a Reducer, "
                f"or a dict with one for each of {', '.join(names)}"
            ]
        )
    for name, reducer in reducers.items():
        if not isinstance(reducer, Reducer):
            raise ConfigError(
                [f"evaluation_reducer: got {reducer!r} for {name!r}, expected a Reducer"]
            )
    return dict(reducers)
