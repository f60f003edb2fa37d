"""Torch's hooks that report to LoopTimings what a loop of the user's does.

    optimizers     register_optimizer_step_pre_hook and post_hook
    modules        the global forward pre-hook, armed for one call at a time: it is that of the
                   outermost module, and the modules within it are called as without hooks
    backward       torch.autograd.backward, which Tensor.backward calls
    DataLoader     __next__ of the base class of its iterators; torch has no hook for it

Torch traces hooks when it compiles. These return at once while it does, so they break no graph and
cause no other one; what compiled code calls is not reported. Functions that are called beside
compiled code are excluded from tracing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from types import ModuleType
from typing import Any
from weakref import WeakSet, ref

from det_jupyter.core.timings.after_import import after_import
from det_jupyter.core.timings.any_loop import LoopTimings
from det_jupyter.core.timings.clocks import Clock, DeviceClock, HostClock

_KEY = -29  # of the module hook; torch's own keys count from 0


def watch(loop: LoopTimings) -> None:
    """Report to `loop` from now on; if torch is not imported yet, once it is. Call it once."""
    after_import("torch", lambda: _install(loop), has="optim")


def clock_of(optimizer: Any) -> Clock:
    """Return the clock of the device of an optimizer's parameters."""
    for group in getattr(optimizer, "param_groups", ()):
        for parameter in group["params"]:
            if parameter.device.type == "cuda":
                return DeviceClock.of(parameter.device)
    return HostClock()


def _install(loop: LoopTimings) -> None:
    import torch
    from torch.optim import optimizer

    hooks = _Hooks(loop)
    optimizer.register_optimizer_step_pre_hook(hooks.before_step)
    optimizer.register_optimizer_step_post_hook(hooks.after_step)
    hooks.wrap_backward(torch.autograd)
    hooks.wrap_iterators()


class _Hooks:
    """The functions that torch calls."""

    def __init__(self, loop: LoopTimings) -> None:
        import torch
        from torch.nn.modules import module
        from torch.nn.parallel import DistributedDataParallel

        self._loop = loop
        self._is_compiling = torch.compiler.is_compiling
        self._has_gradients = torch.is_grad_enabled
        self._armed: dict[int, Any] = module._global_forward_pre_hooks
        self._replica = DistributedDataParallel
        self._seen = WeakSet[Any]()  # modules that were looked through for replicas
        self._last: Callable[[], Any] = lambda: None  # weak: the last one of them
        self._replicas: list[Callable[[], Any]] = []  # weak
        self._wraps_compiled = False
        loop.arm, loop.disarm = self._arm, self._disarm

    # Optimizers.

    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._is_compiling():
            return
        loop = self._loop
        if loop.thread == get_ident():
            loop.begin_step(optimizer)

    def after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._is_compiling():
            return
        if self._loop.thread >= 0:
            self._loop.end_step(optimizer)

    # Modules.

    def _arm(self) -> None:
        if not self._wraps_compiled and "torch._dynamo.eval_frame" in sys.modules:
            self._wrap_compiled(sys.modules["torch._dynamo.eval_frame"])
        self._armed[_KEY] = self.before_module

    def _disarm(self) -> None:
        self._armed.pop(_KEY, None)

    def before_module(self, module: Any, args: Any) -> None:
        if self._is_compiling():
            return
        loop = self._loop
        if loop.thread == get_ident():
            self._armed.pop(_KEY, None)
            if module is not self._last():
                self._look_through(module)
            has_gradients = self._has_gradients()
            loop.before_module(module, has_gradients, has_gradients and _has_history(args))

    def _look_through(self, module: Any) -> None:
        """Find the replicas in a module, which exchange gradients in the backward pass."""
        self._last = ref(module)
        self._replicas = [has for has in self._replicas if has() is not None]
        if module in self._seen:
            return
        self._seen.add(module)
        for part in module.modules():
            if isinstance(part, self._replica) and all(
                part is not has() for has in self._replicas
            ):
                trained = [each for each in part.parameters() if each.requires_grad]
                if trained:  # the last one often gets its gradient first
                    self._replicas.append(ref(part))
                    trained[-1].register_post_accumulate_grad_hook(self._within_backward)

    def _within_backward(self, _: Any) -> None:
        if not self._is_compiling():
            self._loop.within_backward()

    def _wrap_compiled(self, module: ModuleType) -> None:
        """Report calls of compiled modules, and that before torch warns of a global hook."""
        self._wraps_compiled = True
        compiled = getattr(module, "OptimizedModule", None)
        if compiled is None:
            return
        call, armed = compiled.__call__, self._armed

        def __call__(self_: Any, *args: Any, **kwargs: Any) -> Any:
            if _KEY in armed:
                self.before_module(self_, args)
            return call(self_, *args, **kwargs)

        compiled.__call__ = _beside_compiled(__call__)

    # The backward pass.

    def wrap_backward(self, autograd: Any) -> None:
        backward, loop = autograd.backward, self._loop

        def timed_backward(*args: Any, **kwargs: Any) -> Any:
            if loop.thread != get_ident() or not loop.begin_backward(self._is_exchanged()):
                return backward(*args, **kwargs)
            try:
                return backward(*args, **kwargs)
            finally:
                loop.end_backward()

        autograd.backward = _like(backward, timed_backward)

    def _is_exchanged(self) -> bool:
        for has in self._replicas:
            replica = has()
            if replica is not None and replica.require_backward_grad_sync:
                return True
        return False

    # Data.

    def wrap_iterators(self) -> None:
        from torch.utils.data import dataloader

        base, loop = dataloader._BaseDataLoaderIter, self._loop
        following = base.__next__

        def __next__(iterator: Any) -> Any:
            if loop.thread != get_ident():
                return following(iterator)
            loop.begin_data(iterator)
            try:
                batch = following(iterator)
            except BaseException:
                loop.end_data(True)
                raise
            loop.end_data(False)
            return batch

        base.__next__ = _like(following, __next__)  # type: ignore[method-assign]


def _has_history(args: tuple[Any, ...]) -> bool:
    """Return whether one of a module's inputs was computed of something that has gradients."""
    return any(getattr(each, "requires_grad", False) and each.grad_fn is not None for each in args)


def _like(original: Any, function: Any) -> Any:
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        with suppress(AttributeError):
            setattr(function, name, getattr(original, name))
    return _beside_compiled(function)


def _beside_compiled(function: Any) -> Any:
    """Exclude a function from being traced when it is called beside compiled code."""
    import torch

    with suppress(AttributeError):  # another torch: then it is traced, to no other effect
        frames: Any = torch._C._dynamo.eval_frame
        skip = frames._FrameAction.SKIP
        strategy = frames._FrameExecStrategy(skip, frames._FrameAction.DEFAULT)
        frames.set_code_exec_strategy(function.__code__, strategy)
    return function
