"""Getting and loading the states of models, optimizers and the exchange of gradients.

A state is the same however the model was trained: by its user's own names, whole, on any number of
ranks. So one rank without `torch.distributed` loads what many have saved, and the other way round.

Gradients are an exception: in a window that is not finished, each rank has its own. A sharded
model's are exchanged after every batch: the chief saves the mean so far, marked as such.

Buffers that depend on the data (running statistics) differ between the ranks too. A replicated
model takes the chief's as a window begins, so each rank has its own within a window; a sharded or
an untrained model keeps each rank's forever. The model's state has the chief's, and `rank_state`
what the others have instead.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from det_jupyter.pytorch.parallel.compression import LowRank
from det_jupyter.pytorch.parallel.replicas import DistributedModel
from det_jupyter.pytorch.parallel.sharding import divided_like, is_sharded, to_full
from det_jupyter.pytorch.parallel.wrapping import as_bytes, unwrap

_COMPILED = "_orig_mod."  # what torch.compile(model) puts into names
_REPLICATED = "module."  # what DDP puts before them
_DIGEST = 32  # bytes
_MEAN = "mean:"  # before the name of a gradient that is the mean over the ranks already


def model_state(model: nn.Module) -> dict[str, Any]:
    """Return the model's state by the names that the user gave. Collective where sharded.

    Tensors are the model's own, not copies, unless it is sharded: then they are whole and on the
    CPU, on the chief; the other ranks get nothing.
    """
    state = _without(unwrap(model).state_dict(), _COMPILED)
    if not is_sharded(model):
        return state
    full = to_full(state, keep=_is_chief())
    return dict(full) if _is_chief() else {}


def load_model_state(model: nn.Module, state: Mapping[str, Any]) -> None:
    """Load what `model_state` returned, or what DDP or a compiled model had as its state.

    Every rank gets all of the state. The model may be wrapped or not.

    Raises:
        RuntimeError: It is another model's: torch's message, with the names.
    """
    own = unwrap(model)
    targets = {name.replace(_COMPILED, ""): name for name in own.state_dict()}
    given = _without(state, _COMPILED)
    is_replicas = given and all(name.startswith(_REPLICATED) for name in given)
    if is_replicas and not given.keys() & targets:
        given = _renamed(given, lambda name: name.removeprefix(_REPLICATED))
    parts = dict(own.state_dict()) if is_sharded(model) else {}
    loaded: dict[str, Any] = _renamed(given, lambda name: targets.get(name, name))
    for name, part in parts.items():
        if name in loaded and loaded[name].shape == part.shape:
            loaded[name] = divided_like(loaded[name], part)
    own.load_state_dict(loaded)


def optimizer_state(
    models: Sequence[nn.Module], optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """Return the optimizer's state, as its own `state_dict` numbers it. Collective where sharded.

    Tensors are the optimizer's own, not copies, unless a model is sharded: then they are whole and
    on the CPU, on the chief; the other ranks get nothing.
    """
    state: dict[str, Any] = optimizer.state_dict()
    if not any(is_sharded(model) for model in models):
        return state
    full: dict[str, Any] = to_full(state, keep=_is_chief())
    return full if _is_chief() else {}


def load_optimizer_state(
    models: Sequence[nn.Module], optimizer: torch.optim.Optimizer, state: Mapping[str, Any]
) -> None:
    """Load what `optimizer_state` returned.

    Args:
        models: All wrapped ones.
        optimizer: Made from their parameters in the same order as the one that was saved.
        state: All of it, on every rank.
    """
    if any(is_sharded(model) for model in models):
        parameters = [owner for group in optimizer.param_groups for owner in group["params"]]
        parts = {
            index: {name: _part(value, parameters[index]) for name, value in values.items()}
            for index, values in state["state"].items()
        }
        state = {**state, "state": parts}
    optimizer.load_state_dict(dict(state))


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return copies of this rank's gradients on the CPU, by name. Collective where sharded."""
    found = {
        name: parameter.grad.detach()
        for name, parameter in unwrap(model).named_parameters()
        if parameter.grad is not None
    }
    if not is_sharded(model):
        return {
            name.replace(_COMPILED, ""): gradient.to("cpu", copy=True)
            for name, gradient in found.items()
        }
    full = to_full(found, keep=_is_chief())
    named = {_MEAN + name.replace(_COMPILED, ""): gradient for name, gradient in full.items()}
    return named if _is_chief() else {}


def set_gradients(model: nn.Module, saved: Mapping[str, torch.Tensor]) -> None:
    """Give the model the gradients that `gradients` returned. Collective where sharded.

    Args:
        model: With the same parameters; those that had no gradient get none.
        saved: This rank's, from as many ranks, or through `rescaled_gradients`.
    """
    parameters = {
        name.replace(_COMPILED, ""): parameter
        for name, parameter in unwrap(model).named_parameters()
    }
    if is_sharded(model):
        saved = _mean_everywhere(saved, parameters)
    for name, parameter in parameters.items():
        value = saved.get(_MEAN + name, saved.get(name))
        if value is not None:
            value = value.to(parameter.device, copy=True)
            parameter.grad = divided_like(value, parameter)


def rescaled_gradients(
    per_rank: Sequence[Mapping[str, torch.Tensor]], new_size: int
) -> list[dict[str, torch.Tensor]]:
    """Return the gradients of an unfinished window for another number of ranks.

    The mean over the new ranks, when the window ends, is what it would have been over the old
    ones: the chief gets the sum * new_size / old_size, the others nothing. Gradients that are the
    mean already go to every rank.
    """
    means = {k: v for saved in per_rank for k, v in saved.items() if k.startswith(_MEAN)}
    total: dict[str, torch.Tensor] = {}
    for saved in per_rank:
        for name, gradient in saved.items():
            if name not in means:
                total[name] = total[name] + gradient if name in total else gradient
    scale = new_size / len(per_rank)
    chief = {name: gradient * scale for name, gradient in total.items()}
    return [{**chief, **means}, *(dict(means) for _ in range(new_size - 1))]


def rank_state(models: Sequence[nn.Module]) -> list[dict[str, Any] | None] | None:
    """Return what only this rank has, by model, on the CPU; None if nothing. Collective.

    compression       what it keeps (PowerSGD's errors and factors)
    buffers           persistent ones that are not the chief's, by name
    """
    states: list[dict[str, Any] | None] = []
    for model, buffers in zip(models, _own_buffers(models), strict=True):
        memory = _memory(model)
        compression = memory.state() if memory else None
        is_own = memory is not None or buffers
        states.append({"compression": compression, "buffers": buffers} if is_own else None)
    return states if any(states) else None


def load_rank_state(
    models: Sequence[nn.Module], state: Sequence[dict[str, Any] | None] | None
) -> None:
    """Load what `rank_state` returned on this rank, of as many ranks, after the models' states.

    On another number of ranks it is left out: compression starts anew, from the chief's buffers.
    """
    for model, saved in zip(models, state or [], strict=False):
        if saved is None:
            continue
        if saved["compression"] and (memory := _memory(model)) is not None:
            memory.load(saved["compression"])
        buffers = dict(unwrap(model).named_buffers())
        for name, buffer in buffers.items():
            if (value := saved["buffers"].get(name.replace(_COMPILED, ""))) is not None:
                buffer.detach().copy_(value)


def _own_buffers(models: Sequence[nn.Module]) -> list[dict[str, torch.Tensor]]:
    """Return this rank's persistent buffers that are not the chief's, by model. Collective.

    Digests are compared, so that large ones that never change, such as masks, are not sent.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return [{} for _ in models]
    own = [_persistent_buffers(model) for model in models]
    digests = b"".join(_digest(buffer) for buffers in own for buffer in buffers.values())
    if not digests:
        return own
    mine = torch.frombuffer(bytearray(digests), dtype=torch.uint8).view(-1, _DIGEST)
    tensors = (tensor for model in models for tensor in (*model.parameters(), *model.buffers()))
    chiefs = mine.to(next(tensors).device, copy=True)  # where the ranks exchange tensors of these
    dist.broadcast(chiefs, src=0)
    differs = iter((mine != chiefs.cpu()).any(dim=1).tolist())
    return [{name: buffer for name, buffer in buffers.items() if next(differs)} for buffers in own]


def _persistent_buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    own = unwrap(model)
    saved = own.state_dict().keys()
    return {
        name.replace(_COMPILED, ""): buffer.detach().cpu()
        for name, buffer in own.named_buffers()
        if name in saved
    }


def _digest(tensor: torch.Tensor) -> bytes:
    words = f"{tensor.dtype} {tensor.shape}".encode()
    digest = hashlib.blake2b(words, digest_size=_DIGEST)
    digest.update(as_bytes(tensor).numpy().data)
    return digest.digest()


def _memory(model: nn.Module) -> LowRank | None:
    return model.low_rank if isinstance(model, DistributedModel) else None


def _mean_everywhere(
    saved: Mapping[str, torch.Tensor], parameters: Mapping[str, nn.Parameter]
) -> dict[str, torch.Tensor]:
    """Return the mean over all ranks of what each was given, on each of them. Collective."""
    given = [[_MEAN + name in saved, name in saved] for name in parameters]
    device = next(iter(parameters.values())).device
    found = torch.tensor(given, dtype=torch.int32, device=device)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    means: dict[str, torch.Tensor] = {}
    for (name, parameter), (is_mean, is_own) in zip(
        parameters.items(), found.tolist(), strict=True
    ):
        place = torch.zeros(parameter.shape, dtype=parameter.dtype, device=parameter.device)
        if is_mean:
            if _is_chief():
                place.copy_(saved[_MEAN + name])
            dist.broadcast(place, src=0)
        elif is_own:
            if name in saved:
                place.copy_(saved[name])
            dist.all_reduce(place.div_(dist.get_world_size()))
        else:
            continue
        means[_MEAN + name] = place
    return means


def _part(value: Any, parameter: torch.Tensor) -> Any:
    is_alike = isinstance(value, torch.Tensor) and value.shape == parameter.shape
    return divided_like(value, parameter) if is_alike else value


def _without(state: Mapping[str, Any], part: str) -> dict[str, Any]:
    if not any(part in name for name in state):
        return state if isinstance(state, dict) else dict(state)
    return _renamed(state, lambda name: name.replace(part, ""))


def _renamed(state: Mapping[str, Any], rename: Callable[[str], str]) -> dict[str, Any]:
    """Return the state under other names, and with the versions that modules note beside it."""
    renamed: OrderedDict[str, Any] = OrderedDict((rename(k), v) for k, v in state.items())
    if (versions := getattr(state, "_metadata", None)) is not None:
        renamed._metadata = {rename(f"{k}.")[:-1]: v for k, v in versions.items()}  # type: ignore[attr-defined]  # torch's own
    return renamed


def _is_chief() -> bool:
    return dist.get_rank() == 0
