"""How a master ends: what runs is killed or left alone; if nothing runs, the agent leaves too."""

from __future__ import annotations

import asyncio
import logging

from det_jupyter.master.chores.agent_supervisor import AgentSupervisor
from det_jupyter.master.machine.core.events import KillRequested
from det_jupyter.master.service.service import Service
from det_jupyter.wire import Leave

logger = logging.getLogger(__name__)

_GANGS_S = 10.0
_AGENT_S = 5.0


async def shut_down(service: Service, supervisor: AgentSupervisor, *, everything: bool) -> None:
    """End everything but the server, which answers until the process ends.

    Args:
        supervisor: Of this computer's agent; its task has been cancelled.
        everything: Also end running trials; else they go on under their agent.
    """
    service.begin_to_leave()
    if everything:
        await _end_experiments(service)
    if everything or not service.machine.indexes.has_holding:
        await _dismiss_agents(service, supervisor)
    service.end_streams()


async def _end_experiments(service: Service) -> None:
    for experiment in service.machine.state.living_experiments():
        service.apply(KillRequested(experiment_id=experiment.id))
    deadline = asyncio.get_running_loop().time() + _GANGS_S
    while service.machine.indexes.has_holding and service.links.connected():
        left_s = deadline - asyncio.get_running_loop().time()
        if left_s <= 0:
            logger.warning("some ranks did not end in %g s", _GANGS_S)
            return
        await service.bell.wait(min(left_s, 0.2))


async def _dismiss_agents(service: Service, supervisor: AgentSupervisor) -> None:
    ending = asyncio.create_task(supervisor.end_agent(_AGENT_S))
    told: set[str] = set()
    while True:
        # An agent that was started a moment ago gets the command once it has registered.
        for agent_id in set(service.links.connected()) - told:
            told.add(agent_id)
            service.links.send(agent_id, Leave())
        if ending.done():
            return
        await asyncio.wait({ending}, timeout=0.02)
