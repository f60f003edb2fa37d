"""From a batch to new weights: gradients weighed (batch_weight.py), and steps at ends of windows.

`backward`          scales the loss (fp16) and weights it by this rank's share of the records (or
                    tokens); at the last batch of a window, averages gradients over the ranks
`step`              at the last batch of a window: divides gradients by the window's batches,
                    unscales (fp16), clips, steps, zeroes
`after_step`        updates the scaler, once for all optimizers

A trial may call `optimizer.step()` and `loss.backward()` itself where the result is the same; else
a TrialMistake is raised as the optimizer steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, TypeVar

import torch
from torch import nn

from det_jupyter.core import DistributedContext
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.data import Share
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.parallel import DistributedModel, explain_backward, is_sharded
from det_jupyter.pytorch.steps.batch_weight import BatchWeight
from det_jupyter.pytorch.steps.gradient_checks import (
    CREATE_GRAPH,
    RawBackward,
    averaging,
    check_direct_step,
    check_untrained,
    has_gradients,
    parameters_of,
    zero_gradients,
)
from det_jupyter.pytorch.steps.position import Position
from det_jupyter.pytorch.steps.precision import Precision

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class _Wrapped:
    """State of a wrapped optimizer."""

    averages: bool  # divides the gradients of a window by its batches
    models: list[DistributedModel]  # with parameters that it steps
    raw: RawBackward | None  # None if there are no such models
    backwards: int = 0  # number of backward passes before its last step
    batch_idx: int = -1  # batch of its last step


class ExchangeTimer(Protocol):
    """Times where the ranks wait for each other while they train a batch (timings/)."""

    def begin_backward(self, is_exchanged: bool) -> None:
        """Begin a backward pass; `is_exchanged`: gradients are exchanged at its end."""

    def within_backward(self) -> None:
        """Note a moment within the backward pass; called by a hook."""

    def end_backward(self) -> None:
        """End the backward pass and its exchange."""

    def timed_exchange(self, function: Callable[P, T]) -> Callable[P, T]:
        """Return the function, in which ranks wait for each other, with a timer around it."""


@dataclass(eq=False)
class Stepping:
    """Computes gradients and steps the optimizers of one trial, on one rank."""

    position: Position  # has the ends of windows
    precision: Precision
    distributed: DistributedContext

    def __post_init__(self) -> None:
        self._replicas: list[DistributedModel] = []
        self.sees_steps = True  # whether each step of an optimizer calls `_before_step`
        self._untrained: list[nn.Module] = []  # wrapped without trained parameters: no exchange
        self._wrapped: dict[int, _Wrapped] = {}  # by id of the optimizer
        self._timer: ExchangeTimer | None = None
        self._share_buffers = self._sync_buffers_of_replicas
        self._raw: list[RawBackward] = []  # one for each optimizer that steps replicas
        self.weight = BatchWeight(self.position, self.distributed)
        self.note_exchange: Callable[[int], object] = bool  # given the number of the batch
        # Called before an optimizer steps replicas, given the number of the batch. Collective.
        self.before_step: Callable[[int], object] | None = None
        # Called before that, and once in a step's batch: waits for the device; None on CPUs.
        self.await_exchange: Callable[[], object] | None = None
        self._awaited_at = -1  # the batch of the last such call
        self._backwards = 0
        self._is_stepping = False  # `step` is running, not an optimizer.step() of the trial
        self._has_scaled = False  # the scaler has stepped an optimizer in this batch

    def add_model(self, model: nn.Module) -> None:
        """Register a wrapped model."""
        if isinstance(model, DistributedModel):
            self._replicas.append(model)
        elif self.distributed.size > 1 and not is_sharded(model):
            self._untrained.append(model)

    def add(self, optimizer: torch.optim.Optimizer, *, averages: bool) -> None:
        """Register an optimizer; `averages`: a window's gradients are divided by its batches."""
        stepped = {id(parameter) for parameter in parameters_of(optimizer)}
        models = [
            model
            for model in self._replicas
            if any(id(parameter) in stepped for parameter in model.parameters())
        ]
        raw = RawBackward(parameters_of(optimizer)) if models else None
        self._wrapped[id(optimizer)] = _Wrapped(averages, models, raw)
        if raw is not None:
            self._raw.append(raw)
        try:
            optimizer.register_step_pre_hook(self._before_step)
        except AttributeError:  # some that wrap an optimizer skip Optimizer.__init__
            self.sees_steps = False

    def set_timer(self, timer: ExchangeTimer | None) -> None:
        """Time all exchanges from now on; None: no longer."""
        self._timer = timer if self._replicas else None
        for raw in self._raw:
            raw.within_ours = None if timer is None else timer.within_backward
        sum_ranks = torch.distributed.all_reduce
        self.weight.sum_ranks = sum_ranks if timer is None else timer.timed_exchange(sum_ranks)
        self._share_buffers = self._sync_buffers_of_replicas
        if timer is not None and any(replica.modules_buffers for replica in self._replicas):
            self._share_buffers = timer.timed_exchange(self._sync_buffers_of_replicas)
        for replica in self._replicas:
            if replica.low_rank is not None:
                replica.low_rank.set_timer(None if timer is None else timer.timed_exchange)

    def begin_batch(self, batch_idx: int, share: Share) -> None:
        """Begin a batch, whose gradients are weighted by this rank's share of it. Collective.

        DDP decides in its forward pass whether the backward pass exchanges gradients, so that is
        set here, before the trial runs. The chief's buffers are sent at the beginning of a window,
        and not in DDP's `forward`, which ranks may call unequally often.
        """
        position = self.position
        position.batch_idx = batch_idx
        self.weight.begin_batch(share)
        for replica in self._replicas:
            replica.begin_batch(exchanges=position.is_step)
        if self._replicas and len(position.window) == 1:
            self._share_buffers()

    def backward(
        self,
        loss: torch.Tensor,
        gradient: torch.Tensor | None,
        retain_graph: bool,
        create_graph: bool,
        weight: Any = None,
    ) -> None:
        """Compute gradients; the options are those of `torch.Tensor.backward`.

        `weight`: see `BatchWeight`.

        Raises:
            TrialMistake: The gradients cannot be exchanged.
        """
        if create_graph and self._replicas:
            raise TrialMistake("train_batch", CREATE_GRAPH)
        for model in self._untrained:
            check_untrained(model)
        self.note_exchange(self.position.batch_idx + 1)
        self.weight.begin_backward(weight, loss.device)
        if self.precision.scaler is not None:
            loss = self.precision.scale(loss)
        factor = self.weight.factor
        if isinstance(factor, torch.Tensor):
            factor = factor.to(loss.dtype)
        if isinstance(factor, torch.Tensor) or factor != 1.0:
            # Multiplying the loss would extend the graph.
            gradient = factor * (torch.ones_like(loss) if gradient is None else gradient)
        for replica in self._replicas:
            replica.prepare_exchange(loss)
        if self._timer is not None:
            self._timer.begin_backward(self.position.is_step)
        self._backwards += 1
        for raw in self._raw:
            raw.before_ours()
            raw.is_ours = True
        try:
            loss.backward(gradient, retain_graph, create_graph)
        except RuntimeError as error:
            if mistake := explain_backward(error):
                raise mistake from None
            raise
        finally:
            for raw in self._raw:
                raw.is_ours = False
            if self._timer is not None:
                self._timer.end_backward()

    def step(
        self,
        optimizer: torch.optim.Optimizer,
        clip_grads: Callable[[Any], Any] | None,
        auto_zero_grads: bool,
        scaler: Any,
    ) -> None:
        """Step the optimizer, if this batch ends a window.

        Raises:
            ConfigError: The optimizer is not wrapped, `auto_zero_grads` is False although windows
                have several batches, or `clip_grads` is no function.
        """
        position = self.position
        wrapped = self._wrapped.get(id(optimizer))
        if wrapped is None:
            raise ConfigError(
                f"step_optimizer: this {type(optimizer).__name__} is not wrapped, so its "
                "state would not be saved; pass what context.wrap_optimizer returned"
            )
        if position.aggregation_frequency > 1 and not auto_zero_grads:
            raise ConfigError(
                "step_optimizer: auto_zero_grads=False does not go with "
                f"optimizations.aggregation_frequency {position.aggregation_frequency}; "
                "gradients are summed between the steps as it is"
            )
        if not position.is_step:
            return
        divisor = self.weight.window_divisor(averages=wrapped.averages)
        if isinstance(divisor, torch.Tensor) or divisor != 1.0:
            for parameter in parameters_of(optimizer):
                if parameter.grad is not None:
                    parameter.grad.div_(divisor)
        if clip_grads is not None:
            if not callable(clip_grads):
                raise ConfigError(
                    f"step_optimizer: got a {type(clip_grads).__name__} as clip_grads, expected a "
                    "function of the list of parameters, such as "
                    "`lambda params: torch.nn.utils.clip_grad_norm_(params, 1.0)`"
                )
            self.precision.unscale(optimizer)
            clip_grads(parameters_of(optimizer))
        if scaler is not None or self.precision.scaler is not None:  # which may leave the step out
            self._await_exchange()
        self._is_stepping = True
        try:
            if scaler is not None:
                scaler.step(optimizer)
            elif self.precision.scaler is None:
                optimizer.step()
            else:
                self.precision.step(optimizer)
                self._has_scaled = True
        finally:
            self._is_stepping = False
        if auto_zero_grads:
            zero_gradients(optimizer)

    def has_stepped(self, batch_idx: int) -> bool:
        """Return whether an optimizer has begun to step in this batch. On several ranks only."""
        return any(wrapped.batch_idx >= batch_idx for wrapped in self._wrapped.values())

    def after_step(self) -> None:
        """Update the scaler if it has stepped an optimizer in this batch, which ends a window."""
        if self.await_exchange is not None and self._awaited_at != self.position.batch_idx:
            self._await_exchange()  # no optimizer has stepped
        if self._has_scaled:
            self.precision.update()
            self._has_scaled = False

    def _await_exchange(self) -> None:
        if self.await_exchange is not None:
            self.await_exchange()
            self._awaited_at = self.position.batch_idx

    def _sync_buffers_of_replicas(self) -> None:
        for replica in self._replicas:
            replica.sync_buffers()

    def _before_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Any] | None:
        """Check the gradients that an optimizer steps with. Called as a hook of `optimizer.step`.

        On several ranks, return new arguments for the step, in which closures return the loss
        averaged over the ranks. Otherwise return None, and the arguments stay as they are.

        Raises:
            TrialMistake: The gradients are not those of all records.
        """
        if self.position.has_ended or (self._is_stepping and self.distributed.size == 1):
            return None
        position, wrapped = self.position, self._wrapped[id(optimizer)]
        if not self._is_stepping:
            check_direct_step(optimizer, position.aggregation_frequency, self.precision.scaler)
        if wrapped.raw is not None and wrapped.raw.is_ours:
            raise TrialMistake(
                "train_batch",
                f"train_batch: {type(optimizer).__name__} steps while gradients are computed, as "
                "from a hook of a parameter; on several ranks they are exchanged only at the end. "
                "Step after context.backward",
            )
        for model in wrapped.models:
            model.check_exchanged()
        self._await_exchange()
        if self.before_step is not None and wrapped.models:  # which all ranks step alike
            self.before_step(position.batch_idx + 1)
        # One step may call the hook twice, by super().step() or with the same gradients again.
        is_old = self._backwards == wrapped.backwards and wrapped.batch_idx < position.batch_idx
        wrapped.backwards, wrapped.batch_idx = self._backwards, position.batch_idx
        if self.distributed.size == 1:
            return None
        is_raw = wrapped.raw is not None and wrapped.raw.has_raw_gradients()
        if is_raw or (is_old and has_gradients(optimizer)):
            raise TrialMistake(
                "train_batch",
                f"train_batch: {type(optimizer).__name__} steps with gradients that "
                "context.backward has not computed. On several ranks it weighs them by each "
                "rank's records and exchanges them; write self.context.backward(loss) in place of "
                "loss.backward()",
            )

        def changed(value: Any) -> Any:  # the optimizer is the first of the arguments
            if isinstance(value, torch.optim.Optimizer) or not callable(value):
                return value
            return averaging(value, lambda: float(self.weight.factor), self.distributed)

        return tuple(map(changed, args)), {name: changed(value) for name, value in kwargs.items()}
