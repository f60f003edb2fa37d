"""A run whose gang is not over, and the ways to end the gang early."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from det_jupyter.agent.devices.watch import WatchPlan
from det_jupyter.agent.runs.gang import Gang
from det_jupyter.agent.runs.memory_watch import MemoryEvidence
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.contract.messages import Cut, DeviceFault, Loss

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class ActiveRun:
    """A run whose gang is not over: its task, and the timer of its deadline."""

    run: AgentRun
    gang: Gang
    memory: MemoryEvidence = field(default_factory=MemoryEvidence)  # when the first rank failed
    faults: dict[int, DeviceFault] = field(default_factory=dict)  # at that time, by rank
    started_at: float = 0.0  # UTC seconds
    end_ordered: asyncio.Event = field(default_factory=asyncio.Event)
    deadline: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None
    ending: asyncio.Task[None] | None = None  # ends it when survivors have saved (survivors.py)

    def kill(self) -> None:
        """End the gang by order of the master, or at the deadline that the master set."""
        self.gang.kill()
        self.end_ordered.set()

    def ask_to_leave(self) -> bool:
        """Request that the ranks save and leave; return False if their code reads no requests."""
        try:
            with self.run.open_page() as page:
                if page.checked_at() is None:
                    return False
                page.raise_signal("preempt")
        except (OSError, ValueError):  # user code may have removed the folder
            return False
        return True

    def lose(self, loss: Loss) -> None:
        """End the gang because its ranks cannot stay."""
        self.gang.lose(loss)
        self.end_ordered.set()

    def cut_off(self, cut: Cut) -> None:
        """End the gang because the computer of other ranks cannot be reached."""
        logger.error("allocation=%s: %s", self.run.id, cut.sentence)
        self.gang.cut_off(cut)

    def kill_at(self, deadline: float) -> None:
        """Kill the gang at this time of the loop's clock, or at its earlier deadline."""
        if self.deadline is not None:
            deadline = min(deadline, self.deadline.when())
            self.deadline.cancel()
        self.deadline = asyncio.get_running_loop().call_at(deadline, self._kill_late)

    def _kill_late(self) -> None:
        logger.warning("allocation=%s did not leave in time: killed", self.run.id)
        self.kill()

    async def find_faults(self, watched: Mapping[str, WatchPlan]) -> None:
        """Find the errors of the gang's devices since it was started; `watched`: by agent."""
        plan = self.run.plan
        for agent_id, devices in watched.items():
            slots = {plan.slots[r].id: r for r in self.run.ranks if plan.homes[r] == agent_id}
            if slots:
                pids = self.gang.pids.values()
                faults = await devices.faults_of(slots.keys(), self.started_at, pids)
                self.faults |= {slots[slot]: fault for slot, fault in faults.items()}

    async def completes(self, work: Coroutine[Any, Any, None]) -> bool:
        """Await the work, or cancel it when the end is ordered; return whether it is done."""
        working = asyncio.create_task(work)
        ended = asyncio.create_task(self.end_ordered.wait())
        await asyncio.wait({working, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if working.done():
            working.result()  # raises its exception
            return True
        working.cancel()
        await asyncio.wait({working})
        return False


class LivingGang(NamedTuple):
    """A gang whose ranks exist, with their pids by rank."""

    run: AgentRun
    pids: Mapping[int, int]
