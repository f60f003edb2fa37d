"""Wrapping a model so that all ranks train it together, and unwrapping it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal, get_args
from zlib import crc32

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parameter import is_lazy

from det_jupyter.config import ExperimentConfig
from det_jupyter.core import DistributedContext
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.messages import warn_user
from det_jupyter.pytorch.parallel.compression import Compression
from det_jupyter.pytorch.parallel.replicas import DistributedModel
from det_jupyter.pytorch.parallel.sharding import blocks, is_sharded, shard


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelOptions:
    """How several ranks train models together.

    Attributes:
        compression: How gradients are compressed in their exchange; None: not at all.
        bucket_mb: Size in MB of a bucket of gradients; None: torch's default.
        tune_buckets: Whether a BucketTuner chooses the size of buckets.
        sharding: "fsdp" divides parameters, gradients and optimizer states among the ranks.
        compile: Compile models: True, or the name of a backend of `torch.compile`.

    Raises:
        ConfigError: Two options exclude each other.
    """

    compression: Compression | None = None
    bucket_mb: int | None = None
    tune_buckets: bool = False
    sharding: Literal["fsdp"] | None = None
    compile: bool | str = False

    def __post_init__(self) -> None:
        problems = []
        where = "optimizations"
        if self.sharding and self.compression:
            problems.append(
                f"{where}.gradient_compression: {self.compression} does not go with "
                f"{where}.sharding: {self.sharding}, which exchanges parts of gradients itself; "
                "leave one of them out"
            )
        if self.sharding and (self.tune_buckets or self.bucket_mb):
            problems.append(
                f"{where}.sharding: {self.sharding} exchanges block by block and has no buckets; "
                f"leave out {where}.tensor_fusion_threshold and {where}.auto_tune_tensor_fusion"
            )
        if problems:
            raise ConfigError(problems)

    @classmethod
    def of(cls, config: ExperimentConfig) -> ParallelOptions:
        """Return the options of a configuration.

        Raises:
            ConfigError: Options exclude each other; the error has all of them.
        """
        given = config.optimizations
        value = "fp16" if given.gradient_compression is True else given.gradient_compression
        compression = next((name for name in get_args(Compression) if name == value), None)
        if compression == "powersgd" and given.mixed_precision not in ("O0", "bf16"):
            raise ConfigError(
                [
                    "optimizations.gradient_compression: powersgd keeps what it left out of one "
                    "batch for the next, but with optimizations.mixed_precision: "
                    f"{given.mixed_precision} each batch is scaled differently; "
                    "use mixed_precision: bf16, or gradient_compression: fp16"
                ]
            )
        return cls(
            compression=compression,
            bucket_mb=given.tensor_fusion_threshold,
            tune_buckets=given.auto_tune_tensor_fusion,
            sharding=given.sharding,
            compile=given.compile,
        )


_COMPILE = "optimizations.compile"


def parallelize(
    model: nn.Module,
    device: torch.device,
    distributed: DistributedContext,
    options: ParallelOptions,
    *,
    find_unused_parameters: bool = False,
) -> nn.Module:
    """Wrap the model so that all ranks train it, starting with the chief's values. Collective.

    The parameters of a sharded model are new objects: its optimizer has to be created with them.

    Args:
        model: On its device.
        device: The model's device.
        distributed: The ranks.
        options: How it is trained.
        find_unused_parameters: Allow parameters that get no gradient in some batches; costs a
            walk over the graph for each.

    Raises:
        ConfigError: An option does not suit this model or this computer.
    """
    shards = options.sharding is not None and distributed.size > 1
    is_trained = any(parameter.requires_grad for parameter in model.parameters())
    if options.sharding and not shards:
        warn_user(
            f"optimizations.sharding: {options.sharding} is ignored with one rank, which holds "
            "everything itself"
        )
    if options.compile:
        backend = options.compile if isinstance(options.compile, str) else "inductor"
        if problems := compile_problems(backend, device):
            raise ConfigError(problems)
        parts = blocks(model) if shards and is_trained else []
        for part in parts or [model]:
            part.compile(backend=backend)  # at its first call; keeps the names of parameters
    if distributed.size == 1:
        return model
    if shards or not is_trained:
        broadcast([*model.parameters(), *model.buffers()])
        # DDP refuses a model without trained parameters; nothing has to be exchanged.
        return shard(model, device) if is_trained else model
    return DistributedModel(
        model,
        device,
        compression=options.compression,
        bucket_mb=options.bucket_mb,
        find_unused_parameters=find_unused_parameters,
        is_sent=not (device.type == "cpu" and is_everywhere(model)),
    )


def is_everywhere(model: nn.Module) -> bool:
    """Return whether all ranks have and train this model with the same values. Collective.

    Checksums are compared, as ranks draw from one seed: on CPUs, a tenth of the time of sending.
    Strides count too: DDP exchanges gradients as they are in memory.
    """
    tensors = [*model.parameters(), *model.buffers()]
    own, complement = 0, 0  # no checksum, if not all is plain memory: DDP sends or explains it
    if all(map(_is_plain, tensors)):
        for tensor in tensors:
            kind = f"{tensor.dtype} {tensor.shape} {tensor.stride()} {tensor.requires_grad}"
            own = crc32(as_bytes(tensor.detach()).numpy().data, crc32(kind.encode(), own))
        complement = ~own
    both = torch.tensor([own, complement])
    dist.all_reduce(both, op=dist.ReduceOp.MAX)
    most, least = both.tolist()
    return bool(most == ~least)


def _is_plain(tensor: torch.Tensor) -> bool:
    is_here = not (is_lazy(tensor) or tensor.is_meta)
    is_strided = is_here and tensor.layout is torch.strided
    return is_strided and not (tensor.is_quantized or tensor.is_conj())


def compile_problems(backend: str, device: torch.device) -> list[str]:
    """Return the problems of compiling with the backend on this computer."""
    from torch import _dynamo  # imported here, because it takes a second

    if not _dynamo.is_dynamo_supported():  # type: ignore[attr-defined]  # public, but not in __all__
        version = ".".join(str(part) for part in sys.version_info[:2])
        return [f"{_COMPILE}: torch {torch.__version__} cannot compile under Python {version}"]
    known = _dynamo.list_backends(exclude_tags=())
    if backend not in known:
        return [
            f"{_COMPILE}: got {backend!r}, which is no backend of torch.compile here; "
            f"there are {', '.join(sorted(known))}"
        ]
    if backend != "inductor":
        return []
    if device.type == "cuda" and find_spec("triton") is None:
        return [
            f"{_COMPILE}: the backend inductor needs Triton on a GPU, which is not installed; "
            "install the package triton, or leave compile out"
        ]
    compilers = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
    if not any(shutil.which(compiler) for compiler in compilers):
        return [
            f"{_COMPILE}: the backend inductor needs a C++ compiler, and there is no "
            f"{' or '.join(compilers)} on this computer; install g++, set the environment "
            "variable CXX to a compiler, or use compile: aot_eager"
        ]
    return []


def unwrap(model: nn.Module) -> nn.Module:
    """Return the user's own model."""
    return model.module if isinstance(model, DistributedModel) else model


def share_buffers(models: Iterable[nn.Module]) -> None:
    """Overwrite the buffers of all ranks with the chief's, before an evaluation. Collective.

    Running statistics differ between the ranks after a batch, but all ranks have to evaluate the
    ones that the chief saves.
    """
    broadcast(
        [
            buffer
            for model in models
            if isinstance(model, DistributedModel) or is_sharded(model)
            for buffer in unwrap(model).buffers()
        ]
    )


def broadcast(tensors: Sequence[torch.Tensor]) -> None:
    """Overwrite the tensors with the chief's: one collective for each device."""
    for device in dict.fromkeys(tensor.device for tensor in tensors):
        here = [tensor.detach() for tensor in tensors if tensor.device == device]
        # As bytes, tensors of all types are sent together, and bool is supported.
        parts = [as_bytes(tensor) for tensor in here]
        flat = torch.cat(parts)
        dist.broadcast(flat, src=0)
        received = flat.split([part.numel() for part in parts])
        for tensor, part in zip(here, received, strict=True):
            # Copied, because a part may begin at an address that is not aligned for the type.
            tensor.copy_(part.clone().view(tensor.dtype).view(tensor.shape))


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor as a vector of bytes; a contiguous one is not copied."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)
