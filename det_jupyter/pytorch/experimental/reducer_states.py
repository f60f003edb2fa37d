"""States of a batch inference's reducers, saved with each checkpoint.

There is one state for each rank of the run that saved. On the same number of ranks, each rank of a
later run restores its own state, so the result equals that of an uninterrupted run, bit by bit. On
fewer ranks the chief keeps the remaining states, and adds them to the result like those of further
ranks. Values for a function are joined in the order of the data. States consist of tensors, arrays
and plain values only, so loading them executes no code.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from det_jupyter.core import DistributedContext
from det_jupyter.core.together import settle
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.checkpoints.state_snapshot import (
    SnapshotMemory,
    StateSnapshot,
    restore_arrays,
)
from det_jupyter.pytorch.reducers.custom_reducers import Reducers
from det_jupyter.pytorch.reducers.metric_reducer import (
    FunctionReducer,
    MetricReducer,
    keeps_state,
    merged_values,
)

_Slot = dict[str, Any]  # state of one rank: took_part, and its reducers' states in order


class InferenceReducers:
    """The wrapped reducers of one rank.

    Attributes:
        took_part: Whether this rank has processed any batch.
    """

    def __init__(self, distributed: DistributedContext, device: torch.device) -> None:
        self.took_part = False
        self._distributed = distributed
        self._device = device
        self._reducers = Reducers()
        self._wrapped: list[tuple[MetricReducer, str | None]] = []
        self._surplus: list[_Slot] = []  # on the chief: states beyond the number of ranks

    def wrap(
        self, reducer: MetricReducer | Callable[[list[Any]], Any], name: str | None
    ) -> MetricReducer:
        """Register a MetricReducer, or a function of the list of all values."""
        wrapped: MetricReducer = self._reducers.wrap(reducer, name)
        self._wrapped.append((wrapped, name))
        return wrapped

    def save(self, folder: Path) -> None:
        """Write this rank's state; on the chief, also the surplus states."""
        if not self._wrapped:
            return
        folder.mkdir(exist_ok=True)
        rank, size = self._distributed.rank, self._distributed.size
        states = [
            reducer.state_dict() if keeps_state(reducer) else dict(vars(reducer))
            for reducer, _ in self._wrapped
        ]
        _write({"took_part": self.took_part, "states": states}, folder / f"slot_{rank}.pt")
        for index, slot in enumerate(self._surplus, start=size):
            _write(slot, folder / f"slot_{index}.pt")

    def restore(self, folder: Path) -> None:
        """Restore what `save` wrote, on any number of ranks.

        Raises:
            ConfigError: The number of reducers has changed.
        """
        rank, size = self._distributed.rank, self._distributed.size
        count = len(list(folder.glob("slot_*.pt")))
        if count == 0 and self._wrapped:
            raise _changed_error(folder, 0, len(self._wrapped))
        slots = [self._read(folder / f"slot_{slot}.pt") for slot in range(count)]
        # Also on as many ranks: the last round of the run that saved may have been a short one.
        self._join_functions(slots)
        if rank < count:
            self.took_part = slots[rank]["took_part"]
            _load([reducer for reducer, _ in self._wrapped], slots[rank])
        if self._distributed.is_chief:
            self._surplus = slots[size:]

    def _join_functions(self, slots: Sequence[_Slot]) -> None:
        """Move the values of function reducers from all states to the first, in data order."""
        for index, (reducer, _) in enumerate(self._wrapped):
            if slots and isinstance(reducer, FunctionReducer):
                values = merged_values([slot["states"][index] for slot in slots])
                for slot in slots:
                    slot["states"][index] = {"earlier": [], "values": []}
                slots[0]["states"][index] = {"earlier": values, "values": []}

    def reduce(self) -> dict[str, Any]:
        """Return the metrics over all batches of all runs. Collective."""
        if not self._wrapped:
            return {}
        return settle(self._distributed, self._reduce_slots, self._combine, on_chief=True)

    def _reduce_slots(self) -> list[list[bytes]]:
        """Return the results of this rank's state, and on the chief of the surplus states."""
        results = [self._reducers.reduce_slots("validation")] if self.took_part else []
        for slot in self._surplus:
            if slot["took_part"]:
                reducers = Reducers()
                wrapped = [
                    reducers.wrap(copy.deepcopy(reducer), name) for reducer, name in self._wrapped
                ]
                _load(wrapped, slot)
                results.append(reducers.reduce_slots("validation"))
        return results

    def _combine(self, by_rank: Sequence[list[list[bytes]]]) -> dict[str, Any]:
        chief, *others = by_rank
        slots = chief[:1] + [slot for rank in others for slot in rank] + chief[1:]
        return self._reducers.reduce_across(slots, "validation")

    def _read(self, file: Path) -> _Slot:
        loaded = torch.load(file, map_location=self._device, weights_only=True)
        slot: _Slot = restore_arrays(loaded["slot"], loaded["arrays"])
        if len(slot["states"]) != len(self._wrapped):
            raise _changed_error(file, len(slot["states"]), len(self._wrapped))
        return slot


def _changed_error(path: Path, before: int, now: int) -> ConfigError:
    return ConfigError(
        [
            f"wrap_reducer: the processor wraps {now} reducers, and had {before} when "
            f"{path} was saved; start a new experiment instead"
        ]
    )


def _load(reducers: Sequence[Any], slot: _Slot) -> None:
    for reducer, state in zip(reducers, slot["states"], strict=True):
        if keeps_state(reducer):
            reducer.load_state_dict(state)
        else:
            vars(reducer).update(state)


def _write(slot: _Slot, file: Path) -> None:
    memory = SnapshotMemory()
    snapshot = StateSnapshot(memory)
    copied = snapshot.take(slot)
    memory.wait()
    if snapshot.unsafe:
        raise ConfigError(
            [
                f"wrap_reducer: what a reducer holds cannot be saved ({kind}); let it hold "
                "numbers, strings, tensors, arrays, and lists or dicts of these, or define "
                "state_dict and load_state_dict"
                for _, kind in snapshot.unsafe
            ]
        )
    torch.save({"slot": copied, "arrays": snapshot.arrays}, file)
