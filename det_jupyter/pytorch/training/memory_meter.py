"""Counts the memory of a trial's tensors on one rank, by part, and its peak.

    parameter_bytes     the storages of the wrapped models; of sharded ones this rank's part
    gradient_bytes      those of the parameters, when an optimizer steps
    optimizer_bytes     tensors in the states of the wrapped optimizers, after a step
    activation_bytes    the most that autograd has saved for backward passes at a time, without
                        parameters and buffers; the batch is among them if a layer saves it
    peak_bytes          the most that these and all other tensors of a batch had at a time
    slot_bytes          the memory of the GPU, or of the computer: what its control group allows

The first three are sums over storages, each counted once. On a GPU the peak is what the allocator
has taken from the device. Elsewhere a dispatch mode adds up the storages that operators make while
batches are trained. It does not see memory that an operator frees before it returns, nor
parameters that FSDP gathers, which resizes storages.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from det_jupyter.contract.host.control_groups import usable_memory
from det_jupyter.pytorch.parallel import is_divided, is_sharded
from det_jupyter.pytorch.trial.context import PyTorchTrialContext

_MOST_READ = 5_000  # values in a batch


class MemoryMeter:
    """Counts while `counting()` is entered: from the first batch to the end of a second step.

    Args:
        context: The trial's context.

    Attributes:
        truth: What conditions on fake tensors are; may be changed while it counts.
    """

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context
        self.truth = Truth()
        self._made = _MadeStorages()
        self._saved = _SavedTensors(self._own_storages)
        self._gradients = 0
        self._buckets = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the tensors that the block makes."""
        hook = register_optimizer_step_pre_hook(self._note_gradients)
        has_allocator = self._context.device.type == "cuda"
        try:
            with (
                torch.autograd.graph.saved_tensors_hooks(self._saved.pack, self._saved.unpack),
                nullcontext() if has_allocator else _CountingMode(self._made, self.truth),
            ):
                yield
        finally:
            hook.remove()

    def read(self) -> dict[str, float]:
        """Return the bytes of each part; without activations where FSDP gathers parameters."""
        models, device = self._context.models, self._context.device
        states = [state for each in self._context.optimizers for state in each.state.values()]
        parameters = num_bytes(p for model in models for p in model.parameters())
        buffers = num_bytes(b for model in models for b in model.buffers())
        if device.type == "cuda":
            peak, total = (
                torch.cuda.max_memory_reserved(device),
                torch.cuda.mem_get_info(device)[1],
            )
        else:
            peak = parameters + buffers + self._buckets + self._made.peak
            total = usable_memory()
        found = {
            "parameter_bytes": parameters,
            "gradient_bytes": self._gradients,
            "optimizer_bytes": num_bytes(tree_leaves(states)),
            "peak_bytes": peak,
            "slot_bytes": total,
        }
        if not any(map(is_sharded, models)):
            found["activation_bytes"] = self._saved.peak
        return {name: float(value) for name, value in found.items()}

    def _note_gradients(self, *_: object) -> None:
        models = self._context.models
        found = [p.grad for model in models for p in model.parameters() if p.grad is not None]
        self._gradients = max(self._gradients, num_bytes(found))
        # DDP makes its buckets, which gradients are views of, with the model.
        before = [each for each in found if not self._made.has(each)]
        self._buckets = max(self._buckets, num_bytes(before))

    def _own_storages(self) -> tuple[set[int], bool]:
        models = self._context.models
        own = [each for m in models for each in (*m.parameters(), *m.buffers())]
        return {key for each in own for key in _sizes(each)}, any(map(is_lazy, own))


def num_bytes(tensors: Iterable[Any]) -> int:
    """Return the bytes of the storages of the tensors among these values, each counted once."""
    sizes: dict[int, int] = {}
    for tensor in _tensors(list(tensors)):
        sizes |= _sizes(tensor)
    return sum(sizes.values())


def _storages(tensor: Any) -> list[torch.UntypedStorage]:
    """Return the storages of a tensor: of a sparse one several, of a lazy one none yet."""
    if is_lazy(tensor):
        return []
    local = tensor.detach().to_local() if is_divided(tensor) else tensor
    return [part.untyped_storage() for part in _PARTS.get(local.layout, _whole)(local)]


def _whole(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (tensor,)


def _by_rows(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tensor.crow_indices(), tensor.col_indices(), tensor.values()


def _by_columns(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tensor.ccol_indices(), tensor.row_indices(), tensor.values()


# The dense tensors of a sparse one, by its layout.
_PARTS: dict[torch.layout, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = {
    torch.sparse_coo: lambda tensor: (tensor._indices(), tensor._values()),
    torch.sparse_csr: _by_rows,
    torch.sparse_bsr: _by_rows,
    torch.sparse_csc: _by_columns,
    torch.sparse_bsc: _by_columns,
}


def _sizes(tensor: torch.Tensor) -> dict[int, int]:
    """Return the bytes of a tensor's storages, by their keys."""
    return {each._cdata: each.nbytes() for each in _storages(tensor)}


class _MadeStorages:
    """The storages that operators have made and that are not freed yet."""

    def __init__(self) -> None:
        self.peak = 0
        self._now = 0
        self._known: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def has(self, tensor: torch.Tensor) -> bool:
        """Return whether the tensor's storage is one of them."""
        return _sizes(tensor).keys() <= self._known.keys()

    def add(self, storage: torch.UntypedStorage) -> None:
        """Add a storage, until it is freed."""
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return

        def free(_: object) -> None:
            del self._known[key]
            self._now -= size

        self._known[key] = weakref.ref(storage, free)
        self._now += size
        self.peak = max(self.peak, self._now)


@dataclass(slots=True)
class Truth:
    """What a condition on tensors without values evaluates to, such as `if loss.isnan()`."""

    value: bool = False
    is_used: bool = False
    num_read: int = 0  # values that the present batch has read, numbers too


class _CountingMode(TorchDispatchMode):
    def __init__(self, made: _MadeStorages, truth: Truth) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._made = made
        self._truth = truth

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_number = func is torch.ops.aten._local_scalar_dense.default
        if is_number and isinstance(args[0], FakeTensor):  # `.item()`: there is no value
            return self._made_up(args[0].dtype)
        kwargs = kwargs or {}
        returned = func(*args, **kwargs)
        given = {key for each in _tensors((args, kwargs)) for key in _sizes(each)}
        for storage in (made for each in _tensors(returned) for made in _storages(each)):
            if storage._cdata not in given:  # else it is a view, or was changed in place
                self._made.add(storage)
        return returned

    def _made_up(self, dtype: torch.dtype) -> float | bool:
        self._truth.num_read += 1
        if self._truth.num_read > _MOST_READ:  # `while loss > 1` would not end
            raise RuntimeError(
                f"a batch reads more than {_MOST_READ:,} values, as a loop does that ends at one"
            )
        if dtype is not torch.bool:
            return 1.0 if dtype.is_floating_point else 1
        self._truth.is_used = True
        return self._truth.value


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    return (each for each in tree_leaves(tree) if isinstance(each, torch.Tensor))


class _Held:
    """A saved tensor; `release` is called when the backward pass has used it."""

    __slots__ = ("release", "tensor")

    def __init__(self, tensor: torch.Tensor, release: Callable[[], None]) -> None:
        self.tensor = tensor
        self.release = release

    def __del__(self) -> None:
        self.release()


class _SavedTensors:
    """The storages that autograd keeps for backward passes.

    Args:
        own: Returns the storages of parameters and buffers, which are not counted, and whether a
            lazy module is still to make some.
    """

    def __init__(self, own: Callable[[], tuple[set[int], bool]]) -> None:
        self.peak = 0
        self._find_own = own
        self._own: set[int] = set()
        self._is_lazy = False
        self._now = 0
        self._holders: Counter[int] = Counter()

    def pack(self, tensor: torch.Tensor) -> Any:
        """Count a tensor until what is returned is gone. A hook of autograd."""
        sizes = _sizes(tensor)
        if not self._holders or self._is_lazy:  # a forward pass begins
            self._own, self._is_lazy = self._find_own()
        tensor = tensor.detach()  # else a graph that no backward pass frees would hold itself
        if sizes.keys() <= self._own:
            return (tensor,)
        self._now += sum(size for key, size in sizes.items() if not self._holders[key])
        self.peak = max(self.peak, self._now)
        self._holders.update(sizes.keys())
        return _Held(tensor, lambda: self._release(sizes))

    @staticmethod
    def unpack(packed: Any) -> torch.Tensor:
        """Return the tensor again. A hook of autograd."""
        return packed.tensor if isinstance(packed, _Held) else packed[0]

    def _release(self, sizes: dict[int, int]) -> None:
        self._holders.subtract(sizes.keys())
        for key in [key for key in sizes if not self._holders[key]]:
            del self._holders[key]
            self._now -= sizes[key]
