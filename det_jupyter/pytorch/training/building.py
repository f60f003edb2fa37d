"""Building a trial and its data loaders, and checking them before training, also across ranks.

Ranks that wrap different models would wait for each other in different collectives, forever. So
before training each rank sends a description of what it wrapped; if they differ, all ranks raise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

from torch import nn

from det_jupyter.contract.values.text import class_name
from det_jupyter.core import Context, DistributedContext
from det_jupyter.errors import ConfigError, Problem
from det_jupyter.pytorch.data import BatchStream, DataLoader
from det_jupyter.pytorch.messages import give_notice, warn_user
from det_jupyter.pytorch.parallel import unwrap
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
    """Seed all generators and build the trial; `metric` is the searcher metric, to be checked.

    Raises:
        ConfigError: The class cannot be trained, or wraps no model or optimizer.
    """
    found = check_trial_class(trial_class) + check_constructor(trial_class)
    problems = [Problem("entrypoint", problem) for problem in found]
    if not problems and metric is not None:
        problems = check_searcher_metric(trial_class, metric)
    if problems:
        raise ConfigError(problems)
    seed_everything(seed)
    trial = trial_class(context)
    check_wrapped(trial, context)
    return trial


def check_wrapped(trial: PyTorchTrial, context: PyTorchTrialContext) -> None:
    """Check that the trial has wrapped a model and an optimizer, or an engine.

    Raises:
        ConfigError: It has not.
    """
    name = type(trial).__name__
    problems = [
        f"entrypoint: {name}.__init__ has to call context.{method}"
        for method, items in context.has_to_wrap().items()
        if not items
    ]
    if problems:
        raise ConfigError(problems)


def build_loader(trial: PyTorchTrial, context: PyTorchTrialContext, method: str) -> Any:
    """Return the data loader that the trial's method `method` returns.

    Raises:
        ConfigError: The loader is no DataLoader, and the trial does not allow other loaders.
    """
    loader = getattr(trial, method)()
    if isinstance(loader, DataLoader) or (
        context.accepts_any_loader and isinstance(loader, Iterable)
    ):
        return loader
    raise ConfigError(
        f"{method}: returned a {class_name(type(loader))}, "
        "expected a det_jupyter.pytorch.DataLoader, which can be sharded and resumed "
        "(context.experimental.disable_dataset_reproducibility_checks() allows other loaders)"
    )


def warn_of_single_records(context: PyTorchTrialContext, stream: BatchStream) -> None:
    """Warn, on the chief, if a rank gets a single record of a pass's last batch with BatchNorm.

    BatchNorm raises an error for it, or computes statistics from it, at the end of the first pass.
    """
    if not context.distributed.is_chief or stream.smallest_share != 1:
        return
    layers = [
        f"{name} ({type(layer).__name__}) of model {index}"
        for index, model in enumerate(context.models)
        for name, layer in unwrap(model).named_modules()
        if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d))
    ]
    if layers:
        warn_user(
            "build_training_data_loader: the last batch of each pass is a short one, of which a "
            f"rank gets 1 record: too few for {layers[0]} to normalize, which fails ('Expected "
            "more than 1 value per channel') or learns statistics of a single record; pass "
            "drop_last=True to the DataLoader, or choose another global_batch_size"
        )


def note_few_records(core: Context, loader: object, global_batch_size: int) -> None:
    """Give a notice, on the chief, if a pass over the data has fewer records than a batch."""
    if not core.distributed.is_chief or not isinstance(loader, DataLoader):
        return
    order = loader.order
    records = None if order.batch_sampler is not None else order.length()
    if records and records < global_batch_size:
        give_notice(
            f"global_batch_size: {global_batch_size:,}, and the training data has "
            f"{records:,} records: each batch is a whole pass, and trains on {records:,}; "
            "a smaller one has more optimizer steps per epoch",
            core.distributed.rank,
            core.sink,
        )


_RULE = "all ranks have to build the same trial"


def check_agreement(context: PyTorchTrialContext) -> None:
    """Check that all ranks have wrapped the same objects. Collective, before training.

    Models are compared by the names, shapes and types of their parameters and buffers; optimizers
    and schedulers by class; reducers by name and phase. A model that only some ranks wrap is
    detected earlier: `torch.distributed` waits for the other ranks as it is wrapped.

    Raises:
        ConfigError: The ranks differ. Raised on all ranks, with all differences.
    """
    if context.distributed.size == 1:
        return
    texts = ["\n".join(_tensors(model)) for model in context.models]
    own_digests = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    by_rank = context.distributed.allgather((_wrapped_names(context), own_digests))
    problems = []
    for method, chiefs in by_rank[0][0].items():
        for rank, (wrapped, _) in enumerate(by_rank):
            if wrapped[method] != chiefs:
                first, other = (
                    ", ".join(names) or "nothing" for names in (chiefs, wrapped[method])
                )
                problems.append(
                    f"{method}: rank 0 has wrapped {first}, rank {rank} {other}; {_RULE}"
                )
                break
    digests = [digests for _, digests in by_rank]
    if len(set(map(len, digests))) == 1:
        for index, of_model in enumerate(zip(*digests, strict=True)):
            if len(set(of_model)) > 1:  # on all ranks
                problems += _compare_models(context.distributed, index, context.models[index])
    if problems:
        raise ConfigError(problems)


def _wrapped_names(context: PyTorchTrialContext) -> dict[str, list[str]]:
    """Return the classes that this rank has wrapped, by the method that wraps them."""
    return {
        "wrap_model": [type(unwrap(model)).__name__ for model in context.models],
        "wrap_optimizer": [type(optimizer).__name__ for optimizer in context.optimizers],
        "wrap_lr_scheduler": [type(item.scheduler).__name__ for item in context.lr_schedulers],
        "wrap_reducer": context.reducers.describe(),
    }


def _tensors(model: nn.Module) -> Iterator[str]:
    """Yield name, shape and type of each of the model's parameters and buffers."""
    own = unwrap(model)
    named: Any = [*own.named_parameters(), *own.named_buffers()]
    for name, tensor in named:
        yield f"{name} {list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _compare_models(distributed: DistributedContext, index: int, model: nn.Module) -> list[str]:
    """Return the first tensor of the model that differs between two ranks. Collective."""
    by_rank = distributed.allgather(list(_tensors(model)))
    differing = next(rank for rank, tensors in enumerate(by_rank) if tensors != by_rank[0])
    pairs = zip_longest(by_rank[0], by_rank[differing], fillvalue="nothing")
    first, other = next(pair for pair in pairs if pair[0] != pair[1])
    return [
        f"wrap_model: model {index} ({type(unwrap(model)).__name__}) has {first} on rank 0 where "
        f"it has {other} on rank {differing}; {_RULE}"
    ]
