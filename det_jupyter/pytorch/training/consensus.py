"""Whether all ranks have built the same trial, asked once before they train it.

Ranks that wrap different things would sooner or later wait for each other in different
collectives, each of them for ever. So each tells what it has wrapped, and where that differs, all
of them raise. Knows nothing of data, which is compared when it is opened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from torch import nn

from det_jupyter.core import DistributedContext
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.parallel import unwrap
from det_jupyter.pytorch.trial.context import PyTorchTrialContext

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
    facts = context.distributed.allgather(_Facts.of(context))
    problems = [
        *_differing("wrap_model", [fact.models for fact in facts]),
        *_differing("wrap_optimizer", [fact.optimizers for fact in facts]),
        *_differing("wrap_lr_scheduler", [fact.lr_schedulers for fact in facts]),
        *_differing("wrap_reducer", [fact.reducers for fact in facts]),
    ]
    if len({len(fact.models) for fact in facts}) == 1:
        odd = [
            index
            for index in range(len(context.models))
            if len({fact.digests[index] for fact in facts}) > 1
        ]
        for index in odd:  # the same ones on all ranks
            problems += _compare_models(context.distributed, index, context.models[index])
    if problems:
        raise ConfigError(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What one rank has wrapped."""

    models: list[str]
    digests: list[str]  # of each model's tensors
    optimizers: list[str]
    lr_schedulers: list[str]
    reducers: list[str]

    @classmethod
    def of(cls, context: PyTorchTrialContext) -> _Facts:
        return cls(
            models=[type(unwrap(model)).__name__ for model in context.models],
            digests=[
                hashlib.sha256("\n".join(_tensors(model)).encode()).hexdigest()
                for model in context.models
            ],
            optimizers=[type(optimizer).__name__ for optimizer in context.optimizers],
            lr_schedulers=[type(item.scheduler).__name__ for item in context.lr_schedulers],
            reducers=context.reducers.describe(),
        )


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
