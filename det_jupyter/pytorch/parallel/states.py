"""Getting and loading the states of models, optimizers and the exchange of gradients.

A state does not depend on how the model was trained: it is whole and uses the user's own names, on
any number of ranks. So one rank without `torch.distributed` loads the state that many have saved,
and vice versa.

Gradients of an unfinished window are an exception: each rank has its own. Those of a sharded model
are exchanged after every batch: the chief saves the mean so far, marked by `_MEAN`.

Buffers that depend on the data (running statistics) differ between the ranks too. A replicated
model takes the chief's at the beginning of a window, so ranks differ within one; a sharded or an
untrained model keeps each rank's own always. The model's state has the chief's buffers, and
`rank_state` those of the other ranks.
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

_COMPILED = "_orig_mod."  # inserted into names by torch.compile(model)
_REPLICATED = "module."  # DDP's prefix of names
_DIGEST = 32  # bytes
_MEAN = "mean:"  # prefix of the name of a gradient that is the mean over the ranks already


def own_model_state(model: nn.Module) -> dict[str, Any]:
    """Return the model's state by the names that the user gave: of a sharded one, divided."""
    return _without(unwrap(model).state_dict(), _COMPILED)


def model_state(model: nn.Module) -> dict[str, Any]:
    """Return the model's state by the names that the user gave. Collective where sharded.

    Tensors are the model's own, not copies, unless it is sharded: then the chief gets whole
    tensors on the CPU, and the other ranks an empty dict.
    """
    state = own_model_state(model)
    if not is_sharded(model):
        return state
    full = to_full(state, keep=_is_chief())
    return dict(full) if _is_chief() else {}


def load_model_state(model: nn.Module, state: Mapping[str, Any]) -> None:
    """Load what `model_state` returned, or the `state_dict` of a DDP or compiled model.

    Every rank gets all of the state. The model may be wrapped or not.

    Raises:
        RuntimeError: The state is another model's; torch's message has the names.
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
    """Return the optimizer's `state_dict`. Collective where sharded.

    Tensors are the optimizer's own, not copies, unless a model is sharded: then the chief gets
    whole tensors on the CPU, and the other ranks an empty dict.
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
        models: All wrapped models.
        optimizer: Created with their parameters in the same order as the one that was saved.
        state: The whole state, on every rank.
    """
    if any(is_sharded(model) for model in models):
        parameters = [owner for group in optimizer.param_groups for owner in group["params"]]

        def part_like(value: Any, parameter: torch.Tensor) -> Any:
            is_alike = isinstance(value, torch.Tensor) and value.shape == parameter.shape
            return divided_like(value, parameter) if is_alike else value

        parts = {
            index: {name: part_like(value, parameters[index]) for name, value in values.items()}
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
    """Set the model's gradients to what `gradients` returned. Collective where sharded.

    Args:
        model: Has the same parameters. Those without a saved gradient are left as they are.
        saved: This rank's gradients, of the same number of ranks or from `rescaled_gradients`.
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
    """Return the gradients of an unfinished window for `new_size` ranks, by rank.

    The mean over the new ranks at the end of the window is the same as over the old ones: the
    chief gets the sum * new_size / old_size, the others nothing. Gradients that are means already
    are given to every rank.
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
    """Return the state that only this rank has, by model, on the CPU; None if none. Collective.

    compression       PowerSGD's errors and factors
    buffers           persistent buffers that differ from the chief's, by name
    """
    states: list[dict[str, Any] | None] = []
    for model, buffers in zip(models, _own_buffers(models), strict=True):
        low_rank = _low_rank(model)
        compression = low_rank.state() if low_rank else None
        has_state = low_rank is not None or buffers
        states.append({"compression": compression, "buffers": buffers} if has_state else None)
    return states if any(states) else None


def load_rank_state(
    models: Sequence[nn.Module], state: Sequence[dict[str, Any] | None] | None
) -> None:
    """Load what `rank_state` returned on this rank, after the models' states.

    Call it only on the same number of ranks. On another number, compression starts anew, and every
    rank has the chief's buffers.
    """
    for model, saved in zip(models, state or [], strict=False):
        if saved is None:
            continue
        if saved["compression"] and (low_rank := _low_rank(model)) is not None:
            low_rank.load(saved["compression"])
        buffers = dict(unwrap(model).named_buffers())
        for name, buffer in buffers.items():
            if (value := saved["buffers"].get(name.replace(_COMPILED, ""))) is not None:
                buffer.detach().copy_(value)


def _own_buffers(models: Sequence[nn.Module]) -> list[dict[str, torch.Tensor]]:
    """Return this rank's persistent buffers that differ from the chief's, by model. Collective.

    Digests are compared, so that large buffers that never change, such as masks, are not sent.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return [{} for _ in models]
    own = [_persistent_buffers(model) for model in models]

    def digest(tensor: torch.Tensor) -> bytes:
        description = f"{tensor.dtype} {tensor.shape}".encode()
        hashed = hashlib.blake2b(description, digest_size=_DIGEST)
        hashed.update(as_bytes(tensor).numpy().data)
        return hashed.digest()

    digests = b"".join(digest(buffer) for buffers in own for buffer in buffers.values())
    if not digests:
        return own
    mine = torch.frombuffer(bytearray(digests), dtype=torch.uint8).view(-1, _DIGEST)
    tensors = (tensor for model in models for tensor in (*model.parameters(), *model.buffers()))
    chiefs = mine.to(next(tensors).device, copy=True)  # a device that the process group supports
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


def _low_rank(model: nn.Module) -> LowRank | None:
    return model.low_rank if isinstance(model, DistributedModel) else None


def _mean_everywhere(
    saved: Mapping[str, torch.Tensor], parameters: Mapping[str, nn.Parameter]
) -> dict[str, torch.Tensor]:
    """Return the mean over all ranks of their saved gradients, on every rank. Collective."""
    given = [[_MEAN + name in saved, name in saved] for name in parameters]
    device = next(iter(parameters.values())).device
    found = torch.tensor(given, dtype=torch.int32, device=device)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    means: dict[str, torch.Tensor] = {}
    for (name, parameter), (is_mean, is_own) in zip(
        parameters.items(), found.tolist(), strict=True
    ):
        mean = torch.zeros(parameter.shape, dtype=parameter.dtype, device=parameter.device)
        if is_mean:
            if _is_chief():
                mean.copy_(saved[_MEAN + name])
            dist.broadcast(mean, src=0)
        elif is_own:
            if name in saved:
                mean.copy_(saved[name])
            dist.all_reduce(mean.div_(dist.get_world_size()))
        else:
            continue
        means[_MEAN + name] = mean
    return means


def _without(state: Mapping[str, Any], part: str) -> dict[str, Any]:
    if not any(part in name for name in state):
        return state if isinstance(state, dict) else dict(state)
    return _renamed(state, lambda name: name.replace(part, ""))


def _renamed(state: Mapping[str, Any], rename: Callable[[str], str]) -> dict[str, Any]:
    """Return the state under other names, with the modules' version numbers (`_metadata`)."""
    renamed: OrderedDict[str, Any] = OrderedDict((rename(k), v) for k, v in state.items())
    if (versions := getattr(state, "_metadata", None)) is not None:
        renamed._metadata = {rename(f"{k}.")[:-1]: v for k, v in versions.items()}  # type: ignore[attr-defined]  # torch's own
    return renamed


def _is_chief() -> bool:
    return dist.get_rank() == 0
