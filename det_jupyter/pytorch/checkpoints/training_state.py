"""The state of a training run: collecting it, copying it, and writing it into a checkpoint.

    state_dict.pt   format, steps_completed, size (ranks), in_window
                    models, optimizers, lr_schedulers, scaler, callbacks, parts: of all ranks
                    own_callbacks, rng_states, gradients, exchanges, reducers, stop_requested: of
                    each rank
                    validation_due: the validation that is still due after the last batch
                    built: optimizers and schedulers as the trial made them (configured.py)
                    arrays: paths of numpy's arrays and numbers

`state_dict.pt` holds tensors and plain values only, so that `torch.load(weights_only=True)` reads
it. Models are saved as the user made them, without DDP's `module.` in their names.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from traceback import clear_frames
from typing import Any, Protocol

import torch

from det_jupyter.contract.host.disk_space import why_no_room
from det_jupyter.core.together import gather_later
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import parallel
from det_jupyter.pytorch.checkpoints.state_snapshot import Path as StatePath
from det_jupyter.pytorch.checkpoints.state_snapshot import SnapshotMemory, StateSnapshot
from det_jupyter.pytorch.rng import RngStates, get_states
from det_jupyter.pytorch.trial.callback_runner import Callbacks
from det_jupyter.pytorch.trial.context import PyTorchTrialContext

STATE_FILE = "state_dict.pt"
FORMAT = 3
_SYNC_S = 0.02
_NO_ROOM = 1 << 20  # bytes: a write that has filled the disk leaves less free


class SharedPart(Protocol):
    """An object whose state a run needs to continue; the state is the same on all ranks."""

    def state(self) -> Any:
        """Return the state: tensors and plain values."""

    def restore(self, state: Any) -> None:
        """Restore what `state` returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The objects whose state is saved.

    Args:
        context: Has the wrapped models, optimizers, schedulers and reducers.
        callbacks: The trial's callbacks.
        shared: Further objects by name, whose state is the same on all ranks.
        built: Values of optimizers and schedulers as the trial made them (configured.py).
    """

    context: PyTorchTrialContext
    callbacks: Callbacks
    shared: Mapping[str, SharedPart] = field(default_factory=dict)
    built: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStates:
    """Whole states of models and optimizers, and what `parallel.rank_state` returns, by rank."""

    models: list[dict[str, Any]]
    optimizers: list[dict[str, Any]]
    exchanges: list[Any]


def collect_state(
    parts: Parts, *, steps_completed: int, in_window: bool
) -> Callable[[], dict[str, Any]]:
    """Gather the state of each rank; return a function that returns all states. Collective.

    Returns:
        A function to be called within `settle`, so that all ranks get an error. On the chief it
        returns the state of all ranks, on other ranks an empty dict. Nothing is copied: the
        tensors are those of the training, and change with the next batch.
    """
    context = parts.context
    shared = _shared_state(parts, steps_completed=steps_completed, in_window=in_window)
    gathered = gather_later(context.distributed, lambda: _own_state(parts, in_window=in_window))

    def whole() -> dict[str, Any]:
        ranks = gathered()
        return {} if ranks is None else shared() | _by_name(ranks)

    return whole


def state_for_all(
    parts: Parts,
    *,
    steps_completed: int,
    rng_states: list[RngStates],
    divided: ModelStates | None = None,
) -> dict[str, Any]:
    """Return the state of all ranks as this one has it, with the states of their generators.

    Not collective: other ranks have ended. The states of this rank stand for those that ranks have
    of their own, which are usually equal.

    Args:
        divided: The states of models that are divided among the ranks; None: there are none.
    """
    own = {
        "own_callbacks": None,
        "gradients": None,
        "exchanges": None,
        "reducers": parts.context.reducers.state(),
        "stop_requested": parts.context.get_stop_requested(),
    }
    shared = _shared_state(
        parts, steps_completed=steps_completed, in_window=False, divided=divided
    )
    ranks = [own | {"rng_states": states} for states in rng_states]
    exchanges = {"exchanges": divided.exchanges} if divided else {}
    return shared() | _by_name(ranks) | exchanges | {"validation_due": None}


def _shared_state(
    parts: Parts, *, steps_completed: int, in_window: bool, divided: ModelStates | None = None
) -> Callable[[], dict[str, Any]]:
    """Return a function that returns what all ranks have alike.

    Collective if models are divided, and their states are not given.

    Only the function calls code of the user.
    """
    context = parts.context
    if divided is not None:
        models, optimizers = divided.models, divided.optimizers
    else:
        models = [parallel.model_state(model) for model in context.models]
        optimizers = [parallel.optimizer_state(context.models, o) for o in context.optimizers]
    return lambda: {
        "format": FORMAT,
        "steps_completed": steps_completed,
        "size": context.distributed.size,
        "in_window": in_window,
        "models": models,
        "optimizers": optimizers,
        "lr_schedulers": [item.scheduler.state_dict() for item in context.lr_schedulers],
        "built": parts.built,
        "scaler": context.scaler.state_dict() if context.scaler is not None else None,
        "callbacks": parts.callbacks.state_dict(),
        "parts": {name: part.state() for name, part in parts.shared.items()},
    }


def _by_name(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: [rank[name] for rank in ranks] for name in ranks[0]}


def _own_state(parts: Parts, *, in_window: bool) -> dict[str, Any]:
    """Return the state that each rank has of its own. Collective."""
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
    """Return the states of this rank's callbacks; None if equal to the chief's. Collective.

    The states are usually equal, and may be large (averaged weights), so digests are compared.
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
    except Exception as error:  # user code failed; raised after the collective
        failure = error
    chiefs = parts.context.distributed.broadcast(digest)
    if failure is not None:
        raise failure
    return None if digest == chiefs else state


def snapshot_state(
    state: dict[str, Any], memory: SnapshotMemory, parts: Parts, *, is_still: bool = False
) -> dict[str, Any]:
    """Return a copy of the state that is independent of the training.

    Args:
        state: The state.
        memory: For the copies.
        parts: The objects whose state it is, for messages.
        is_still: Whether the training stands still; see `StateSnapshot`.

    Raises:
        ConfigError: Values cannot be saved; the error names each, and the object it belongs to.
    """
    snapshot = StateSnapshot(memory, is_still)
    copied: dict[str, Any] = snapshot.take(state)
    memory.wait()
    if snapshot.unsafe:
        raise ConfigError([_describe(*unsafe, parts.context) for unsafe in snapshot.unsafe])
    return copied | {"arrays": snapshot.arrays}


def size_of(state: Any) -> int:
    """Return the size in bytes of a state's tensors, which is about its size in a file."""
    if isinstance(state, torch.Tensor):
        return state.numel() * state.element_size()
    if isinstance(state, Mapping):
        return sum(map(size_of, state.values()))
    return sum(map(size_of, state)) if isinstance(state, list | tuple) else 0


def write_state(path: Path, state: dict[str, Any], before: str = "") -> None:
    """Write a snapshot into the folder of a checkpoint.

    Args:
        path: The folder.
        state: The snapshot.
        before: The path of the checkpoint before, which need not stay in memory; "": none.

    Raises:
        OSError: The disk is full.
    """
    file, handled = path / STATE_FILE, sys.exc_info()[1]
    if before:
        _drop_from_memory(Path(before) / STATE_FILE)
    try:
        with _syncing(file):
            torch.save(state, file)
    except RuntimeError as error:  # torch's error has no cause
        _free_frames(error, handled)
        free = shutil.disk_usage(path).free  # the user's quota may leave less
        if free >= _NO_ROOM and not why_no_room(path):
            raise
        why = f"{os.strerror(errno.ENOSPC)} ({free} bytes free)"
        raise OSError(errno.ENOSPC, why, str(path.parent)) from error
    # Verifies the structure; the data is mapped, not read.
    torch.load(file, map_location="cpu", weights_only=True, mmap=True)


def _free_frames(error: BaseException | None, handled: BaseException | None) -> None:
    """Free what the frames of an error hold, and those of errors before it, up to `handled`.

    They are torch's, and hold the file open. So it would fill the disk after it is removed, for as
    long as its writer waits for room.
    """
    while error is not None and error is not handled:
        clear_frames(error.__traceback__)
        error = error.__context__


def _drop_from_memory(file: Path) -> None:
    """Free the memory in which the system keeps a file, for the file that is written next.

    New memory costs most of a write where the host of a virtual machine has to provide it: [m]
    200 MB take 0.11 instead of 0.36 s of CPU time.
    """
    if hasattr(os, "posix_fadvise"):  # macOS lacks it
        with suppress(OSError):  # in a bucket, or deleted
            opened = os.open(file, os.O_RDONLY)
            try:
                os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(opened)


@contextmanager
def _syncing(file: Path) -> Iterator[None]:
    """Sync the file again and again while the block writes it, so that little is left at its end.

    [m] 0.03 s instead of 0.12 s after 200 MB were written.

    Raises:
        OSError: Data could not be written to the disk. A later sync would not raise it again.
    """
    is_over, errors = Event(), list[OSError]()
    sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has the second only

    def sync() -> None:
        try:
            while not is_over.wait(_SYNC_S):
                sync_data(opened)
        except OSError as error:
            errors.append(error)

    thread = Thread(target=sync, name="det-checkpoint-sync")
    opened = os.open(file, os.O_WRONLY | os.O_CREAT, 0o666)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        os.close(opened)
    if errors:
        raise errors[0]


def _describe(path: StatePath, kind: str, context: PyTorchTrialContext) -> str:
    """Return the message for a value that cannot be saved, named by the object it belongs to."""
    section, *inner = path
    owner = str(section)
    if section == "callbacks":
        owner = f"callback {inner.pop(0)!r}" if inner else "callbacks"
    elif section in ("lr_schedulers", "optimizers", "models") and inner:
        index = inner.pop(0)
        assert isinstance(index, int)
        wrapped: list[Any] = getattr(context, str(section))
        item = getattr(wrapped[index], "scheduler", wrapped[index])
        item = parallel.unwrap(item) if section == "models" else item
        owner = f"{str(section)[:-1]} {index} ({type(item).__name__})"
    key = "".join(f"[{part!r}]" for part in inner)
    return (
        f"checkpoint: {owner}: its state{key} is a {kind}, which a safe load refuses; "
        "keep tensors, arrays, numbers, strings, lists and dicts in it"
    )
