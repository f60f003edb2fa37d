"""Torch's hooks, by which LoopTimings times a loop of the user's.

    optimizers     register_optimizer_step_pre_hook and post_hook
    modules        the global forward pre-hook, armed for one call at a time, that of the outermost
                   module; the modules within it are called without a hook
    backward       torch.autograd.backward, which Tensor.backward calls
    DataLoader     __next__ of the base class of its iterators; torch has no hook for it

Torch traces hooks when it compiles. These return at once while it does, so they break no graph and
cause no other one; what compiled code calls is not reported. Functions that are called beside
compiled code are excluded from tracing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from weakref import WeakSet, ref

from det_jupyter.core.timings.after_import import after_import
from det_jupyter.core.timings.any_loop import KEY, LoopTimings
from det_jupyter.core.timings.clocks import Clock, DeviceClock, HostClock
from det_jupyter.core.timings.savers import watch_savers


def watch(loop: LoopTimings) -> None:
    """Time `loop` from now on, or from the import of torch on. Call it once."""
    after_import("torch", lambda: _install(loop), has="optim")
    watch_savers(loop)


def clock_of(optimizer: Any) -> Clock:
    """Return the clock of the device of an optimizer's parameters."""
    for group in getattr(optimizer, "param_groups", ()):
        for parameter in group["params"]:
            if parameter.device.type == "cuda":
                return DeviceClock.of(parameter.device)
    return HostClock()


def _install(loop: LoopTimings) -> None:
    import torch
    from torch.nn.modules import module
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    loop.armed = module._global_forward_pre_hooks
    loop.is_compiling = torch.compiler.is_dynamo_compiling  # half the cost of is_compiling
    loop.has_gradients = torch.is_grad_enabled
    loop.meet = _Replicas(loop).find
    optimizer.register_optimizer_step_pre_hook(loop.before_step)
    optimizer.register_optimizer_step_post_hook(loop.after_step)
    autograd: Any = torch.autograd
    autograd.backward = _like(autograd.backward, loop.timed_backward(autograd.backward))
    base: Any = dataloader._BaseDataLoaderIter
    base.__next__ = _like(base.__next__, loop.timed_next(base.__next__))
    name = "torch._dynamo.eval_frame"
    after_import(name, lambda: _wrap_compiled(loop), has="OptimizedModule")


class _Replicas:
    """Finds the modules that exchange gradients in the backward pass."""

    def __init__(self, loop: LoopTimings) -> None:
        from torch.nn.parallel import DistributedDataParallel

        self._loop = loop
        self._replica = DistributedDataParallel
        self._seen = WeakSet[Any]()  # modules that were looked through

    def find(self, module: Any) -> None:
        """Record the parts of a trained module that exchange gradients, and add hooks to them."""
        loop = self._loop
        loop.replicas = [has for has in loop.replicas if has() is not None]
        if module in self._seen:
            return
        self._seen.add(module)
        for part in module.modules():
            if isinstance(part, self._replica) and all(part is not has() for has in loop.replicas):
                trained = [each for each in part.parameters() if each.requires_grad]
                if trained:  # the last one often gets its gradient first
                    loop.replicas.append(ref(part))
                    trained[-1].register_post_accumulate_grad_hook(loop.within_backward)


def _wrap_compiled(loop: LoopTimings) -> None:
    """Report calls of compiled modules, before torch looks at hooks and warns of global ones."""
    from torch._dynamo import eval_frame

    compiled: Any = eval_frame.OptimizedModule
    call = compiled.__call__

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if KEY in loop.armed:
            loop.before_module(self, args)
        return call(self, *args, **kwargs)

    compiled.__call__ = _beside_compiled(__call__)


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
