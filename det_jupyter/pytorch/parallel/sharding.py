"""FSDP2: parameters, gradients and optimizer states divided among the ranks.

The model is divided into blocks. A block's parameters are gathered before its forward and backward
pass and freed after it, while those of the next block are already being gathered. Its gradients
are averaged and scattered, so that each rank keeps those of its part of the parameters.

Blocks are, walking down from the model, the children of the first `ModuleList` or `Sequential` on
each path; where such a child is itself one of the two, its children instead. Nothing inside a
block is divided further. Children without parameters, and children that share a parameter with the
rest of the model, are no blocks. Everything outside of blocks is gathered with the model itself.

    Differences to DDP that a user may notice
    gradients   exchanged after every batch, also within aggregation windows: whole gradients, not
                exchanged yet, would not fit into memory
    validation  every forward pass gathers, so all ranks would have to run equally many; see
                `gathered`
    buffers     each rank has its own while training; the chief's are evaluated, and saved with the
                model (`rank_state` has the others)
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from det_jupyter.contract.values.text import error_message
from det_jupyter.errors import ConfigError

# Torch's modules for sharding take a second to import, so they are imported only where needed.

_CONTAINERS = (nn.ModuleList, nn.Sequential)
# Parts of torch's error messages.
_OUTSIDE = ("mixed torch.Tensor and DTensor", "running forward through the root")


def blocks(model: nn.Module) -> list[nn.Module]:
    """Return the parts of the model that are gathered one at a time, in the model's order."""
    uses = _uses(model)
    return [
        block
        for block in _candidates(model)
        if (own := _uses(block)) and all(uses[parameter] == own[parameter] for parameter in own)
    ]


def shard(model: nn.Module, device: torch.device) -> nn.Module:
    """Divide a model with equal values on all ranks among them, in place. Collective.

    Raises:
        ConfigError: A parameter cannot be divided.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    scalars = [name for name, parameter in model.named_parameters() if parameter.dim() == 0]
    if scalars:
        raise ConfigError(
            [
                "optimizations.sharding: fsdp divides parameters along their first dimension; "
                f"{', '.join(scalars)} has none: make it a vector of length 1"
            ]
        )
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in blocks(model):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def is_sharded(model: nn.Module) -> bool:
    """Return whether the model is divided among the ranks."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # if it is not imported, nothing is sharded
    return fsdp is not None and isinstance(model, fsdp.FSDPModule)


def explain_sharding_error(error: Exception) -> None:
    """Add a note to an error that comes from using parameters outside of `forward`."""
    if any(words in error_message(error) for words in _OUTSIDE):
        error.add_note(
            "optimizations.sharding: fsdp holds parameters whole only inside the forward of the "
            "wrapped model: use them there, or in methods that it calls"
        )


@contextmanager
def gathered(models: Sequence[nn.Module]) -> Iterator[None]:
    """Hold all parameters of sharded models on every rank, for evaluation. Collective.

    Within the block, forward passes do not communicate, so each rank may run any number of them.
    Takes memory for the parameters, not for gradients and optimizer states. Models that are not
    sharded are left as they are.
    """
    roots = [model for model in models if is_sharded(model)]
    for root in roots:
        for part in _parts(root):
            part.set_reshard_after_forward(False, recurse=False)
            part.unshard()
    try:
        yield
    finally:
        for root in roots:
            for part in _parts(root):
                part.reshard()
                # The backward pass needs the root's own parameters first, so they stay gathered.
                part.set_reshard_after_forward(part is not root, recurse=False)


def to_full(value: Any, *, keep: bool) -> Any:
    """Return the value with each divided tensor in it replaced by the whole one. Collective.

    Args:
        value: Tensors in dicts, lists and tuples.
        keep: Whether this rank needs the whole tensors, on the CPU; else it gets empty ones.
    """
    if is_divided(value):
        full = value.detach().full_tensor()
        return full.cpu() if keep else full.new_empty(0, device="cpu")
    if isinstance(value, dict):
        return type(value)((key, to_full(item, keep=keep)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return type(value)(to_full(item, keep=keep) for item in value)
    return value


def local_part(value: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor; all of one that is not divided."""
    return value.to_local() if is_divided(value) else value  # type: ignore[attr-defined]  # a DTensor


def divided_along(value: torch.Tensor) -> int | None:
    """Return the dimension along which the ranks divide a tensor; None if each has all of it."""
    if not is_divided(value):
        return None
    (placement,) = value.placements  # type: ignore[attr-defined]  # a DTensor
    return placement.dim if placement.is_shard() else None


def is_partial(value: torch.Tensor) -> bool:
    """Return whether the tensor is the sum of what the ranks have."""
    return is_divided(value) and any(p.is_partial() for p in value.placements)  # type: ignore[attr-defined]  # a DTensor


def divided_like(value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor that all ranks have, divided like the parameter."""
    if not is_divided(parameter):
        return value
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(parameter, DTensor)
    mesh, placements = parameter.device_mesh, parameter.placements
    return distribute_tensor(value.to(parameter.device), mesh, placements, src_data_rank=None)


def _candidates(model: nn.Module) -> Iterator[nn.Module]:
    for child in model.children():
        if isinstance(child, _CONTAINERS):
            yield from _candidates(child)
        elif isinstance(model, _CONTAINERS):
            yield child
        else:
            yield from _candidates(child)


def _uses(module: nn.Module) -> Counter[nn.Parameter]:
    """Return under how many names each parameter of the module is registered."""
    return Counter(parameter for _, parameter in module.named_parameters(remove_duplicate=False))


def _parts(root: nn.Module) -> Iterator[Any]:
    return (part for part in root.modules() if is_sharded(part))


def is_divided(value: Any) -> bool:
    """Return whether the value is a tensor of which each rank has a part."""
    tensor = sys.modules.get("torch.distributed.tensor")
    return tensor is not None and isinstance(value, tensor.DTensor)
