"""A validation: every rank evaluates its share, and all ranks get the metrics of the whole.

    share_buffers, eval mode, reducers reset
    on_validation_start
        on_validation_epoch_start                    unless evaluate_full_dataset
        per batch: evaluate_batch, on_validation_batch_end
        on_validation_epoch_end(outputs of this rank)
        the ranks' parts are combined                one collective; two with custom reducers
    on_validation_end(metrics)
    training mode, also after an error; reducers reset

Ranks may have different numbers of batches, also none. So there is no collective between the first
batch and the last, and no wait for the device.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import nn

from det_jupyter.core.together import run_on_chief, settle
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.data import BatchStream, DataLoader, Share, open_validation
from det_jupyter.pytorch.metrics.series import (
    MetricSeries,
    MetricWindow,
    as_json_metrics,
    as_metrics,
    check_same_names,
)
from det_jupyter.pytorch.parallel import gathered, share_buffers
from det_jupyter.pytorch.reducers.builtin_reducers import (
    MetricPart,
    reduce_batches,
    reduce_ranks,
    reducers_by_name,
)
from det_jupyter.pytorch.reducers.custom_reducers import Reducers
from det_jupyter.pytorch.trial.callback_runner import Callbacks
from det_jupyter.pytorch.trial.context import PyTorchTrialContext
from det_jupyter.pytorch.trial.definition import PyTorchTrial, length_function, overrides

# Each value on a GPU occupies half a kilobyte there; so only this many batches stay there.
_MAX_BATCHES_ON_DEVICE = 1024
_NO_DATA = "build_validation_data_loader: the validation data has no batches"


@dataclass(frozen=True, slots=True)
class _RankResult:
    """One rank's part of each metric, and the results of its custom reducers."""

    parts: dict[str, MetricPart]
    slot: list[bytes]


def validate(
    trial: PyTorchTrial,
    context: PyTorchTrialContext,
    loader: Any,
    stream: BatchStream | None,
    callbacks: Callbacks,
    *,
    limit: int | None = None,
    after_batch: Callable[[], object] = bool,
) -> dict[str, Any]:
    """Return the validation metrics, over all ranks' data. Collective.

    Args:
        trial: Has `evaluate_batch` or `evaluate_full_dataset`.
        context: Has the models and reducers, and the ranks.
        loader: A DataLoader, or another iterable of batches.
        stream: Returned by `open_stream` for this loader.
        callbacks: The trial's callbacks.
        limit: Most batches of this rank, for a trial that is only tried out.
        after_batch: Called after each batch.

    Raises:
        ConfigError: There is no validation data, the reducers do not fit the metrics, or the trial
            returned something else than metrics (a TrialMistake).
        PeerFailed: One of these errors, or one of `evaluate_full_dataset`, was raised on another
            rank.
    """
    reducers = context.reducers
    share_buffers(context.models)
    with _evaluating(context.models), gathered(context.models), torch.no_grad():
        reducers.reset("validation")
        callbacks.on_validation_start()
        if stream is None:
            metrics = _evaluate_whole(trial, context, loader)
        else:
            batches = islice(stream, limit)
            metrics = _evaluate_shares(trial, context, batches, callbacks, after_batch)
        reducers.reset("validation")  # reducers used in training too start again from empty
        callbacks.on_validation_end(metrics)
    return metrics


def check_validation(trial: PyTorchTrial, loader: Any) -> None:
    """Check, before the first batch is trained, what would make the first validation fail.

    Raises:
        ConfigError: The validation data has length 0, or `evaluation_reducer` returns no Reducer.
    """
    if overrides(type(trial), "evaluate_full_dataset"):
        return
    if isinstance(loader, DataLoader) and not loader.is_iterable and loader.order.length() == 0:
        raise ConfigError([_NO_DATA])
    chosen = trial.evaluation_reducer()
    reducers_by_name(chosen, list(chosen) if isinstance(chosen, Mapping) else [])


def open_stream(
    trial: PyTorchTrial, context: PyTorchTrialContext, loader: Any
) -> BatchStream | None:
    """Return this rank's batches; None for `evaluate_full_dataset`. Collective."""
    if overrides(type(trial), "evaluate_full_dataset"):
        return None
    return open_validation(
        loader,
        context.distributed,
        seed=context.get_trial_seed(),
        batch_length=trial.get_batch_length,
    )


def set_training(models: Sequence[nn.Module]) -> None:
    """Put all models into training mode."""
    for model in models:
        model.train()


@contextmanager
def _evaluating(models: Sequence[nn.Module]) -> Iterator[None]:
    for model in models:
        model.eval()
    try:
        yield
    finally:
        set_training(models)


def _evaluate_whole(
    trial: PyTorchTrial, context: PyTorchTrialContext, loader: Any
) -> dict[str, Any]:
    reducers = context.reducers

    def evaluate() -> dict[str, Any]:
        data = loader
        if isinstance(loader, DataLoader):
            data = loader.get_data_loader(seed=context.get_trial_seed())
        metrics = as_json_metrics("evaluate_full_dataset", trial.evaluate_full_dataset(data))
        slot = reducers.reduce_slots("validation")
        return {**metrics, **reducers.reduce_across([slot], "validation", taken=metrics)}

    return run_on_chief(context.distributed, evaluate)


def _evaluate_shares(
    trial: PyTorchTrial,
    context: PyTorchTrialContext,
    batches: Iterator[tuple[Any, Share]],
    callbacks: Callbacks,
    after_batch: Callable[[], object],
) -> dict[str, Any]:
    chosen, reducers = trial.evaluation_reducer(), context.reducers
    callbacks.on_validation_epoch_start()
    seen, outputs = _evaluate_batches(trial, context, batches, callbacks, after_batch)
    callbacks.on_validation_epoch_end(outputs)

    def combine(results: Sequence[_RankResult | None]) -> dict[str, Any]:
        by_rank = {rank: result for rank, result in enumerate(results) if result is not None}
        metrics = _combine(chosen, {rank: result.parts for rank, result in by_rank.items()})
        slots = [result.slot for result in by_rank.values()]
        return {**metrics, **reducers.reduce_across(slots, "validation", taken=metrics)}

    return settle(
        context.distributed,
        lambda: _rank_result(chosen, seen, reducers),
        combine,
        on_chief=reducers.any("validation"),
    )


def _evaluate_batches(
    trial: PyTorchTrial,
    context: PyTorchTrialContext,
    batches: Iterator[tuple[Any, Share]],
    callbacks: Callbacks,
    after_batch: Callable[[], object],
) -> tuple[MetricWindow, list[dict[str, Any]]]:
    """Evaluate this rank's batches; return their values, and outputs if a callback needs them."""
    rank = context.distributed.rank
    series, windows = MetricSeries("evaluate_batch", rank), list[MetricWindow]()
    outputs: list[dict[str, Any]] = []
    keeps_outputs = callbacks.overrides("on_validation_epoch_end")
    records_of = length_function(trial, "validation")
    evaluate = with_index(trial.evaluate_batch)
    for batch_idx, (host_batch, share) in enumerate(batches):
        records = records_of(host_batch, share, batch_idx) if records_of else share.records
        batch = context.to_device(host_batch) if context.moves_batches else host_batch
        metrics = as_metrics("evaluate_batch", evaluate(batch, batch_idx), batch_idx, rank)
        series.add(metrics, batch_idx, records)
        callbacks.on_validation_batch_end(metrics, batch_idx)
        if keeps_outputs:
            outputs.append(metrics)
        if len(series) == _MAX_BATCHES_ON_DEVICE:
            windows.append(series.take())
        after_batch()
    return MetricWindow.joined([*windows, series.take()]), outputs


def with_index(evaluate: Callable[..., Any]) -> Callable[[Any, int], Any]:
    """Return an `evaluate_batch` that takes an index; Determined's older form takes none."""
    try:
        inspect.signature(evaluate).bind(None, 0)
    except TypeError:
        return lambda batch, batch_idx: evaluate(batch)
    return evaluate


def _rank_result(chosen: Any, seen: MetricWindow, reducers: Reducers) -> _RankResult | None:
    """Return this rank's result; None if it had no batches."""
    records = seen.records_B.tolist()
    if not records:
        return None
    by_name = reducers_by_name(chosen, seen.names)
    parts = {
        name: reduce_batches(by_name[name], values, records)
        for name, values in zip(seen.names, seen.values_NB.tolist(), strict=True)
    }
    return _RankResult(parts, reducers.reduce_slots("validation"))


def _combine(chosen: Any, parts_by_rank: dict[int, dict[str, MetricPart]]) -> dict[str, Any]:
    """Return the metrics over all ranks. Gives the same result or error on each rank."""
    if not parts_by_rank:
        raise ConfigError([_NO_DATA])
    check_same_names(
        "evaluate_batch", {rank: list(parts) for rank, parts in parts_by_rank.items()}
    )
    names = list(next(iter(parts_by_rank.values())))
    by_name = reducers_by_name(chosen, names)
    return {
        name: reduce_ranks(by_name[name], [parts[name] for parts in parts_by_rank.values()])
        for name in names
    }
