"""The step at which a trial of transformers leaves: its Trainer's next log, if that is soon.

A request to leave reaches the first rank of a computer at any time. All ranks have to leave at
the same step, so they exchange that step. They do so not at each step, but after a number of steps
that take a fraction of a second.
"""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING

from det_jupyter import core

if TYPE_CHECKING:  # transformers is imported in seconds
    from transformers import TrainerState, TrainingArguments

_PATIENCE_S = 10.0  # how long a request to leave waits for the next log
_EXCHANGE_S = 0.2  # time between two exchanges of the ranks


class LeaveStep:
    """The step at which the trial leaves, as far as the ranks have exchanged it.

    Args:
        context: The Core API's.
        step: The step at which training begins.
    """

    def __init__(self, context: core.Context, step: int) -> None:
        self._context = context
        self._due = 0  # step of the next exchange
        self._last, self._at = step, time.monotonic()  # step and time of the last exchange
        self.step: int | None = None  # the step at which the trial leaves; None: it stays

    def exchange(self, args: TrainingArguments, state: TrainerState) -> bool:
        """Exchange the step if that is due; return whether it was. Collective."""
        if state.global_step < self._due:
            return False
        distributed, preempt = self._context.distributed, self._context.preempt
        is_asked = self.step is None and preempt.agree(preempt.was_asked())
        found = state.global_step, self.step  # only the chief's value is used
        if distributed.is_chief:
            step_s, num = self._measure(state.global_step)
            # For about _EXCHANGE_S, but steps may become slower.
            num_steps = max(1, min(int(_EXCHANGE_S / step_s), 2 * num))
            leaves_at = _find_log(args, state, step_s) if is_asked else self.step
            found = state.global_step + num_steps, leaves_at
        self._due, self.step = distributed.broadcast(found)
        return True

    def _measure(self, step: int) -> tuple[float, int]:
        """Return the seconds per step since the last exchange, and the number of these steps."""
        now, num = time.monotonic(), step - self._last
        step_s = max((now - self._at) / num, 1e-6)
        self._last, self._at = step, now
        return step_s, num


def _find_log(args: TrainingArguments, state: TrainerState, step_s: float) -> int:
    """Return the step of the Trainer's next log, or the present one if that is far away."""
    step, epoch = state.global_step, state.epoch
    if args.logging_strategy == "epoch":
        num_steps = (math.ceil(epoch) - epoch) * step / epoch
        found = sys.maxsize  # the end of the epoch is a log
    elif args.logging_strategy == "steps":
        num_steps = -step % state.logging_steps
        found = step + num_steps
    else:
        return step
    return int(found) if num_steps * step_s <= _PATIENCE_S else step
