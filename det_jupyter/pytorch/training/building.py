"""Building a trial and its data loaders, and checking them before training, over all ranks too.

Ranks that wrap different things would wait for each other in different collectives, forever. So
before training each rank sends a description of what it wrapped; if they differ, all ranks raise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from torch import nn

from det_jupyter.contract.values.text import class_name
from det_jupyter.core import DistributedContext
from det_jupyter.errors import ConfigError, Problem
from det_jupyter.pytorch import parallel
from det_jupyter.pytorch.data import BatchStream, DataLoader
from det_jupyter.pytorch.messages import warn_user
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
    """Return the trial, made with all generators seeded; `metric` is the searcher's.

    Raises:
        ConfigError: The class, or what it has wrapped, cannot be trained.
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
    """Return the data loader that the trial's method `method` returns.

    Raises:
        ConfigError: It is no DataLoader, and the trial does not allow other loaders.
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


def warn_of_lonely_records(context: PyTorchTrialContext, stream: BatchStream) -> None:
    """Warn, on the chief, if the last batch of a pass leaves a rank a single record to normalize.

    BatchNorm refuses it, or learns its statistics from it, and only when the first pass ends.
    """
    if not context.distributed.is_chief or stream.smallest_share != 1:
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


_RULE = "all ranks have to build the same trial"


def check_agreement(context: PyTorchTrialContext) -> None:
    """Check that all ranks have wrapped the same. Collective, before training; one rank: free.

    Models and their parameters and buffers by name, shape and type; optimizers and schedulers by
    class; reducers by name and phase. A model wrapped by one rank only is found by
    `torch.distributed` as it is wrapped, which waits for the others.

    Raises:
        ConfigError: They differ; on all ranks, with all that does.
    """
    if context.distributed.size == 1:
        return
    by_rank = context.distributed.allgather((_wrapped(context), _digests(context)))
    problems = []
    for method in by_rank[0][0]:
        problems += _differing(method, [wrapped[method] for wrapped, _ in by_rank])
    digests = [digests for _, digests in by_rank]
    if len(set(map(len, digests))) == 1:
        for index, of_model in enumerate(zip(*digests, strict=True)):
            if len(set(of_model)) > 1:  # on all ranks
                problems += _compare_models(context.distributed, index, context.models[index])
    if problems:
        raise ConfigError(problems)


def _wrapped(context: PyTorchTrialContext) -> dict[str, list[str]]:
    """Return what this rank has wrapped, by the method that did."""
    return {
        "wrap_model": [type(unwrap(model)).__name__ for model in context.models],
        "wrap_optimizer": [type(optimizer).__name__ for optimizer in context.optimizers],
        "wrap_lr_scheduler": [type(item.scheduler).__name__ for item in context.lr_schedulers],
        "wrap_reducer": context.reducers.describe(),
    }


def _digests(context: PyTorchTrialContext) -> list[str]:
    """Return one of each model's tensors."""
    texts = ["\n".join(_tensors(model)) for model in context.models]
    return [hashlib.sha256(text.encode()).hexdigest() for text in texts]


def _tensors(model: nn.Module) -> Iterator[str]:
    """Yield name, shape and type of everything that the ranks exchange of the model."""
    own = unwrap(model)
    named: Any = [*own.named_parameters(), *own.named_buffers()]
    for name, tensor in named:
        yield f"{name} {list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _differing(method: str, by_rank: Sequence[list[str]]) -> list[str]:
    """Return a problem if the ranks have not called the method for the same things."""
    odd = next((rank for rank, things in enumerate(by_rank) if things != by_rank[0]), None)
    if odd is None:
        return []
    first, other = (", ".join(by_rank[rank]) or "nothing" for rank in (0, odd))
    return [f"{method}: rank 0 has wrapped {first}, rank {odd} {other}; {_RULE}"]


def _compare_models(distributed: DistributedContext, index: int, model: nn.Module) -> list[str]:
    """Return what is different in the model. Collective."""
    by_rank = distributed.allgather(list(_tensors(model)))
    odd = next(rank for rank, tensors in enumerate(by_rank) if tensors != by_rank[0])
    pairs = zip_longest(by_rank[0], by_rank[odd], fillvalue="nothing")
    first, other = next(pair for pair in pairs if pair[0] != pair[1])
    return [
        f"wrap_model: model {index} ({type(unwrap(model)).__name__}) has {first} on rank 0 where "
        f"it has {other} on rank {odd}; {_RULE}"
    ]
