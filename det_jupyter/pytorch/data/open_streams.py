"""Opens the streams of batches: the ranks compare their loaders once, then each reads alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from det_jupyter.contract.values.text import class_name
from det_jupyter.core.distributed import DistributedContext
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.data.division import Division
from det_jupyter.pytorch.data.loader import DataLoader
from det_jupyter.pytorch.data.order import length_of
from det_jupyter.pytorch.data.streams import BatchStream, DataLoaderStream, PlainLoaderStream
from det_jupyter.pytorch.messages import warn_user

_TRAINING = "build_training_data_loader"
_VALIDATION = "build_validation_data_loader"
_SAME = "all ranks have to build the same (only batch_size may differ)"
_ONE_SAMPLER = (
    "each of its batches goes whole to one rank, so all ranks have to build the same. "
    "context.get_per_slot_batch_size() is not the same on all ranks if global_batch_size is no "
    "multiple of the slots: choose one that is, or give the DataLoader batch_size=... and "
    "sampler=..., which divide any"
)


def open_training(
    loader: DataLoader | Iterable[Any],
    distributed: DistributedContext,
    *,
    seed: int,
    skip: int,
    batch_length: Callable[[Any], int],
) -> BatchStream:
    """Return this rank's training batches, repeated forever. Collective.

    Args:
        loader: A DataLoader, whose global batches are divided among the ranks; or any other
            iterable of batches, which is each rank's own (see streams.py).
        distributed: The ranks.
        seed: Determines the order; the same on all ranks.
        skip: Number of global batches that were trained before.
        batch_length: Returns the number of records of a batch from a loader of another kind.

    Raises:
        ConfigError: The ranks' loaders do not fit together, or there is no data. Raised on all
            ranks, unless only iterating the loader reveals it.
    """
    facts = _agree(_TRAINING, loader, distributed, seed)
    if not isinstance(loader, DataLoader):
        lengths = [fact.length for fact in facts if fact.length is not None]
        return PlainLoaderStream(
            loader,
            distributed,
            seed=seed,
            batches_per_epoch=min(lengths) if len(lengths) == len(facts) else None,
            batch_length=batch_length,
            skip=skip,
            repeat=True,
        )
    division = Division([fact.batch_size for fact in facts], distributed.rank)
    stream = DataLoaderStream(loader, division, seed=seed, skip=skip, repeat=True)
    if stream.batches_per_epoch == 0:
        raise ConfigError([loader.order.describe_empty(division)])
    return stream


def open_validation(
    loader: DataLoader | Iterable[Any],
    distributed: DistributedContext,
    *,
    seed: int,
    batch_length: Callable[[Any], int],
) -> BatchStream:
    """Return this rank's share of one pass over the validation data. Collective.

    Ranks may have different numbers of batches, and none at all: the last global batch of a
    DataLoader is divided among as many ranks as it has records. Any other iterable is each rank's
    own, and all of it is evaluated. The stream can be iterated again for the next validation.

    Args:
        loader, distributed, seed, batch_length: As in `open_training`.

    Raises:
        ConfigError: The ranks' loaders do not fit together.
    """
    facts = _agree(_VALIDATION, loader, distributed, seed)
    if isinstance(loader, DataLoader):
        division = Division([fact.batch_size for fact in facts], distributed.rank)
        return DataLoaderStream(loader, division, seed=seed, skip=0, repeat=False)
    return PlainLoaderStream(
        loader,
        distributed,
        seed=seed,
        batches_per_epoch=length_of(loader),
        batch_length=batch_length,
        skip=0,
        repeat=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoaderFacts:
    """A description of one rank's loader, to be compared with those of the other ranks."""

    kind: str
    batch_size: int = 1
    length: int | None
    samples: str = "records"
    sampler_batch_size: int | None = None
    order: str = ""
    seed: int = 0

    @classmethod
    def of(cls, loader: Any, seed: int) -> _LoaderFacts:
        kind = class_name(type(loader))
        if not isinstance(loader, DataLoader):
            return cls(kind=kind, length=length_of(loader))
        order = loader.order
        named = {"sampler": order.sampler, "batch_sampler": order.batch_sampler}
        samplers = {name: type(it).__name__ for name, it in named.items() if it is not None}
        batch_size = getattr(order.batch_sampler, "batch_size", None)
        options = {"shuffle": order.shuffle, "drop_last": order.drop_last} | samplers
        return cls(
            kind=f"{kind} of a {type(loader.dataset).__name__}",
            batch_size=loader.batch_size,
            length=order.length(),
            samples="records" if order.batch_sampler is None else "batches",
            sampler_batch_size=batch_size if isinstance(batch_size, int) else None,
            order=", ".join(f"{name}={value}" for name, value in options.items()),
            seed=loader.effective_seed(seed),
        )


def _agree(
    where: str, loader: Any, distributed: DistributedContext, seed: int
) -> Sequence[_LoaderFacts]:
    """Gather the facts of every rank's loader, and check that they fit together. Collective."""
    facts = distributed.allgather(_LoaderFacts.of(loader, seed))
    is_ours = isinstance(loader, DataLoader)
    compared, remedy = {"kind": "the loader"}, _SAME
    if len({fact.kind for fact in facts}) == 1 and is_ours:
        compared |= {"order": "the order", "seed": "the seed of the order"}
        compared |= {"length": f"the number of {facts[0].samples}"}
        sizes = [fact.sampler_batch_size for fact in facts]
        if _differing_rank(sizes) is not None:  # the cause: do not report lengths as well
            del compared["length"]
            compared |= {"sampler_batch_size": "the batch_size of the batch_sampler"}
            remedy = _ONE_SAMPLER
    problems = []
    for name, title in compared.items():
        if (rank := _differing_rank([getattr(fact, name) for fact in facts])) is not None:
            problems.append(
                f"{where}: {title} is {getattr(facts[0], name)} on rank 0 and "
                f"{getattr(facts[rank], name)} on rank {rank}; {remedy}"
            )
    if not problems and not isinstance(loader, Iterable):
        problems = [f"{where}: got {loader!r}, expected a det_jupyter.pytorch.DataLoader"]
    if not problems and not is_ours and where == _TRAINING:
        problems = [
            f"{where}: the loader of rank {rank} has no batches, expected at least one"
            for rank, fact in enumerate(facts)
            if fact.length == 0
        ]
    if problems:
        raise ConfigError(problems)
    if not is_ours and where == _TRAINING and distributed.rank == 0:
        _warn_of_lengths([fact.length for fact in facts])
    return facts


def _differing_rank(values: Sequence[object]) -> int | None:
    """Return the first rank whose value is not the chief's; None if all are the same."""
    return next((rank for rank, value in enumerate(values) if value != values[0]), None)


def _warn_of_lengths(lengths: Sequence[int | None]) -> None:
    if len(set(lengths)) > 1:
        named = ", ".join(f"rank {rank} has {length}" for rank, length in enumerate(lengths))
        warn_user(
            f"{_TRAINING}: the ranks' loaders differ in length: {named}; every pass ends with the "
            "shortest, and what the others have beyond it is not trained"
        )
