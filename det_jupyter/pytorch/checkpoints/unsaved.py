"""Finds state of a trial that changes while it trains and is in no checkpoint.

    begin    before the first batch: stores digests of all that the trial's attributes hold, except
             wrapped objects; reports optimizers and schedulers that are not wrapped
    check    at the first checkpoint: reports what has changed since, and is not in the callbacks'
             states

So state that never changes, such as the weights of a loss or a frozen teacher, is not reported.
Lists, tuples, dicts, dataclasses and other objects of the user, including modules, are followed a
few levels deep; so state that the `state_dict` of a wrapped model leaves out is found, too. Of a
large tensor evenly spaced elements are read, and of all tensors at most `_MOST_ELEMENTS`, so the
cost has a bound. The chief does this, in a run that does not continue from a checkpoint.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import numpy
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from det_jupyter.contract.values.text import class_name, count
from det_jupyter.core import RecordSink
from det_jupyter.pytorch import parallel
from det_jupyter.pytorch.messages import give_notice
from det_jupyter.pytorch.trial.callback_runner import Callbacks
from det_jupyter.pytorch.trial.context import PyTorchTrialContext
from det_jupyter.pytorch.trial.definition import PyTorchTrial

_T = TypeVar("_T")
_MOST_ELEMENTS = 1 << 22  # of all tensors: [m] 105 million parameters take 0.15 s of a core
_MOST_OBJECTS = 2000
_DEPTH = 4  # of containers and modules
_MOST_INSIDE = 200  # of the elements of a container: more are records
_MOST_NAMED = 5
_LIBRARIES = ("builtins", "det_jupyter", "torch", "numpy", "logging", "threading", "pandas", "PIL")
_OF_MODULES = frozenset(vars(nn.Module()))
_KEPT = "a callback's `state_dict`"
_GENERATORS = (
    torch.Generator, numpy.random.Generator, numpy.random.RandomState, random.Random
)  # fmt: skip
_SCHEDULERS = (torch.optim.lr_scheduler.LRScheduler,)
_HOLDERS = (torch.Tensor, numpy.ndarray, nn.Module, torch.optim.Optimizer, *_SCHEDULERS,
            torch.amp.GradScaler, *_GENERATORS)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Held:
    """A changing value in a trial's state, with digests of its parts by name."""

    value: Any
    digests: Mapping[str, bytes]
    is_wrapped: bool = False  # then its tensors here are buffers that are not persistent


class UnsavedWatch:
    """Finds state that a trial would lose when it is paused.

    Args:
        trial: The user's trial.
        context: Has the wrapped objects.
        callbacks: The trial's callbacks, whose states are saved.
        sink: Receives the notices.
    """

    def __init__(
        self,
        trial: PyTorchTrial,
        context: PyTorchTrialContext,
        callbacks: Callbacks,
        sink: RecordSink,
    ) -> None:
        self._trial = trial
        self._context = context
        self._callbacks = callbacks
        self._sink = sink
        self._before: dict[str, _Held] | None = None
        self._named: set[str] = set()
        self._limit = 0  # number of elements that are read of each tensor

    def begin(self) -> None:
        """Store digests of the trial's state; report objects that are certainly not saved."""
        self._before = self._held()
        if self._callbacks.keep_state:  # the callbacks may save any state
            return
        sure = {path: held for path, held in self._before.items() if _is_stepped(held.value)}
        self._named = set(sure)
        self._give(
            [f"{_describe(path, held, ())} is in no checkpoint" for path, held in sure.items()],
            list(sure.values()),
        )

    def check(self, callback_states: Any) -> None:
        """Report what has changed since `begin` and is not in the states of the callbacks."""
        if self._before is None:
            return
        before, self._before = self._before, None
        now = self._held()
        known = {digest for _, digest in _parts(callback_states, self._limit)}
        found, holders = [], []
        for path, held in now.items():
            was = before.get(path)
            is_new = was is None or type(was.value) is not type(held.value)
            if is_new and isinstance(held.value, (torch.Tensor, numpy.ndarray)):
                continue  # such as the last batch
            old = {} if was is None else was.digests
            # A buffer that is not persistent may be a table that grows with the longest record.
            some = held.digests.keys() & old.keys() if held.is_wrapped else held.digests.keys()
            changed = {
                name: held.digests[name] for name in some if old.get(name) != held.digests[name]
            }
            if not changed or known.issuperset(changed.values()) or path in self._named:
                continue
            how = "was made" if is_new else "changes"
            found.append(
                f"{_describe(path, held, changed)} {how} while training and is in no checkpoint"
            )
            holders.append(held)
        self._give(found, holders)

    def _give(self, found: list[str], holders: list[_Held]) -> None:
        for text, held in list(zip(found, holders, strict=True))[:_MOST_NAMED]:
            give_notice(
                f"{text}, so a run that continues begins it anew{_unless(held)}: {_remedy(held)}",
                self._context.distributed.rank,
                self._sink,
            )

    def _held(self) -> dict[str, _Held]:
        saved = _Saved(self._context)
        roots: dict[str, Any] = {"self": self._trial}
        roots |= {f"callback {name!r}": each for name, each in self._callbacks.by_name.items()}
        found = dict(_walk(roots, saved))
        states = {
            path: _read(partial(_state_of, value, saved), None) for path, value in found.items()
        }
        if not self._limit:  # the limit stays the same, so that digests can be compared
            number = sum(len(state) for state in states.values() if isinstance(state, dict))
            self._limit = max(64, _MOST_ELEMENTS // max(number, 64))
        return {
            path: _Held(
                value, _read(partial(self._digests, states[path]), {}), saved.has_part(value)
            )
            for path, value in found.items()
        }

    def _digests(self, state: Any) -> dict[str, bytes]:
        return dict(_parts(state, self._limit))


class _Saved:
    """The state that every checkpoint has: wrapped objects, and the memory of their tensors."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        schedulers = [item.scheduler for item in context.lr_schedulers]
        inner = [each for one in schedulers for each in getattr(one, "_schedulers", ())]
        groups = [group for each in context.optimizers for group in each.param_groups]
        known = [context, context.scaler, *context.optimizers, *groups, *schedulers, *inner]
        self.ids = {id(each) for each in known}
        self._memory = {
            _address(tensor)
            for model in context.models
            for tensor in (*model.parameters(), *_persistent_buffers(model))
            if _has_memory(tensor)
        }
        self._wrapped = {id(each) for model in context.models for each in model.modules()}

    def has(self, value: Any) -> bool:
        """Return whether an object is saved."""
        if isinstance(value, torch.Tensor):
            return not _has_memory(value) or _address(value) in self._memory
        if isinstance(value, nn.Module):
            return not self.others_of(value)
        if isinstance(value, torch.optim.Optimizer):  # one may wrap another
            return any(id(group) in self.ids for group in value.param_groups)
        return id(value) in self.ids

    def has_part(self, value: Any) -> bool:
        """Return whether a value is a wrapped module, or a part of one."""
        return id(value) in self._wrapped

    def others_of(self, module: nn.Module) -> dict[str, torch.Tensor]:
        """Return the tensors of a module that are not saved, by name."""
        named = [*module.named_parameters(), *module.named_buffers()]
        return {name: tensor for name, tensor in named if not self.has(tensor)}


def _persistent_buffers(model: nn.Module) -> Iterator[torch.Tensor]:
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                yield buffer


@torch.no_grad()
def _address(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's memory, or of this rank's part of it."""
    return parallel.local_part(tensor).untyped_storage().data_ptr()


def _has_memory(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has its own memory: it is not sparse, and it is initialized."""
    return tensor.layout is torch.strided and not tensor.is_meta and not is_lazy(tensor)


def _walk(roots: Mapping[str, object], saved: _Saved) -> Iterator[tuple[str, Any]]:
    """Yield path and value of each object with state in the attributes of these objects."""
    seen: set[int] = {id(root) for root in roots.values()}
    waiting = [
        (f"{root}.{name}", value, 1)
        for root, owner in roots.items()
        for name, value in vars(owner).items()
    ]
    for path, value, depth in waiting:  # grows meanwhile
        is_plain = value is None or isinstance(value, (str, bytes, int, float, type))
        if is_plain or id(value) in seen or id(value) in saved.ids:
            continue
        if len(seen) > _MOST_OBJECTS:
            return
        seen.add(id(value))
        if isinstance(value, _HOLDERS) and not _read(partial(saved.has, value), True):
            yield path, value
        if depth < _DEPTH:
            nothing: list[tuple[str, Any]] = []
            inside = _read(partial(_inside, path, value), nothing)
            waiting += [(inner, each, depth + 1) for inner, each in inside]


def _read(read: Callable[[], _T], default: _T) -> _T:
    """Return the result of `read`; the default if it raises."""
    try:
        return read()
    except Exception:  # `__getattr__`, `items` and `state_dict` may be code of the user
        return default


def _inside(path: str, value: Any) -> list[tuple[str, Any]]:
    """Yield path and value of the elements of a container, or of the user's object."""
    if isinstance(value, nn.Module):
        return [
            (f"{path}.{name}.{key}" if name else f"{path}.{key}", each)
            for name, module in value.named_modules()
            if _is_of_the_user(module)
            for key, each in vars(module).items()
            if key not in _OF_MODULES
        ]
    if isinstance(value, Mapping):
        return [(f"{path}[{key!r}]", each) for key, each in islice(value.items(), _MOST_INSIDE)]
    if isinstance(value, (list, tuple, deque, set, frozenset)):
        return [
            (f"{path}[{index}]", each) for index, each in enumerate(islice(value, _MOST_INSIDE))
        ]
    if not _is_of_the_user(value):
        return []
    own = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for slot in [slots] if isinstance(slots, str) else slots:
            if hasattr(value, slot):
                own[slot] = getattr(value, slot)
    return [(f"{path}.{name}", each) for name, each in own.items()]


def _is_of_the_user(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] not in _LIBRARIES


def _state_of(value: Any, saved: _Saved) -> Any:
    """Return the changing state of an object, in plain containers."""
    if isinstance(value, nn.Module):
        return saved.others_of(value)
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, numpy.random.Generator):
        return value.bit_generator.state
    if isinstance(value, numpy.random.RandomState):
        return value.get_state(legacy=False)
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, (torch.Tensor, numpy.ndarray)):
        return {"": value}
    return value.state_dict()


def _parts(state: Any, limit: int, name: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield name and digest of each part of a state: of each tensor, and of each other value."""
    if isinstance(state, Mapping):
        for key, each in state.items():
            yield from _parts(each, limit, f"{name}.{key}")
    elif isinstance(state, (list, tuple)) and not all(type(each) is int for each in state):
        for index, each in enumerate(state):
            yield from _parts(each, limit, f"{name}.{index}")
    elif isinstance(state, torch.Tensor):
        if state.layout is torch.strided and not state.is_meta:
            yield f"{name} {tuple(state.shape)}", _digest(_sample(state, limit))
    elif isinstance(state, numpy.ndarray):
        if not state.dtype.hasobject:
            flat = state.reshape(-1)
            yield name, _digest(flat[:: max(1, -(-flat.size // limit))].tobytes())
    else:
        yield name, _digest(repr(list(state) if isinstance(state, tuple) else state).encode())


def _sample(tensor: torch.Tensor, limit: int) -> bytes:
    """Return the bits of evenly spaced elements. Waits for the device."""
    flat = tensor.detach().reshape(-1)
    some = flat[:: max(1, -(-flat.numel() // limit))].cpu().contiguous()
    content: bytes = some.view(torch.uint8).numpy().tobytes() if some.numel() else b""
    return content


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _is_stepped(value: Any) -> bool:
    """Return whether a value is an optimizer or scheduler, whose state changes at every step."""
    return isinstance(value, (torch.optim.Optimizer, *_SCHEDULERS))


def _describe(path: str, held: _Held, changed: Iterable[str]) -> str:
    kind = class_name(type(held.value))
    if _is_stepped(held.value):
        kind = type(held.value).__name__
    elif held.is_wrapped:
        names = sorted(name.partition(" ")[0].removeprefix(".") for name in changed)
        kind = f"{type(held.value).__name__}: {', '.join(names[:_MOST_NAMED])}"
    elif isinstance(held.value, nn.Module):
        kind = f"{type(held.value).__name__}, {count(len(held.digests), 'tensor')}"
    return f"`{path}` ({kind})"


def _unless(held: _Held) -> str:
    is_bare = isinstance(held.value, (torch.Tensor, numpy.ndarray))
    return " (no harm if each batch overwrites it)" if is_bare else ""


def _remedy(held: _Held) -> str:
    value = held.value
    if held.is_wrapped:
        return f"register the buffer as persistent, or keep it in {_KEPT}"
    if isinstance(value, nn.Module):
        return f"`context.wrap_model(...)` or {_KEPT}"
    if isinstance(value, torch.optim.Optimizer):
        return "`context.wrap_optimizer(...)`"
    if isinstance(value, _SCHEDULERS):
        return "`context.wrap_lr_scheduler(...)`"
    if isinstance(value, torch.amp.GradScaler):
        return "`context.wrap_scaler(...)`"
    return f"keep it in {_KEPT}"
