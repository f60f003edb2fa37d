"""The state of a training run, between memory and the folder of a checkpoint.

    state_dict.pt   format, steps_completed, size (ranks), in_window
                    models, optimizers, lr_schedulers, scaler, callbacks, parts: of all ranks
                    rng_states, gradients, exchanges, reducers, stop_requested: of each rank
                    validation_due: the validation after the last batch is still to come
                    arrays: what of it was numpy's

`state_dict.pt` holds tensors and plain values only, so that `torch.load(weights_only=True)` reads
it. Models are saved as the user made them, without DDP's `module.` in their names.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from det_jupyter.contract.host.disk_space import why_no_room
from det_jupyter.core.together import gather_later
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import parallel
from det_jupyter.pytorch.checkpoints.snapshot import Path as StatePath
from det_jupyter.pytorch.checkpoints.snapshot import Snapshot, SnapshotMemory
from det_jupyter.pytorch.rng import get_states
from det_jupyter.pytorch.trial.callbacks import Callbacks
from det_jupyter.pytorch.trial.context import PyTorchTrialContext

STATE_FILE = "state_dict.pt"
FORMAT = 3
_LITTLE = 1 << 20  # bytes: less is left where a write has filled the disk


class SharedPart(Protocol):
    """Something else whose state a run needs to continue; the same on all ranks."""

    def state(self) -> Any:
        """Return it, as tensors and plain values."""

    def restore(self, state: Any) -> None:
        """Restore what `state` returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """All that has a state.

    Args:
        context: Holds what was wrapped.
        callbacks: The trial's.
        shared: By name, what has the same state on all ranks; the chief's is saved.
    """

    context: PyTorchTrialContext
    callbacks: Callbacks
    shared: Mapping[str, SharedPart] = field(default_factory=dict)


def collect_state(
    parts: Parts, *, steps_completed: int, in_window: bool
) -> Callable[[], dict[str, Any]]:
    """Gather what each rank has of its own, and return what makes the state of it. Collective.

    Returns:
        A function to be called within `settle`, where all ranks get a failure. It returns the
        state of all ranks on the chief, nothing elsewhere; or raises what went wrong. Nothing is
        copied: the state is training's own, and changes with the next batch.
    """
    context = parts.context
    models = [parallel.model_state(model) for model in context.models]
    optimizers = [parallel.optimizer_state(context.models, o) for o in context.optimizers]
    gathered = gather_later(context.distributed, lambda: _own_state(parts, in_window=in_window))

    def whole() -> dict[str, Any]:
        ranks = gathered()
        if ranks is None:
            return {}
        return {
            "format": FORMAT,
            "steps_completed": steps_completed,
            "size": context.distributed.size,
            "in_window": in_window,
            "models": models,
            "optimizers": optimizers,
            "lr_schedulers": [item.scheduler.state_dict() for item in context.lr_schedulers],
            "scaler": context.scaler.state_dict() if context.scaler is not None else None,
            "callbacks": parts.callbacks.state_dict(),
            "parts": {name: part.state() for name, part in parts.shared.items()},
            **{name: [rank[name] for rank in ranks] for name in ranks[0]},
        }

    return whole


def _own_state(parts: Parts, *, in_window: bool) -> dict[str, Any]:
    """Return what is this rank's own. Collective."""
    context = parts.context
    return {
        "own_callbacks": _own_callbacks(parts),
        "rng_states": get_states(context.device),
        "gradients": [parallel.gradients(m) for m in context.models] if in_window else None,
        "exchanges": parallel.rank_state(context.models),
        "reducers": context.reducers.state(),
        "stop_requested": context.get_stop_requested(),
    }


def _own_callbacks(parts: Parts) -> dict[str, Any] | None:
    """Return the states of this rank's callbacks, None if they are the chief's. Collective.

    Mostly they are, and may be large (averaged weights): so digests are compared.
    """
    if not parts.callbacks.keep_state:
        return None
    failure: Exception | None = None
    state, digest = {}, b""
    try:
        state = parts.callbacks.state_dict()
        content = io.BytesIO()
        torch.save(state, content)
        digest = hashlib.blake2b(content.getbuffer()).digest()
    except Exception as error:  # the user's code; raised after the collective
        failure = error
    chiefs = parts.context.distributed.broadcast(digest)
    if failure is not None:
        raise failure
    return None if digest == chiefs else state


def snapshot_state(state: dict[str, Any], memory: SnapshotMemory, parts: Parts) -> dict[str, Any]:
    """Return a copy that training will not touch, complete when this returns.

    Raises:
        ConfigError: What of it cannot be saved, and whose it is.
    """
    snapshot = Snapshot(memory)
    copied: dict[str, Any] = snapshot.take(state)
    memory.wait()
    if snapshot.unsafe:
        raise ConfigError([_describe(*unsafe, parts.context) for unsafe in snapshot.unsafe])
    return copied | {"arrays": snapshot.arrays}


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write a snapshot into the folder of a checkpoint.

    Raises:
        OSError: There is no room for it.
    """
    file = path / STATE_FILE
    try:
        torch.save(state, file)
    except RuntimeError as error:  # torch does not give the cause
        free = shutil.disk_usage(path).free  # of the whole disk, not of what the user may use
        if free >= _LITTLE and not why_no_room(path):
            raise
        why = f"{os.strerror(errno.ENOSPC)} ({free} bytes free)"
        raise OSError(errno.ENOSPC, why, str(path.parent)) from error
    torch.load(file, map_location="cpu", weights_only=True, mmap=True)  # reads no data: it maps


def _describe(path: StatePath, kind: str, context: PyTorchTrialContext) -> str:
    """Return what cannot be saved, by the name of what it belongs to."""
    section, *inner = path
    whose = str(section)
    if section == "callbacks":
        whose = f"callback {inner.pop(0)!r}" if inner else "callbacks"
    elif section in ("lr_schedulers", "optimizers", "models") and inner:
        index = inner.pop(0)
        assert isinstance(index, int)
        wrapped: list[Any] = getattr(context, str(section))
        thing = getattr(wrapped[index], "scheduler", wrapped[index])
        thing = parallel.unwrap(thing) if section == "models" else thing
        whose = f"{str(section)[:-1]} {index} ({type(thing).__name__})"
    key = "".join(f"[{part!r}]" for part in inner)
    return (
        f"checkpoint: {whose}: its state{key} is a {kind}, which a safe load refuses; "
        "keep tensors, arrays, numbers, strings, lists and dicts in it"
    )
