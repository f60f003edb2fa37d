"""Checkpoints of engines: all ranks store their parts, and training waits for it.

    model0/, model1/ ...    what `engine.save_checkpoint` writes, or the trial's own `save`
    rank-0.pt ...           of each rank: generators, reducers, callbacks, metrics since the last
                            report, and the validation that is still due

DeepSpeed's parts are read by as many ranks as have written them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from det_jupyter.contract.trial.origin import Origin, changed_hparams
from det_jupyter.contract.values.text import count
from det_jupyter.core import Context
from det_jupyter.errors import CheckpointError, ConfigError
from det_jupyter.pytorch.checkpoints.savepoints import Savepoints
from det_jupyter.pytorch.checkpoints.saver import Saver
from det_jupyter.pytorch.checkpoints.state_snapshot import SnapshotMemory, restore_arrays
from det_jupyter.pytorch.checkpoints.training_state import Parts, snapshot_state
from det_jupyter.pytorch.rng import get_states, set_states
from det_jupyter.pytorch.rules import RunStart
from det_jupyter.storage import reading


@dataclass(slots=True)
class EngineSaver(Saver):
    """Saves the engines, and the state of each rank; `trial` has the method that saves them."""

    _: KW_ONLY
    trial: Any

    def begin(
        self,
        *,
        steps_completed: int,
        in_window: bool = False,
        validation_due: str | None = None,
        is_still: bool = False,
    ) -> str:
        """Store a checkpoint of the present state and return its uuid. Collective.

        Raises:
            ConfigError: The state has a value that cannot be saved.
        """
        context, callbacks = self.parts.context, self.parts.callbacks
        state = {
            "callbacks": callbacks.state_dict(),
            "parts": {name: part.state() for name, part in self.parts.shared.items()},
            "reducers": context.reducers.state(),
            "rng_states": get_states(context.device),
            "stop_requested": context.get_stop_requested(),
            "validation_due": validation_due,
        }
        callbacks.on_checkpoint_save_start(state)
        safe = snapshot_state(state, SnapshotMemory(), self.parts)
        stored = self.storage.store_path(
            {"steps_completed": steps_completed},
            shard=context.distributed.size > 1,
            origin=self.origin,
        )
        with stored as (folder, uuid):
            self.trial.save(context, folder)
            torch.save(safe, _file(folder, context.distributed.rank))
            if context.distributed.is_chief:
                callbacks.on_checkpoint_write_end(folder)
        callbacks.on_checkpoint_upload_end(uuid)
        return uuid


class EngineSavepoints(Savepoints):
    """The checkpoints of one run of a DeepSpeedTrial; see Savepoints.

    Args:
        core: The ranks, and their storage.
        parts, origin, start, while_waiting: As for Savepoints.
        trial: Saves and loads the engines.
    """

    def __init__(
        self,
        core: Context,
        parts: Parts,
        origin: Origin,
        start: RunStart,
        while_waiting: Callable[[], AbstractContextManager[None]],
        trial: Any,
    ) -> None:
        if start.warm_start is not None:
            raise ConfigError(
                "searcher: a DeepSpeedTrial begins with no weights of another trial; load them "
                "in its __init__, before deepspeed.initialize"
            )
        origin = replace(origin, library="deepspeed")
        super().__init__(core.checkpoint, parts, origin, start, while_waiting)
        self._saver = EngineSaver(core.checkpoint, parts, origin, trial=trial)
        self._core = core
        self._trial = trial

    def restore(self) -> None:
        """Load the state with which the run begins, except generators. Collective.

        Raises:
            CheckpointError: It was saved by another number of ranks, or is of another trial.
        """
        if (checkpoint := self._start.checkpoint) is None:
            return
        in_experiment = self._core.info is not None
        opened = self._storage.restore_path(checkpoint.uuid) if in_experiment else None
        with opened or reading(checkpoint.path) as folder:
            self._state = state = self._read(folder, checkpoint.uuid)
            changes = changed_hparams(folder, self._origin.hparams)
            self._parts.callbacks.on_checkpoint_load_start(state)
            self._trial.load(self._parts.context, folder)
        self._parts.callbacks.load_state_dict(state["callbacks"])
        for name, part in self._parts.shared.items():
            if name in state["parts"]:
                part.restore(state["parts"][name])
        context = self._parts.context
        size, rank = context.distributed.size, context.distributed.rank
        context.reducers.restore([state["reducers"]] * size, rank, size)
        context.set_stop_requested(state["stop_requested"])
        if changes and context.distributed.is_chief:
            sys.stderr.write(
                f"training goes on at batch {checkpoint.steps_completed} with other "
                f"hyperparameters: {', '.join(changes)}. Optimizers and schedulers of engines "
                "stay as the checkpoint has them\n"
            )

    def _read(self, folder: Path, uuid: str) -> dict[str, Any]:
        distributed = self._core.distributed
        saved = len(list(folder.glob("rank-*.pt")))
        if saved != distributed.size:
            raise CheckpointError(
                f"checkpoint {uuid}: {count(saved, 'rank')} of a DeepSpeedTrial have saved it, "
                f"and {count(distributed.size, 'rank')} cannot load it; set "
                f"resources.slots_per_trial: {saved}"
            )
        file = _file(folder, distributed.rank)
        state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        restored: dict[str, Any] = restore_arrays(state, state["arrays"])
        return restored

    def restore_generators(self) -> str | None:
        """Set the generators; return the validation that was still due, or None."""
        state, self._state = self._state, None
        if state is None:
            return None
        set_states(state["rng_states"], self._parts.context.device)
        due: str | None = state["validation_due"]
        return due


def _file(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.pt"
