"""Copies of what only one rank has of sharded models and their optimizers, which outlive the rank.

    a rank has    two copies in turn: its state after the last step, and after the one before
    a copy has    a head, with the batches trained (contract/run/shard_memory.py); then the rank's
                  parts of parameters and of states of optimizers, and its buffers
    each step     ends with a copy and an exchange with all ranks, before schedulers step

A rank that has finished the exchange thus finds copies of all ranks after this step. One that
loses another rank in it has changed nothing else yet, and finds those after the step before: a
rank overwrites them in the next step only, or in an event after this one, before which all ranks
meet again. What an event leaves is copied, too; of a rank that ends in that, the copy before is
taken.

The memory is a file of the agent (agent/tunnel/copies.py), which all ranks of the computer open.
It outlives `kill -9`, and is free when the run is over. It grows when tensors are added, as
optimizers do in their first step. If tensors of a rank are not plain memory, or the copies of the
ranks of a computer would take more than half of its free memory, no rank copies any more, and
nothing is saved.

A rank that saves fetches the copies of ranks on other computers. These ranks do not overwrite them
meanwhile, as they cannot end another step without this rank. A computer that is lost takes its
copies along: then nothing is saved.
"""

from __future__ import annotations

import copy
import mmap
import os
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

from det_jupyter.contract.host.control_groups import free_memory
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.run.shard_memory import (
    FOUND,
    HEAD_BYTES,
    NUM_COPIES,
    UNREACHED,
    CopyRequest,
    fetch_copy,
)
from det_jupyter.contract.values.text import size
from det_jupyter.core import DistributedContext
from det_jupyter.errors import CheckpointError
from det_jupyter.pytorch import parallel
from det_jupyter.pytorch.checkpoints.training_state import ModelStates
from det_jupyter.pytorch.training.page_buffers import in_page, is_plain, total_bytes

_PART_OF_FREE = 0.5
Layout = list[tuple[torch.Size, torch.dtype]]  # shapes and types of a rank's tensors


class _Place(NamedTuple):
    """Stands for a tensor in a state: its number among the copied ones."""

    number: int


class CopyLost(CheckpointError):
    """A rank's copy of its part of the models is not there, or cannot be fetched."""


class _Memory:
    """The memory of a rank's copy."""

    def __init__(self, memory: mmap.mmap, layout: Layout) -> None:
        view = memoryview(memory)
        self.word = view[:8].cast("q")
        self.tensors = in_page(_likes(layout), view[HEAD_BYTES:])


@dataclass(slots=True)
class _Copy:
    """The state after one step."""

    number: int
    state: Any = None  # with places where tensors are
    dims: list[int | None] = field(default_factory=list)  # along which tensors are divided
    layout: Layout | None = None  # of this rank
    here: dict[int, _Memory] = field(default_factory=dict)  # by rank
    elsewhere: dict[int, Layout] = field(default_factory=dict)  # by rank


class ShardCopies:
    """The copies of all ranks, which have the same models and optimizers.

    Args:
        distributed: The ranks.
        models: Sharded models.
        optimizers: All optimizers.
        folder: The run's folder, with the memory of the ranks here.
        elsewhere: The ranks on other computers.
    """

    def __init__(
        self,
        distributed: DistributedContext,
        models: Sequence[nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
        folder: RunDir,
        elsewhere: Container[int] = (),
    ) -> None:
        self._distributed = distributed
        self._models = models
        self._optimizers = optimizers
        self._folder = folder
        self._here = [rank for rank in range(distributed.size) if rank not in elsewhere]
        self._last, self._older = _Copy(0), _Copy(1)
        self._why_none = ""  # why no copies are made any more; the same on all ranks

    def note(self, steps_completed: int) -> None:
        """Copy the state as that after these batches. Collective."""
        if self._why_none:
            return
        self._last, self._older = self._older, self._last
        kept = self._last
        for rank, new in enumerate(self._distributed.allgather(self._write(steps_completed))):
            if isinstance(new, str):
                self._why_none = f"rank {rank} makes no copy of its part of the model: {new}"
                self._last, self._older = _Copy(0), _Copy(1)
                return
            if new is None or rank == self._distributed.rank:
                continue
            if rank in self._here:
                with suppress(OSError):  # the user's code has removed the folder
                    kept.here[rank] = _Memory(self._mapped(rank, kept), new)
            else:
                kept.elsewhere[rank] = new

    def states(self, steps_completed: int) -> ModelStates:
        """Return the whole states after these batches. Not collective.

        Parameter groups are the present ones, and buffers of models those of rank 0.

        Raises:
            CopyLost: A rank's copy is not there, or cannot be fetched.
        """
        if self._why_none:
            raise CopyLost(self._why_none)
        try:
            kept, by_rank = self._last, self._all(self._last, steps_completed)
        except CopyLost:
            if self._lacking(self._older, steps_completed):
                raise
            kept, by_rank = self._older, self._all(self._older, steps_completed)
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

    def _lacking(self, kept: _Copy, steps: int) -> list[int]:
        """Return the ranks here that have left no copy of the state after these batches."""
        found = kept.here
        return [rank for rank in self._here if rank not in found or found[rank].word[0] != steps]

    def _all(self, kept: _Copy, steps: int) -> list[Sequence[torch.Tensor]]:
        """Return the tensors of all ranks; fetch those of ranks on other computers."""
        if lacking := self._lacking(kept, steps):
            raise _no_copy(lacking[0])
        self._check_memory(kept)
        return [
            (kept.here[rank] if rank in self._here else self._fetched(rank, kept, steps)).tensors
            for rank in range(self._distributed.size)
        ]

    def _check_memory(self, kept: _Copy) -> None:
        """Raise CopyLost if this computer has no room for copies of ranks elsewhere."""
        fetched = sum(map(_size, kept.elsewhere.values()))
        needed = 2 * fetched + sum(total_bytes(memory.tensors) for memory in kept.here.values())
        if fetched and needed > (free := free_memory()):
            raise CopyLost(
                f"putting the parts of the model together takes {size(needed)} of memory, "
                f"{size(free)} are free"
            )

    def _fetched(self, rank: int, kept: _Copy, steps: int) -> _Memory:
        """Return the copy of a rank on another computer."""
        if (layout := kept.elsewhere.get(rank)) is None:
            raise _no_copy(rank)
        memory = mmap.mmap(-1, _size(layout))
        request = CopyRequest(rank, kept.number, steps, len(memory))
        answer = fetch_copy(self._folder.copies, request, memoryview(memory))
        if answer == UNREACHED:
            raise CopyLost(f"rank {rank}'s copy of its part of the model is lost with its agent")
        if answer != FOUND:
            raise _no_copy(rank)
        return _Memory(memory, layout)

    @torch.no_grad()
    def _write(self, steps_completed: int) -> Layout | str | None:
        """Write this rank's copy; return its layout if that is new, or why it cannot be copied."""
        kept, own = self._last, self._distributed.rank
        tensors: list[torch.Tensor] = []
        kept.state = _without_tensors(self._state(), tensors)
        kept.dims = [parallel.divided_along(tensor) for tensor in tensors]
        parts = [parallel.local_part(tensor) for tensor in tensors]
        layout = [(part.shape, part.dtype) for part in parts]
        if is_new := layout != kept.layout:
            kept.layout = layout
            kept.here.pop(own, None)
            if not is_plain(parts) or any(map(parallel.is_partial, tensors)):
                return "some of its tensors are not plain memory"
            if why := self._open_own(kept, layout):
                return why
        memory = kept.here[own]
        memory.word[0] = -1
        torch._foreach_copy_(memory.tensors, parts)
        memory.word[0] = steps_completed
        return layout if is_new else None

    def _open_own(self, kept: _Copy, layout: Layout) -> str:
        """Map the memory of this rank's copy; return why that is not possible, or ""."""
        own, num_bytes, num_ranks = self._distributed.rank, _size(layout), len(self._here)
        files = [self._folder.copy(own, number) for number in range(NUM_COPIES)]
        try:
            had = num_ranks * sum(file.stat().st_size for file in files)  # others have as much
            needed, free = NUM_COPIES * num_ranks * num_bytes, free_memory() + had
            if needed > _PART_OF_FREE * free:
                return (
                    f"the copies of the ranks on its computer take {size(needed)} of memory, more "
                    f"than half of the {size(free)} that are free"
                )
            kept.here[own] = _Memory(self._mapped(own, kept, num_bytes), layout)
        except OSError as error:  # a limit of the user's; or the run's folder was removed
            return f"{size(num_bytes)} of memory for it cannot be opened: {error.strerror}"
        return ""

    def _mapped(self, rank: int, kept: _Copy, num_bytes: int = 0) -> mmap.mmap:
        """Map the memory of a copy of a rank here, which gets at least this size."""
        with self._folder.copy(rank, kept.number).open("r+b") as file:
            if os.fstat(file.fileno()).st_size < num_bytes:  # never smaller: others have mapped it
                file.truncate(num_bytes)
            return mmap.mmap(file.fileno(), 0)

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


def _no_copy(rank: int) -> CopyLost:
    return CopyLost(f"rank {rank} has left no copy of its part of the model")


def _size(layout: Layout) -> int:
    """Return the bytes of a copy; without tensors one more than its head, as for `in_page`."""
    return HEAD_BYTES + (total_bytes(_likes(layout)) or 1)


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
