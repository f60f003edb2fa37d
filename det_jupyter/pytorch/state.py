"""The state of a training run, between memory and the folder of a checkpoint.

    state_dict.pt      models, optimizers, lr_schedulers, scaler, callbacks: the same on every rank
                       rng_states, gradients: one for each rank
                       validation_due: the validation after the last batch is still to come
    load_data.json     what it takes to build the trial again: capsule, configuration, hparams

`state_dict.pt` holds tensors and plain values only, so that `torch.load(weights_only=True)` reads
it. Models are saved as the user made them, without DDP's `module.` in their names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import nn

from det_jupyter.core import CheckpointContext
from det_jupyter.errors import CheckpointError
from det_jupyter.pytorch.callbacks import PyTorchCallback
from det_jupyter.pytorch.context import PyTorchTrialContext
from det_jupyter.pytorch.distributed_model import unwrap
from det_jupyter.pytorch.rng import get_states, set_states
from det_jupyter.wire import GangPlan

STATE_FILE = "state_dict.pt"
LOAD_DATA_FILE = "load_data.json"
FORMAT = 1

Callbacks = Mapping[str, PyTorchCallback]


def save_checkpoint(
    storage: CheckpointContext,
    context: PyTorchTrialContext,
    callbacks: Callbacks,
    plan: GangPlan,
    *,
    steps_completed: int,
    in_window: bool,
    validation_due: bool,
) -> None:
    """Save the state of all ranks as one checkpoint, written by the chief. Collective.

    Args:
        storage: Where to.
        context: Holds what was wrapped.
        callbacks: Their states are saved by name.
        plan: Says what it takes to build the trial again.
        steps_completed: Batches trained.
        in_window: Gradients of a part of an aggregation window are waiting for the rest of it.
        validation_due: The validation after these batches is still to come.
    """
    state = collect_state(context, callbacks, in_window=in_window)
    if context.distributed.is_chief:
        state["validation_due"] = validation_due
    for callback in callbacks.values():
        callback.on_checkpoint_save_start(state)
    uuid = ""
    if context.distributed.is_chief:
        with storage.store_path({"steps_completed": steps_completed}) as (path, uuid):
            write_state(path, state, plan)
            for callback in callbacks.values():
                callback.on_checkpoint_write_end(path)
    if callbacks:
        uuid = context.distributed.broadcast(uuid)
        for callback in callbacks.values():
            callback.on_checkpoint_upload_end(uuid)


def collect_state(
    context: PyTorchTrialContext, callbacks: Callbacks, *, in_window: bool
) -> dict[str, Any]:
    """Return the state of all ranks on the chief, nothing elsewhere. Collective."""
    gradients = [_gradients(model) for model in context.models] if in_window else None
    per_rank = context.distributed.gather((get_states(context.device), gradients))
    if per_rank is None:
        return {}
    state = {
        "format": FORMAT,
        "models": [unwrap(model).state_dict() for model in context.models],
        "optimizers": [optimizer.state_dict() for optimizer in context.optimizers],
        "lr_schedulers": [item.scheduler.state_dict() for item in context.lr_schedulers],
        "scaler": context.scaler.state_dict() if context.scaler is not None else None,
        "callbacks": {name: callback.state_dict() for name, callback in callbacks.items()},
        "rng_states": [states for states, _ in per_rank],
        "gradients": [gradients for _, gradients in per_rank] if in_window else None,
    }
    plain: dict[str, Any] = _plain(state)
    return plain


def write_state(path: Path, state: dict[str, Any], plan: GangPlan) -> None:
    """Write the chief's `collect_state` into the folder of a checkpoint.

    Raises:
        CheckpointError: A state holds something that could not be read back safely.
    """
    torch.save(state, path / STATE_FILE)
    _check_readable(path / STATE_FILE)
    load_data = {
        "format": FORMAT,
        "trial_class": plan.capsule.entrypoint,
        "capsule": plan.capsule.model_dump(mode="json"),
        "config": plan.config,
        "hparams": plan.hparams,
        "seed": plan.seed,
        "experiment_id": plan.experiment_id,
        "trial_id": plan.trial_id,
    }
    (path / LOAD_DATA_FILE).write_text(json.dumps(load_data, indent=2), encoding="utf-8")


def read_state(path: Path) -> dict[str, Any]:
    """Return the state in the folder of a checkpoint, on the CPU.

    Raises:
        CheckpointError: It is not there, or cannot be read.
    """
    try:
        state: dict[str, Any] = torch.load(
            path / STATE_FILE, map_location="cpu", weights_only=True
        )
    except FileNotFoundError:
        raise CheckpointError(f"{path} holds no training state: no {STATE_FILE}") from None
    except Exception as error:  # torch raises whatever its unpickler and zip reader do
        raise CheckpointError(f"{path / STATE_FILE} cannot be read: {error}") from error
    return state


def _check_readable(file: Path) -> None:
    """Refuse what cannot be loaded now, not when it is needed. Reads no data: it maps."""
    try:
        torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises whatever its unpickler does
        raise CheckpointError(
            "the trial's state holds something that a safe load refuses; keep numbers, strings, "
            f"tensors, lists and dicts in the state of models, schedulers and callbacks: {error}"
        ) from error


def restore_models(context: PyTorchTrialContext, state: dict[str, Any], where: str) -> None:
    """Load the models' weights."""
    _check_count(where, "wrap_model", context.models, state["models"])
    for index, (model, saved) in enumerate(zip(context.models, state["models"], strict=True)):
        try:
            unwrap(model).load_state_dict(saved)
        except RuntimeError as error:
            raise CheckpointError(
                f"{where}: model {index} is not the one that was saved: {error}"
            ) from None


def restore_training(
    context: PyTorchTrialContext, callbacks: Callbacks, state: dict[str, Any], where: str
) -> None:
    """Load what else the next batch depends on, generators excepted."""
    _check_count(where, "wrap_optimizer", context.optimizers, state["optimizers"])
    _check_count(where, "wrap_lr_scheduler", context.lr_schedulers, state["lr_schedulers"])
    for optimizer, saved in zip(context.optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    for item, saved in zip(context.lr_schedulers, state["lr_schedulers"], strict=True):
        item.scheduler.load_state_dict(saved)
    if context.scaler is not None and state["scaler"] is not None:
        context.scaler.load_state_dict(state["scaler"])
    for name, callback in callbacks.items():
        if name in state["callbacks"]:
            callback.load_state_dict(state["callbacks"][name])
    gradients = state["gradients"]
    if gradients is not None and len(gradients) == context.distributed.size:
        for model, saved in zip(context.models, gradients[context.distributed.rank], strict=True):
            _set_gradients(model, saved)


def restore_generators(context: PyTorchTrialContext, state: dict[str, Any]) -> None:
    """Set this rank's generators, unless the number of ranks has changed."""
    if len(state["rng_states"]) == context.distributed.size:
        set_states(state["rng_states"][context.distributed.rank], context.device)


def _gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {
        name: parameter.grad.cpu()
        for name, parameter in unwrap(model).named_parameters()
        if parameter.grad is not None
    }


def _set_gradients(model: nn.Module, saved: Mapping[str, torch.Tensor]) -> None:
    for name, parameter in unwrap(model).named_parameters():
        if name in saved:
            parameter.grad = saved[name].to(parameter.device)


def _check_count(where: str, method: str, wrapped: list[Any], saved: list[Any]) -> None:
    if len(wrapped) != len(saved):
        raise CheckpointError(
            f"{where}: the trial calls {method} {len(wrapped)} times; "
            f"it did {len(saved)} times when the checkpoint was saved"
        )


def _plain(value: Any) -> Any:
    """Return the value without numpy's scalars and arrays, which a safe load refuses."""
    if isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, numpy.ndarray):
        return torch.from_numpy(value.copy())
    if type(value) is dict:
        return {key: _plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(item) for item in value)
    return value  # kept as it is: an OrderedDict has attributes, a Counter its methods
