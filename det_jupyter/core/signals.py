"""The agent's signals to a running trial, through the run's control page.

PreemptContext: the request to save and leave. OrdersContext: changes and profiles that a user
requests while the trial trains. Outside of experiments there is no page, and no signal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path

from det_jupyter.contract.messages import Order, PassOrders
from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.core.argument_checks import ContextPart
from det_jupyter.core.distributed import DistributedContext


class PreemptMode(Enum):
    """Which ranks may call `should_preempt`, and how the answer reaches them.

    WorkersAskChief: all ranks call it in step, and get the chief's answer.
    ChiefOnly: only the chief calls it; the script sends the answer to the other ranks.
    WorkersAskMaster: each rank reads the control page itself; for a moment the answers may differ.
    """

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHIEF_ONLY"
    WorkersAskMaster = "WORKERS_ASK_MASTER"


class PreemptContext(ContextPart):
    """Whether this run was requested to save its state and leave.

    Args:
        page: The run's control page; None outside of experiments.
        distributed: The ranks of the run.
        mode: Which ranks may call `should_preempt`.
    """

    def __init__(
        self,
        page: ControlPage | None,
        distributed: DistributedContext,
        mode: PreemptMode = PreemptMode.WorkersAskChief,
    ) -> None:
        self._page = page
        self._distributed = distributed
        self.mode = mode
        self.awaits_block = False  # True from core.init() until the `with` block begins
        self._is_acknowledged = False
        self._is_held: Callable[[], bool] = bool

    @property
    def is_acknowledged(self) -> bool:
        """Whether this rank has acknowledged the request: its trial then continues later."""
        return self._is_acknowledged

    def was_asked(self) -> bool:
        """Return, on the first rank of each computer, whether it was requested there to leave.

        False on other ranks. The master's request is in the page of every computer; a SIGTERM's is
        in that of one.
        """
        return self._distributed.local_rank == 0 and self._is_raised()

    def agree(self, is_asked: bool) -> bool:
        """Return whether it is true on the first rank of any computer. Collective."""
        if self._distributed.cross_size > 1:
            return any(self._distributed.allgather(is_asked))
        return self._distributed.broadcast(is_asked)

    def note_reading(self) -> None:
        """Record, on each computer, that this code reads requests, even if it gets stuck."""
        self.was_asked()  # its check is recorded on the control page

    def hold_while(self, is_held: Callable[[], bool]) -> None:
        """Let `should_preempt` return False while `is_held()` is true, even after a request.

        For trainers that accumulate gradients over several batches, and do not save them.
        """
        self._is_held = is_held

    def should_preempt(self, auto_ack: bool = True) -> bool:
        """Return whether to save the state and leave.

        Collective in the mode WorkersAskChief: all ranks must call it in step and get the same
        answer, which costs a broadcast (on several computers an exchange). In the other modes it
        only reads the control page.

        Args:
            auto_ack: Whether a request counts as acknowledged by this call. Without
                acknowledgement, a script that ends with exit code 0 has completed its trial.

        Raises:
            RuntimeError: The `with` block of the context has not begun, or has ended; or a rank
                other than the chief calls in the mode ChiefOnly.
        """
        self.check_open("preempt.should_preempt")
        if self.awaits_block:
            raise RuntimeError(
                "preempt.should_preempt: the `with` block of this context has not begun; write "
                "`with core.init() as context:` and call it in there"
            )
        is_asked = self._read_request()
        if is_asked and auto_ack:
            self.acknowledge_preemption_signal()
        return is_asked

    def note_saving(self) -> None:
        """Record that the ranks begin to save their state because of the request."""
        if self._page is not None:
            self._page.note_saving()

    def acknowledge_preemption_signal(self) -> None:
        """Record that this rank ends because of the request, so that its trial continues later."""
        if not self._is_acknowledged and self._page is not None:
            self._page.acknowledge()
            self._page.note_saving()
        self._is_acknowledged = True

    def _read_request(self) -> bool:
        if self.mode is PreemptMode.WorkersAskChief:
            return self.agree(self.was_asked() and not self._is_held())
        if self.mode is PreemptMode.ChiefOnly and not self._distributed.is_chief:
            raise RuntimeError(
                "preempt.should_preempt: only the chief (rank 0) may call it in "
                f"PreemptMode.ChiefOnly, and this is rank {self._distributed.rank}; broadcast "
                "the chief's answer, or leave preempt_mode out of core.init"
            )
        return self._is_raised() and not self._is_held()

    def _is_raised(self) -> bool:
        return self._page is not None and self._page.check("preempt")


logger = logging.getLogger(__name__)


class OrdersContext:
    """The orders to this run: changes and profiles that a user requests.

    Args:
        planned: Orders in the run's plan, which every rank has from the beginning.
        page: The chief's control page; None on other ranks and outside of experiments.
        file: The file that the agent writes orders to.
        distributed: The ranks of the run.
    """

    def __init__(
        self,
        planned: Sequence[Order],
        *,
        page: ControlPage | None,
        file: Path | None,
        distributed: DistributedContext,
    ) -> None:
        self.planned = planned
        self._page = page
        self._file = file
        self._distributed = distributed
        self._last_id = max((order.id for order in planned), default=0)

    def are_waiting(self) -> bool:
        """Return, on the chief, whether `take` would return orders; False on other ranks."""
        return self._page is not None and self._page.last_order() > self._last_id

    def take(self) -> list[Order]:
        """Return the orders since the last call, oldest first. Collective."""
        text = self._distributed.broadcast(self._read() if self._page is not None else "")
        if not text:
            return []
        orders = PassOrders.model_validate_json(text).orders
        new = sorted((o for o in orders if o.id > self._last_id), key=lambda o: o.id)
        self._last_id = max((order.id for order in new), default=self._last_id)
        return new

    def _read(self) -> str:
        assert self._page is not None
        assert self._file is not None
        last_id = self._page.last_order()
        try:
            return self._file.read_text(encoding="utf-8")
        except OSError as error:  # user code may have removed the folder
            logger.warning("%s cannot be read: %s", self._file, error)
            self._last_id = last_id
            return ""
