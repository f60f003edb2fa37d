"""Agreeing on the same action at the same batch, on all ranks, at little cost.

All ranks must leave at the same batch: if one leaves alone, the others fail in their next
all-reduce. But the reasons to leave are on one rank only: the first rank of each computer reads
the control page there, the chief the clock, and any rank's trial may request a stop. An exchange
after each batch would cost more than a small batch. So each exchange also sets the batch of the
next one:

    batch     0   1     3         7                         107                      209
    exchange  x   x     x         x         ...              x                        x
              each is one all-reduce (maximum) of six integers:
                  leave     a control page requests a preemption         from each computer
                            an interrupt from the keyboard               from any rank
                  stop      the trial requested its end                  from any rank
                  flush     metrics are due to be averaged and journaled  from the chief
                  written   the files of a checkpoint are written        from the chief
                  orders    a user has ordered a change or a profile     from the chief
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
    """The result of an exchange, the same on all ranks: the maximum of their requests."""

    leave: int  # 1: yes, 0: no; like the next four fields
    stop: int
    flush: int
    is_written: int
    has_orders: int
    batches: int  # number of batches until the next exchange


class Agreement:
    """Agrees on actions with the other ranks. All must call `exchange` after the same batches."""

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
        self._flushed_at = float("-inf")  # so the metrics of the first batch are shown at once
        self.due_at = steps_completed + 1  # steps_completed of the next exchange

    def measure(self, steps_completed: int) -> None:
        """Measure the batches since the last exchange; call it before other work of this event."""
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
        """Combine the ranks' requests, and set `due_at` for the next exchange. Collective.

        Args:
            steps_completed: Batches trained.
            leave: This rank has to leave for another reason than the control page: an interrupt.
            stop: The trial on this rank has requested its end.
            is_written: On the chief: the files of a checkpoint that was begun are written.
            has_orders: On the chief: users' orders are waiting.
        """
        now = self._clock()
        requests = [leave or self._preempt.was_asked(), stop, False, False, False, 0]
        if self._distributed.is_chief:
            flush = now - self._flushed_at >= FLUSH_PERIOD_S
            requests[2:] = [flush, is_written, has_orders, self._batches]
        if self._distributed.size > 1:  # [m] two tensors cost 15 us, even without other ranks
            agreed = torch.tensor(requests, dtype=torch.int64)
            requests = self._distributed.reduce_(agreed, "max").tolist()
        decision = Decision(*map(int, requests))
        if decision.flush:
            self._flushed_at = now
        self.due_at = steps_completed + decision.batches
        self._since_steps, self._since_at = steps_completed, now
        return decision
