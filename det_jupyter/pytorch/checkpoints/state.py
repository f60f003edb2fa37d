"""The state of a training run, between memory and the folder of a checkpoint.

    state_dict.pt   format, steps_completed, size (ranks), in_window
                    models, optimizers, lr_schedulers, scaler, callbacks, parts: of all ranks
                    rng_states, gradients, exchanges, reducers, stop_requested: of each rank
                    validation_due: the validation after the last batch is still to come
                    arrays: what of it was numpy's

`state_dict.pt` holds tensors and plain values only, so that `torch.load(weights_only=True)` reads
it. Models are saved as the user made them, without DDP's `module.` in their names.

A run that goes on with as many ranks gets everything back, bit for bit. With another number it
sees the same records in the same order, and the sum of the gradients in a half-finished window is
kept; but every rank's generators begin anew, from the seed, the rank and the batch.
"""

from __future__ import annotations

import copy
import hashlib
import io
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from zipfile import ZipFile

import torch

from det_jupyter.errors import CheckpointError, ConfigError
from det_jupyter.pytorch import parallel
from det_jupyter.pytorch.checkpoints.snapshot import (
    Snapshot,
    SnapshotMemory,
    Unsafe,
    revive_arrays,
)
from det_jupyter.pytorch.ranks.failures import gather_later
from det_jupyter.pytorch.rng import derive_seed, get_states, seed_everything, set_states
from det_jupyter.pytorch.trial.callbacks import Callbacks
from det_jupyter.pytorch.trial.context import PyTorchTrialContext

STATE_FILE = "state_dict.pt"
FORMAT = 3
_LITTLE = 1 << 20  # bytes: less is left where a write has filled the disk

# What takes most of a file is mapped into memory and stays there until it is loaded: whoever loads
# these copies them.
_MAPPED = frozenset({"models", "optimizers", "gradients", "exchanges", "rng_states"})


class SharedPart(Protocol):
    """Something else whose state a run needs to go on; the same on all ranks."""

    def state(self) -> Any:
        """Return it, as tensors and plain values."""

    def restore(self, state: Any) -> None:
        """Take back what `state` returned."""


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
        A function to be called where all ranks hear of failures (settling.py). It returns the
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
    except Exception as error:  # the user's code; raised when the chief has been heard
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
        raise ConfigError([_describe(unsafe, parts.context) for unsafe in snapshot.unsafe])
    return copied | {"arrays": snapshot.arrays}


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write a snapshot into the folder of a checkpoint.

    Raises:
        OSError: There is no room for it.
    """
    file = path / STATE_FILE
    try:
        torch.save(state, file)
    except RuntimeError as error:  # torch tells that it cannot write, but not why
        free = shutil.disk_usage(path).free
        if free >= _LITTLE:
            raise
        raise OSError(f"no space left in {path.parent} ({free} bytes free)") from error
    torch.load(file, map_location="cpu", weights_only=True, mmap=True)  # reads no data: it maps


def read_state(path: Path, *, is_checked: bool = True, **options: Any) -> dict[str, Any]:
    """Return the state in the folder of a checkpoint, on the CPU.

    Models, optimizers and what each rank has of its own are mapped, so that the ranks of a
    computer share the memory and read only what they load. They stay valid if the file is
    removed, and the file stays as it is if they are changed.

    Args:
        path: The folder.
        is_checked: Compare the file with its checksums first; one rank is enough for that.
        options: For `torch.load`.

    Raises:
        CheckpointError: It is not there, or damaged, or cannot be read.
    """
    defaults: dict[str, Any] = {"map_location": "cpu", "weights_only": True, "mmap": True}
    try:
        if is_checked:
            _check_sums(path / STATE_FILE)
        state: dict[str, Any] = torch.load(path / STATE_FILE, **(defaults | options))
    except CheckpointError:
        raise
    except FileNotFoundError:
        raise CheckpointError(f"{path} holds no training state: no {STATE_FILE}") from None
    except Exception as error:  # torch raises whatever its unpickler and zip reader do
        raise CheckpointError(f"{path / STATE_FILE} cannot be read: {error}") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        given = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise CheckpointError(
            f"{path / STATE_FILE} is of format {given!r}, expected {FORMAT}: "
            "another version of det_jupyter wrote it, or something else"
        )
    revived: dict[str, Any] = revive_arrays(state, state["arrays"])
    copied = copy.deepcopy({name: revived[name] for name in revived if name not in _MAPPED})
    return revived | copied


def _check_sums(file: Path) -> None:
    """Find bits that have flipped on the disk: torch writes checksums and does not read them.

    400 MB take 0.6 s, of 1.8 s that loading them takes.
    """
    with ZipFile(file) as archive:
        # All are 0 where the user has told torch to leave them out.
        has_sums = any(part.CRC for part in archive.infolist())
        damaged = archive.testzip() if has_sums else None
    if damaged is not None:
        raise CheckpointError(
            f"{file} is damaged: {damaged} in it is not what was written; take another checkpoint"
        )


def restore_models(context: PyTorchTrialContext, state: dict[str, Any], where: str) -> None:
    """Load the models' weights. Collective.

    Raises:
        CheckpointError: They are of other models.
    """
    _check_count(where, "wrap_model", context.models, state["models"])
    for index, (model, saved) in enumerate(zip(context.models, state["models"], strict=True)):
        try:
            parallel.load_model_state(model, saved)
        except RuntimeError as error:
            raise CheckpointError(
                f"{where}: model {index} is not the one that was saved: {error}"
            ) from None


def restore_training(parts: Parts, state: dict[str, Any], where: str) -> None:
    """Load what else the next batch depends on, generators excepted. Collective.

    Raises:
        CheckpointError: It is of another trial.
    """
    context = parts.context
    _check_count(where, "wrap_optimizer", context.optimizers, state["optimizers"])
    _check_count(where, "wrap_lr_scheduler", context.lr_schedulers, state["lr_schedulers"])
    for index, optimizer in enumerate(context.optimizers):
        saved = state["optimizers"][index]
        try:
            parallel.load_optimizer_state(context.models, optimizer, saved)
        except (ValueError, KeyError, RuntimeError) as error:
            raise CheckpointError(
                f"{where}: optimizer {index} is not the one that was saved: {error}"
            ) from None
        _copy_mapped(optimizer)
    for item, saved in zip(context.lr_schedulers, state["lr_schedulers"], strict=True):
        item.scheduler.load_state_dict(saved)
    if context.scaler is not None and state["scaler"]:  # one that is switched off has no state
        context.scaler.load_state_dict(state["scaler"])
    parts.callbacks.load_state_dict(_callbacks_of_rank(context, state))
    for name, part in parts.shared.items():
        if name in state["parts"]:
            part.restore(state["parts"][name])
    _restore_rank(context, state)


def _callbacks_of_rank(context: PyTorchTrialContext, state: dict[str, Any]) -> dict[str, Any]:
    """Return the states of this rank's callbacks; on other ranks than saved, the chief's."""
    is_same_size = state["size"] == context.distributed.size
    own = state["own_callbacks"][context.distributed.rank] if is_same_size else None
    chiefs: dict[str, Any] = state["callbacks"]
    return own or chiefs


def _restore_rank(context: PyTorchTrialContext, state: dict[str, Any]) -> None:
    """Load what each rank has of its own."""
    rank, size = context.distributed.rank, context.distributed.size
    is_same_size = state["size"] == size
    if state["in_window"]:
        of_ranks = state["gradients"]
        for index, model in enumerate(context.models):
            saved = [gradients[index] for gradients in of_ranks]
            if not is_same_size:
                saved = parallel.rescaled_gradients(saved, size)
            parallel.set_gradients(model, saved[rank])
    context.reducers.restore(state["reducers"], rank, size)
    wishes = state["stop_requested"]
    context.set_stop_requested(wishes[rank] if is_same_size else any(wishes))
    if is_same_size:
        parallel.load_rank_state(context.models, copy.deepcopy(state["exchanges"][rank]))


def _copy_mapped(optimizer: torch.optim.Optimizer) -> None:
    """Give the optimizer memory of its own: torch takes what is on the CPU as it is."""
    copies: dict[int, Any] = {}  # tensors that were one stay one
    for values in optimizer.state.values():
        for name, value in values.items():
            if not isinstance(value, torch.Tensor):
                values[name] = copy.deepcopy(value, copies)
            elif value.device.type == "cpu":
                values[name] = copies.setdefault(id(value), value.clone())


def restore_generators(context: PyTorchTrialContext, state: dict[str, Any], seed: int) -> None:
    """Set this rank's generators: last of all, since whatever is restored may draw from them.

    Args:
        context: This rank's.
        state: The checkpoint's.
        seed: The trial's, for generators that begin anew since the number of ranks is another.
    """
    distributed, steps = context.distributed, state["steps_completed"]
    if state["size"] == distributed.size:
        set_states(state["rng_states"][distributed.rank], context.device)
        return
    reseed_for(seed, distributed.rank, steps)
    if distributed.is_chief:
        sys.stderr.write(_told_of_other_size(state["size"], distributed.size, steps))


def reseed_for(seed: int, rank: int, steps_completed: int) -> None:
    """Seed this rank's generators for the batches from here on.

    The states that were saved belong to other ranks; the trial's seed alone would repeat the
    numbers of its beginning.
    """
    seed_everything(derive_seed("resumed", seed, rank, steps_completed))


def _told_of_other_size(saved: int, now: int, steps_completed: int) -> str:
    return (
        f"training goes on at batch {steps_completed} on {_ranks(now)}, saved on {_ranks(saved)}: "
        "the same records come in the same order; sums are rounded otherwise, and what ranks draw "
        "at random (dropout, augmentation) is drawn anew\n"
    )


def _ranks(number: int) -> str:
    return "1 rank" if number == 1 else f"{number} ranks"


def _describe(unsafe: Unsafe, context: PyTorchTrialContext) -> str:
    """Return what cannot be saved, by the name of what it belongs to."""
    section, *inner = unsafe.path
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
        f"checkpoint: {whose}: its state{key} is a {unsafe.kind}, which a safe load refuses; "
        "keep tensors, arrays, numbers, strings, lists and dicts in it"
    )


def _check_count(where: str, method: str, wrapped: list[Any], saved: list[Any]) -> None:
    if len(wrapped) != len(saved):
        raise CheckpointError(
            f"{where}: the trial calls {method} {len(wrapped)} times; "
            f"it did {len(saved)} times when the checkpoint was saved"
        )
