"""States of a batch inference's reducers, saved with each checkpoint.

There is one state for each slot that has processed a batch. On as many ranks, each rank of a later
run restores its own, so the result is that of an uninterrupted run, bit by bit. On fewer ranks the
chief keeps the remaining states, and they are part of the result as if their ranks still ran.
Values for a function are joined in the order of the data. States hold only tensors, arrays and
plain values, so loading a folder runs no code from it.
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
from det_jupyter.pytorch.checkpoints.snapshot import Snapshot, SnapshotMemory, revive_arrays
from det_jupyter.pytorch.reducers.custom_reducers import Reducers
from det_jupyter.pytorch.reducers.metric_reducer import (
    FunctionReducer,
    MetricReducer,
    keeps_state,
    merged_values,
)

_Slot = dict[str, Any]  # of one slot: took_part, and the states of its reducers by position


class Tallies:
    """The wrapped reducers of one rank, and whether it `took_part`: had any batch."""

    def __init__(self, distributed: DistributedContext, device: torch.device) -> None:
        self.took_part = False
        self._distributed = distributed
        self._device = device
        self._reducers = Reducers()
        self._wrapped: list[tuple[MetricReducer, str | None]] = []
        self._orphans: list[_Slot] = []  # of slots beyond the number of ranks; the chief's

    def wrap(
        self, reducer: MetricReducer | Callable[[list[Any]], Any], name: str | None
    ) -> MetricReducer:
        """Register a MetricReducer, or a function of the list of all values."""
        wrapped: MetricReducer = self._reducers.wrap(reducer, name)
        self._wrapped.append((wrapped, name))
        return wrapped

    def save(self, folder: Path) -> None:
        """Write this rank's states, and on the chief those that no rank has."""
        if not self._wrapped:
            return
        folder.mkdir(exist_ok=True)
        rank, size = self._distributed.rank, self._distributed.size
        states = [_state_of(reducer) for reducer, _ in self._wrapped]
        _write({"took_part": self.took_part, "states": states}, folder / f"slot_{rank}.pt")
        for place, orphan in enumerate(self._orphans):
            _write(orphan, folder / f"slot_{size + place}.pt")

    def restore(self, folder: Path) -> None:
        """Go on from what `save` wrote, with any number of ranks.

        Raises:
            ConfigError: The reducers are others than these were.
        """
        rank, size = self._distributed.rank, self._distributed.size
        count = len(list(folder.glob("slot_*.pt")))
        if count == 0 and self._wrapped:
            raise _changed(folder, 0, len(self._wrapped))
        slots = [self._read(folder / f"slot_{slot}.pt") for slot in range(count)]
        if count != size:
            self._join_functions(slots)
        if rank < count:
            self.took_part = slots[rank]["took_part"]
            _load([reducer for reducer, _ in self._wrapped], slots[rank])
        if self._distributed.is_chief:
            self._orphans = slots[size:]

    def _join_functions(self, slots: Sequence[_Slot]) -> None:
        """Give the values for functions, in the order of the data, to the first slot."""
        for index, (reducer, _) in enumerate(self._wrapped):
            if slots and isinstance(reducer, FunctionReducer):
                values = merged_values([slot["states"][index] for slot in slots])
                for slot in slots:
                    slot["states"][index] = {"earlier": [], "values": []}
                slots[0]["states"][index] = {"earlier": values, "values": []}

    def reduce(self) -> dict[str, Any]:
        """Return the metrics over everything that was ever counted. Collective."""
        if not self._wrapped:
            return {}
        return settle(self._distributed, self._send, self._combine, on_chief=True)

    def _send(self) -> list[list[bytes]]:
        own = [self._reducers.reduce_slots("validation")] if self.took_part else []
        gone = [orphan for orphan in self._orphans if orphan["took_part"]]
        return own + [self._stand_in(orphan).reduce_slots("validation") for orphan in gone]

    def _combine(self, by_rank: Sequence[list[list[bytes]]]) -> dict[str, Any]:
        chief, *others = by_rank
        slots = chief[:1] + [slot for rank in others for slot in rank] + chief[1:]
        return self._reducers.reduce_across(slots, "validation")

    def _stand_in(self, orphan: _Slot) -> Reducers:
        """Return reducers like ours that have counted what the orphan has."""
        stand_ins = Reducers()
        copies = [stand_ins.wrap(copy.deepcopy(reducer), name) for reducer, name in self._wrapped]
        _load(copies, orphan)
        return stand_ins

    def _read(self, file: Path) -> _Slot:
        loaded = torch.load(file, map_location=self._device, weights_only=True)
        slot: _Slot = revive_arrays(loaded["slot"], loaded["arrays"])
        if len(slot["states"]) != len(self._wrapped):
            raise _changed(file, len(slot["states"]), len(self._wrapped))
        return slot


def _changed(place: Path, before: int, now: int) -> ConfigError:
    return ConfigError(
        [
            f"wrap_reducer: the processor wraps {now} reducers, and had {before} when "
            f"{place} was saved; start a new experiment instead"
        ]
    )


def _state_of(reducer: Any) -> Any:
    return reducer.state_dict() if keeps_state(reducer) else dict(vars(reducer))


def _load(reducers: Sequence[Any], slot: _Slot) -> None:
    for reducer, state in zip(reducers, slot["states"], strict=True):
        if keeps_state(reducer):
            reducer.load_state_dict(state)
        else:
            vars(reducer).update(state)


def _write(slot: _Slot, file: Path) -> None:
    memory = SnapshotMemory()
    snapshot = Snapshot(memory)
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
