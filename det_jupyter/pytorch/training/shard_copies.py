"""Copies of what only one rank has of sharded models and their optimizers, which outlive the rank.

    a rank has    two copies in turn: its state after the last step, and after the one before
    a copy has    a word: the batches trained, -1 while it is written; then the rank's parts of
                  parameters and of states of optimizers, and its buffers
    each step     ends with a copy and an exchange with all ranks, before schedulers step

A rank that has finished the exchange thus finds copies of all ranks after this step. One that
loses another rank in it has changed nothing else yet, and finds those after the step before: a
rank overwrites them in the next step only, or in an event after this one, before which all ranks
meet again. What an event leaves is copied, too; of a rank that ends in that, the copy before is
taken.

The memory is a file without a name (memfd), opened by all ranks of the computer: it outlives
`kill -9`, and is free when the last of them ends. A copy gets new memory when tensors are added,
as optimizers do in their first step. There is none of tensors that are not plain memory, or if the
copies of all ranks would take more than half of the free memory: then nothing is saved.
"""

from __future__ import annotations

import copy
import mmap
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import nn

from det_jupyter.contract.host.control_groups import free_memory
from det_jupyter.core import DistributedContext
from det_jupyter.errors import CheckpointError
from det_jupyter.pytorch import parallel
from det_jupyter.pytorch.checkpoints.training_state import ModelStates
from det_jupyter.pytorch.training.page_buffers import in_page, is_plain, total_bytes

_HEAD_BYTES = 16  # a word, and room that aligns what follows
_PART_OF_FREE = 0.5
Layout = list[tuple[torch.Size, torch.dtype]]  # shapes and types of a rank's tensors


class _Place(NamedTuple):
    """Stands for a tensor in a state: its number among the copied ones."""

    number: int


class _Offer(NamedTuple):
    """New memory of a rank, for the others to open."""

    path: Path
    layout: Layout


class _Memory:
    """The mapped memory of a rank's copy."""

    def __init__(self, offer: _Offer) -> None:
        with offer.path.open("r+b") as file:
            view = memoryview(mmap.mmap(file.fileno(), 0))
        self.word = view[:8].cast("q")
        self.tensors = in_page(_likes(offer.layout), view[_HEAD_BYTES:])


@dataclass(slots=True)
class _Copy:
    """The state after one step."""

    state: Any = None  # with places where tensors are
    dims: list[int | None] = field(default_factory=list)  # along which tensors are divided
    layout: Layout | None = None  # of this rank
    file: BinaryIO | None = None  # of this rank's memory, open for the others
    by_rank: dict[int, _Memory] = field(default_factory=dict)

    def lacking(self, steps: int, ranks: Iterable[int]) -> list[int]:
        """Return the ranks whose state after these batches is not here."""
        found = self.by_rank
        return [rank for rank in ranks if rank not in found or found[rank].word[0] != steps]

    def close(self) -> None:
        """Close the file; memory that is mapped stays."""
        if self.file is not None:
            self.file.close()


class ShardCopies:
    """The copies of all ranks, which are on one computer and have the same models and optimizers.

    Args:
        distributed: The ranks.
        models: Sharded models.
        optimizers: All optimizers.
    """

    def __init__(
        self,
        distributed: DistributedContext,
        models: Sequence[nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
    ) -> None:
        self._distributed = distributed
        self._models = models
        self._optimizers = optimizers
        self._last, self._older = _Copy(), _Copy()

    def note(self, steps_completed: int) -> None:
        """Copy the state as that after these batches. Collective."""
        self._last, self._older = self._older, self._last
        offer = self._write(steps_completed)
        for rank, offered in enumerate(self._distributed.allgather(offer)):
            if offered is not None and rank != self._distributed.rank:
                with suppress(OSError):  # the rank has ended
                    self._last.by_rank[rank] = _Memory(offered)

    def states(self, steps_completed: int) -> ModelStates:
        """Return the whole states after these batches. Not collective.

        Parameter groups are the present ones, and buffers of models those of rank 0.

        Raises:
            CheckpointError: A rank's copy is not there.
        """
        ranks = range(self._distributed.size)
        lacking, kept = min(
            ((kept.lacking(steps_completed, ranks), kept) for kept in (self._last, self._older)),
            key=lambda found: len(found[0]),
        )
        if lacking:
            raise CheckpointError(f"rank {lacking[0]} has left no copy of its part of the model")
        by_rank = [kept.by_rank[rank].tensors for rank in ranks]
        whole = [
            parts[0] if dim is None else torch.cat(parts, dim)
            for dim, *parts in zip(kept.dims, *by_rank, strict=True)
        ]
        state = _filled(kept.state, whole)
        return ModelStates(
            models=state["models"],
            optimizers=[
                {**own, "param_groups": optimizer.state_dict()["param_groups"]}
                for own, optimizer in zip(state["optimizers"], self._optimizers, strict=True)
            ],
            exchanges=[self._own_buffers(kept, tensors, whole) for tensors in by_rank],
        )

    def close(self) -> None:
        """Close the files of this rank's copies."""
        self._last.close()
        self._older.close()

    @torch.no_grad()
    def _write(self, steps_completed: int) -> _Offer | None:
        """Write this rank's copy; return its memory if that is new."""
        kept, own = self._last, self._distributed.rank
        tensors: list[torch.Tensor] = []
        kept.state = _without_tensors(self._state(), tensors)
        kept.dims = [parallel.divided_along(tensor) for tensor in tensors]
        parts = [parallel.local_part(tensor) for tensor in tensors]
        layout, offer = [(part.shape, part.dtype) for part in parts], None
        if layout != kept.layout:
            kept.close()
            kept.layout = layout
            kept.by_rank.pop(own, None)
            if is_plain(parts) and not any(map(parallel.is_partial, tensors)):
                offer = self._new_memory(kept, layout)
        if (memory := kept.by_rank.get(own)) is not None:
            memory.word[0] = -1
            torch._foreach_copy_(memory.tensors, parts)
            memory.word[0] = steps_completed
        return offer

    def _new_memory(self, kept: _Copy, layout: Layout) -> _Offer | None:
        """Create this rank's memory of a copy; return None if it cannot, or too little is free."""
        size = _HEAD_BYTES + (total_bytes(_likes(layout)) or 1)  # no memory would have no tensors
        if 2 * size * self._distributed.size > _PART_OF_FREE * free_memory():
            return None
        try:
            kept.file = open(os.memfd_create("shard"), "w+b")  # noqa: SIM115  # others open it
            kept.file.truncate(size)
            offer = _Offer(Path(f"/proc/{os.getpid()}/fd/{kept.file.fileno()}"), layout)
            kept.by_rank[self._distributed.rank] = _Memory(offer)
        except OSError:
            return None
        return offer

    def _state(self) -> dict[str, Any]:
        states = (optimizer.state_dict() for optimizer in self._optimizers)
        return {
            "models": [parallel.own_model_state(model) for model in self._models],
            "optimizers": [
                {name: state[name] for name in state if name != "param_groups"} for state in states
            ],
        }

    def _own_buffers(
        self, kept: _Copy, own: Sequence[torch.Tensor], whole: Sequence[torch.Tensor]
    ) -> list[dict[str, Any] | None] | None:
        """Return what `parallel.rank_state` returns on a rank with these tensors."""
        differ = [
            dim is None and not torch.equal(parallel.as_bytes(one), parallel.as_bytes(chiefs))
            for dim, one, chiefs in zip(kept.dims, own, whole, strict=True)
        ]
        by_model = [
            {
                name: own[place.number]
                for name, place in state.items()
                if isinstance(place, _Place) and differ[place.number]
            }
            for state in kept.state["models"]
        ]
        if not any(by_model):
            return None
        return [{"compression": None, "buffers": found} if found else None for found in by_model]


def _likes(layout: Layout) -> list[torch.Tensor]:
    return [torch.empty(shape, dtype=dtype, device="meta") for shape, dtype in layout]


def _without_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Return a copy of the value with places for its tensors, which are added to the list."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _Place(len(tensors) - 1)
    if isinstance(value, dict):
        return {key: _without_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_without_tensors(item, tensors) for item in value])
    return copy.deepcopy(value)


def _filled(value: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Return the value with the tensors at their places."""
    if isinstance(value, _Place):
        return tensors[value.number]
    if isinstance(value, dict):
        return {key: _filled(item, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_filled(item, tensors) for item in value])
    return value
