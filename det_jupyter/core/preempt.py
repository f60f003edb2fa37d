"""The request to save and leave: a word of the control page; outside of experiments never set."""

from __future__ import annotations

from enum import Enum

from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.core.distributed import DistributedContext
from det_jupyter.core.values import ContextPart


class PreemptMode(Enum):
    """Which ranks may call `should_preempt`, and how the answer reaches them.

    WorkersAskChief: all ranks ask in step, and get the chief's answer.
    ChiefOnly: only the chief asks; the script passes the answer on.
    WorkersAskMaster: each rank asks for itself; for a moment the answers may differ.
    """

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHIEF_ONLY"
    WorkersAskMaster = "WORKERS_ASK_MASTER"


class PreemptContext(ContextPart):
    """Whether this run was asked to save its state and leave.

    Args:
        page: The run's control page; None outside of experiments.
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
        # Of a context that core.init() made, until its `with` block begins.
        self.awaits_block = False
        self._is_acknowledged = False

    @property
    def is_acknowledged(self) -> bool:
        """Whether this rank has noticed the request: if it ends now, its trial continues later."""
        return self._is_acknowledged

    def was_asked(self) -> bool:
        """Return whether the agent has asked, on the chief; other ranks return False."""
        return self._distributed.is_chief and self._is_raised()

    def should_preempt(self, auto_ack: bool = True) -> bool:
        """Return whether to save the state and leave.

        Collective in the mode WorkersAskChief: all ranks must call it in step, get the same
        answer, and it costs a broadcast. In the other modes it reads a word of memory.

        Args:
            auto_ack: Whether a request counts as acknowledged by this call. Without
                acknowledgement, a script that ends with exit code 0 has completed its trial.

        Raises:
            RuntimeError: The `with` block of the context has not begun, or has ended; or another
                rank than the chief asks in the mode ChiefOnly.
        """
        self.check_open("preempt.should_preempt")
        if self.awaits_block:
            raise RuntimeError(
                "preempt.should_preempt: the `with` block of this context has not begun; write "
                "`with core.init() as context:` and call it in there"
            )
        is_asked = self._ask()
        if is_asked and auto_ack:
            self.acknowledge_preemption_signal()
        return is_asked

    def acknowledge_preemption_signal(self) -> None:
        """Note that this rank leaves because of the request, so that its trial goes on later."""
        if not self._is_acknowledged and self._page is not None:
            self._page.acknowledge()
        self._is_acknowledged = True

    def _ask(self) -> bool:
        if self.mode is PreemptMode.WorkersAskChief:
            return self._distributed.broadcast(self.was_asked())
        if self.mode is PreemptMode.ChiefOnly and not self._distributed.is_chief:
            raise RuntimeError(
                "preempt.should_preempt: only the chief (rank 0) asks in PreemptMode.ChiefOnly, "
                f"and this is rank {self._distributed.rank}; broadcast the chief's answer, or "
                "leave preempt_mode out of core.init"
            )
        return self._is_raised()

    def _is_raised(self) -> bool:
        return self._page is not None and self._page.is_raised("preempt")
