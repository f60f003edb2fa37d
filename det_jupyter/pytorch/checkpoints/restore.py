"""Reading the state of a training run from a checkpoint, and restoring it (training_state.py).

A run that continues on the same number of ranks gets the whole state back, bit for bit. On another
number of ranks it gets the same records in the same order, and the sum of an unfinished window's
gradients; but each rank's generators are seeded anew from seed, rank and batch.
"""

from __future__ import annotations

import copy
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch

from det_jupyter.contract.values.text import count
from det_jupyter.errors import CheckpointError
from det_jupyter.pytorch import parallel
from det_jupyter.pytorch.checkpoints.configured import apply_configured, built_otherwise
from det_jupyter.pytorch.checkpoints.of_determined import (
    DETERMINED_FILE,
    allowing_arrays,
    convert_state,
)
from det_jupyter.pytorch.checkpoints.state_snapshot import restore_arrays
from det_jupyter.pytorch.checkpoints.training_state import FORMAT, STATE_FILE, Parts
from det_jupyter.pytorch.rng import derive_seed, seed_everything, set_states
from det_jupyter.pytorch.trial.context import PyTorchTrialContext

# These take most of a file. They stay mapped from the file, so the functions that load them have
# to copy them.
_MAPPED = frozenset({"models", "optimizers", "gradients", "exchanges", "rng_states"})
_CHUNK = 2**20


def read_state(path: Path, *, checked: slice = slice(None), **options: Any) -> dict[str, Any]:
    """Return the state in the folder of a checkpoint, on the CPU.

    Models, optimizers and the states of single ranks are mapped from the file, so that the ranks
    of a computer share the memory and read only what they load. They stay valid if the file is
    removed; changing them does not change the file.

    Args:
        path: The folder.
        checked: Which parts of the file, the largest first, are compared with their checksums; it
            is enough if the ranks of a computer compare all of them together.
        options: Further arguments of `torch.load`.

    Raises:
        CheckpointError: There is no state, or it is damaged or cannot be read.
    """
    defaults: dict[str, Any] = {"map_location": "cpu", "weights_only": True, "mmap": True}
    file, other = path / STATE_FILE, path / DETERMINED_FILE
    if is_determined := other.exists() and not file.exists():  # users may write such a file, too
        file = other
    try:
        _check_sums(file, checked)
        with allowing_arrays() if is_determined else nullcontext():
            state: dict[str, Any] = torch.load(file, **(defaults | options))
    except CheckpointError:
        raise
    except FileNotFoundError:
        raise CheckpointError(f"{path} holds no training state: no {STATE_FILE}") from None
    except Exception as error:  # torch's unpickler and zip reader raise errors of many types
        raise CheckpointError(f"{file} cannot be read: {error}") from error
    if is_determined:
        return convert_state(state, path)
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        given = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise CheckpointError(
            f"{file} is of format {given!r}, expected {FORMAT}: "
            "another version of det_jupyter wrote it, or something else"
        )
    revived: dict[str, Any] = restore_arrays(state, state["arrays"])
    copied = copy.deepcopy({name: revived[name] for name in revived if name not in _MAPPED})
    return revived | copied


def _check_sums(file: Path, checked: slice) -> None:
    """Verify checksums of the file, which torch writes but does not verify.

    This takes 0.6 s for 400 MB, of 1.8 s for the whole loading.

    Raises:
        CheckpointError: Bits have changed on the disk.
    """
    with ZipFile(file) as archive:
        parts = sorted(archive.infolist(), key=lambda part: -part.file_size)
        if not any(part.CRC for part in parts):  # the user has switched them off in torch
            return
        for part in parts[checked]:
            try:
                with archive.open(part) as content:
                    while content.read(_CHUNK):
                        pass
            except BadZipFile:
                raise CheckpointError(
                    f"{file} is damaged: {part.filename} in it is not what was written; take "
                    "another checkpoint"
                ) from None


def restore_models(context: PyTorchTrialContext, state: dict[str, Any], where: str) -> None:
    """Load the models' weights. Collective.

    Raises:
        CheckpointError: The state does not fit these models.
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
    """Load everything else that the next batch depends on, except generators. Collective.

    Raises:
        CheckpointError: The state does not fit this trial.
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
    if context.scaler is not None and state["scaler"]:  # {}: the scaler was switched off
        context.scaler.load_state_dict(state["scaler"])
    is_same_size = state["size"] == context.distributed.size
    own = state["own_callbacks"][context.distributed.rank] if is_same_size else None
    # A rank without a state of its own uses the chief's.
    parts.callbacks.load_state_dict(own or state["callbacks"])
    for name, part in parts.shared.items():
        if name in state["parts"]:
            part.restore(state["parts"][name])
    _restore_rank(context, state)


def apply_changed(parts: Parts, state: dict[str, Any], hparams: list[str]) -> None:
    """Apply changes of the configuration to restored optimizers and schedulers (configured.py).

    The chief reports the changes on stderr.

    Args:
        hparams: The hyperparameters that were changed, such as `lr 0.1 → 0.01`.
    """
    context, steps = parts.context, state["steps_completed"]
    then, now = state.get("built"), parts.built
    line = ""
    if not hparams:
        if then and now and (otherwise := built_otherwise(then, now)):
            line = (
                f"training goes on at batch {steps} with the optimizer of the checkpoint, though "
                f"the trial makes it otherwise now ({', '.join(otherwise)}): no hyperparameter "
                "was changed"
            )
    else:
        line = f"training goes on at batch {steps} with other hyperparameters: "
        line += f"{', '.join(hparams)}. "
        if then is None or now is None:  # older checkpoints have none
            line += "Optimizers and schedulers stay as the checkpoint has them: it does not say "
            line += "how they were made"
        else:
            changed = apply_configured(context, then, now)
            line += "; ".join(changed) or "Optimizers and schedulers are made as before"
    if line and context.distributed.is_chief:
        sys.stderr.write(f"{line}\n")


def _restore_rank(context: PyTorchTrialContext, state: dict[str, Any]) -> None:
    """Load the state that each rank has of its own."""
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
    requested = state["stop_requested"]
    context.set_stop_requested(requested[rank] if is_same_size else any(requested))
    if is_same_size:
        parallel.load_rank_state(context.models, copy.deepcopy(state["exchanges"][rank]))


def _copy_mapped(optimizer: torch.optim.Optimizer) -> None:
    """Copy the optimizer's tensors on the CPU: torch has loaded them as mapped from the file."""
    copies: dict[int, Any] = {}  # shared tensors stay shared
    for values in optimizer.state.values():
        for name, value in values.items():
            if not isinstance(value, torch.Tensor):
                values[name] = copy.deepcopy(value, copies)
            elif value.device.type == "cpu":
                values[name] = copies.setdefault(id(value), value.clone())


def restore_generators(context: PyTorchTrialContext, state: dict[str, Any], seed: int) -> None:
    """Set this rank's generators. Call it last, since restoring other state may draw from them.

    If the number of ranks differs from that of the checkpoint, the generators are seeded anew.
    """
    distributed, steps = context.distributed, state["steps_completed"]
    if state["size"] == distributed.size:
        set_states(state["rng_states"][distributed.rank], context.device)
        return
    reseed_for(seed, distributed.rank, steps)
    if distributed.is_chief and not state["size"]:
        sys.stderr.write(
            f"training goes on at batch {steps} with the state that Determined saved; what ranks "
            "draw at random (dropout, augmentation) is drawn anew\n"
        )
    elif distributed.is_chief:
        now, saved = (count(size, "rank") for size in (distributed.size, state["size"]))
        sys.stderr.write(
            f"training goes on at batch {steps} on {now}, saved on {saved}: the same records come "
            "in the same order; sums are rounded otherwise, and what ranks draw at random "
            "(dropout, augmentation) is drawn anew\n"
        )


def reseed_for(seed: int, rank: int, steps_completed: int) -> None:
    """Seed this rank's generators anew, at this position in the training.

    The saved states belong to other ranks; with the trial's seed alone, the numbers from the
    beginning of the training would repeat.
    """
    seed_everything(derive_seed("resumed", seed, rank, steps_completed))


def _check_count(where: str, method: str, wrapped: list[Any], saved: list[Any]) -> None:
    if len(wrapped) != len(saved):
        raise CheckpointError(
            f"{where}: the trial calls {method} {len(wrapped)} times; "
            f"it did {len(saved)} times when the checkpoint was saved"
        )
