"""Agreeing on the same action at the same batch, on all ranks, at little cost.

All ranks must leave at the same batch: if one leaves alone, the others fail in their next
all-reduce. But the reasons to leave are on one rank only: the chief reads the control page and the
clock, and any rank's trial may request a stop. An exchange after each batch would cost more than a
small batch. So each exchange also sets the batch of the next one:

    batch     0   1     3         7                         107                      209
    exchange  x   x     x         x         ...              x                        x
              each is one all-reduce (maximum) of six integers:
                  leave     the control page asks to preempt             from the chief
                            an interrupt from the keyboard               from any rank
                  stop      the trial asked to stop                      from any rank
                  flush     it is time to gather metrics                 from the chief
                  written   a checkpoint that was begun can be finished  from the chief
                  orders    a change or a profile was ordered              from the chief
                  batches   until the next exchange                      from the chief

The chief chooses `batches` from the time that batches take, for an exchange every 0.2 s. The
number at most doubles, so a slow first batch, or a fast one after a compilation, misleads it only
briefly. Leaving takes effect at any exchange. A trial's own request to stop waits for the next
report, validation or checkpoint, where there always is an exchange: these batches do not depend on
the clock, so a trial that stops itself ends at the same batch however fast it ran.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from det_jupyter.core import DistributedContext, PreemptContext

EXCHANGE_PERIOD_S = 0.2
FLUSH_PERIOD_S = 0.5


class Decision(NamedTuple):
    """What all ranks do now, after an exchange: the most that any rank asked for."""

    leave: int  # 1 for yes, as the next ones
    stop: int
    flush: int
    is_written: int
    has_orders: int
    batches: int  # until the next exchange


class Agreement:
    """The exchange between the ranks. All must call `exchange` after the same batches."""

    def __init__(
        self,
        distributed: DistributedContext,
        preempt: PreemptContext,
        *,
        steps_completed: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._distributed = distributed
        self._preempt = preempt
        self._clock = clock
        self._since_steps = steps_completed
        self._since_at = clock()
        self._batches = 1
        self._flushed_at = float("-inf")  # the first batch's metrics are shown at once
        self.due_at = steps_completed + 1  # steps_completed of the next exchange

    def measure(self, steps_completed: int) -> None:
        """Take the time of the batches since the last exchange, before anything else is done."""
        batches = steps_completed - self._since_steps
        elapsed_s = max(self._clock() - self._since_at, 1e-9)
        fitting = round(batches * EXCHANGE_PERIOD_S / elapsed_s)
        self._batches = max(1, min(fitting, 2 * self._batches))

    def exchange(
        self,
        steps_completed: int,
        *,
        leave: bool = False,
        stop: bool = False,
        is_written: bool = False,
        has_orders: bool = False,
    ) -> Decision:
        """Return what all ranks do now, and set `due_at`. Collective.

        Args:
            steps_completed: Batches trained.
            leave: This rank was asked to leave otherwise than by the control page.
            stop: The trial on this rank asked to end.
            is_written: On the chief, whether a checkpoint waits to be finished.
            has_orders: On the chief, whether there are orders to take.
        """
        now = self._clock()
        requests = [leave, stop, False, False, False, 0]
        if self._distributed.is_chief:
            requests[0] = leave or self._preempt.was_asked()
            flush = now - self._flushed_at >= FLUSH_PERIOD_S
            requests[2:] = [flush, is_written, has_orders, self._batches]
        if self._distributed.size > 1:  # [m] two tensors cost 15 us, alone too
            agreed = torch.tensor(requests, dtype=torch.int64)
            requests = self._distributed.reduce_(agreed, "max").tolist()
        decision = Decision(*map(int, requests))
        if decision.flush:
            self._flushed_at = now
        self.due_at = steps_completed + decision.batches
        self._since_steps, self._since_at = steps_completed, now
        return decision
