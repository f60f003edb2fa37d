"""Keeps agents running, and reports to the machine those that are away or lost.

An agent is connected while it streams its commands from the master.

connected                       nothing to do
connected, silent for SILENT_S  it is frozen: its link is closed, and its trials show the problem
disconnected for AWAY_S         nothing new is started on it
disconnected, lock held         it is starting, or will connect again: wait, however long
disconnected, lock free         it has exited: start another, with growing pauses if it exits soon
disconnected for LOST_S         its runs count as lost, unless a process has held its lock within
                                LOST_S: its successor may report how they have ended
disconnected, node has exited   the same, at once: its cluster reports that nothing runs there

When the master ends, running trials are killed or continue; if none runs, the agent ends too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.messages import Kill, Leave, Loss
from det_jupyter.engine import Engine
from det_jupyter.master.background.clusters import Clusters
from det_jupyter.master.machine.model.events import AgentAway, AgentLost
from det_jupyter.master.machine.model.state import Agent
from det_jupyter.master.service.agents.links import SILENT_S
from det_jupyter.master.service.service import Service

logger = logging.getLogger(__name__)

CHECK_S = 0.2
AWAY_S = 1.0
LOST_S = 30.0
_GANGS_S, _AGENT_S = 10.0, 5.0  # time for gangs and for an agent to end when the master ends


class AgentSupervisor:
    """Keeps the agents of an engine running; see the module's docstring.

    Args:
        service: The master's service.
        engine: Starts agents.
        lost_s: How long an agent may be disconnected before its runs count as lost.
    """

    def __init__(self, service: Service, engine: Engine, *, lost_s: float = LOST_S) -> None:
        self._service = service
        self._engine = engine
        self._lost_s = lost_s
        self._lost: set[str] = set()
        # By agent: how long it was silent when its lock was found free.
        self._ended_s: dict[str, float] = {}

    async def run(self) -> None:
        """Check the agents several times a second, until cancelled."""
        while True:
            try:
                for what in self._engine.keep(self.connected()):
                    logger.info("started %s", what)
                if self._engine.problem not in ("", self._service.engine_problem):
                    logger.error("%s", self._engine.problem)
                self._service.engine_problem = self._engine.problem
                self._check_agents()
            except Exception:  # a full disk, for example; it is tried again
                logger.exception("a check of the agents failed; the next follows")
            await asyncio.sleep(CHECK_S)

    def connected(self) -> list[str]:
        """Return the connected agents among those of the engine."""
        agents = self._service.machine.state.agents
        connected = self._service.links.connected()
        return [id for id in connected if id not in agents or not agents[id].is_remote]

    def _check_agents(self) -> None:
        links, nodes = self._service.links, self._service.nodes
        links.tick()
        for heard in self._service.unmanaged.newly_silent(time.time()):
            self._service.take(heard)
        for agent_id in links.drop_silent():
            logger.warning("agent %s has sent nothing for %g s: its connection is closed",
                           agent_id, SILENT_S)  # fmt: skip
        for agent_id, agent in list(self._service.machine.state.agents.items()):
            silent_s = links.silent_s(agent_id)
            if silent_s > AWAY_S:
                problem = self._service.admission.refusal_of(agent_id)
                if not agent.is_remote:
                    problem = problem or self._engine.problem
                if not problem and silent_s >= SILENT_S:
                    problem = self._why_silent(agent) or ""
                if not agent.is_away or agent.problem != problem:
                    self._service.take(AgentAway(agent_id=agent_id, problem=problem))
            is_over = silent_s > AWAY_S and nodes.has_exited(agent_id)
            if silent_s < min(AWAY_S, self._lost_s):
                self._lost.discard(agent_id)
                self._ended_s.pop(agent_id, None)
            elif agent_id not in self._lost and self._why_silent(agent) is None:
                ended_s = self._ended_s.setdefault(agent_id, silent_s)
                since_s = silent_s if agent.is_remote else silent_s - ended_s
                if since_s >= self._lost_s or is_over:
                    logger.error(
                        "agent %s was lost, and with it the ranks that ran there", agent_id
                    )
                    # If it was never heard, it may have ended while there was no master.
                    loss = Loss.SILENCE if links.was_heard(agent_id) else Loss.MASTER
                    self._service.take(AgentLost(agent_id=agent_id, loss=loss))
                    # Last, because the above is tried again if the disk is full.
                    self._lost.add(agent_id)

    def _why_silent(self, agent: Agent) -> str | None:
        """Return why an agent that runs is not connected; None if it has exited.

        If any agent is connected, it is the agent process that the engine keeps running, and
        others have exited.
        """
        if agent.is_remote:
            nodes = self._service.nodes
            is_lost = self._service.links.silent_s(agent.id) >= self._lost_s
            if is_lost or nodes.has_exited(agent.id):
                return None
            where = "" if agent.hostname in ("", agent.id) else f" on {agent.hostname}"
            why = (
                f"agent {agent.id}{where} cannot be reached; it ends what runs there when that "
                "lasts 25 s"
            )
            return "; ".join(filter(None, [nodes.note_on(agent.id), why]))
        if self.connected():
            return None
        process = ProcessIdentity(agent.pid, agent.birth, agent.hostname)
        return self._engine.why_silent(agent.id, process)

    async def end_agents(self, timeout_s: float) -> None:
        """Wait until the agents have exited as commanded; at the timeout, kill them."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._engine.is_running():
                    await asyncio.sleep(0.02)
                return
        logger.warning("an agent did not leave in %g s", timeout_s)
        self._engine.dismiss()


async def shut_down(
    service: Service, supervisor: AgentSupervisor, clusters: Clusters, *, everything: bool
) -> None:
    """End all parts of the master except the server, which answers until the process exits.

    Args:
        service: The master's service.
        supervisor: The agents' supervisor, whose task has been cancelled.
        clusters: All clusters; their bridges are ended, and their agents like the others.
        everything: Also kill running trials; else they continue under their agent.
    """
    service.begin_to_leave()
    if everything:
        await _end_experiments(service)
    is_idle = not service.machine.indexes.any_holds_slots
    async with asyncio.TaskGroup() as group:
        group.create_task(clusters.close(end_hosts=everything or is_idle))
        if everything or is_idle:
            group.create_task(_dismiss_agents(service, supervisor))
    service.end_streams()


async def _end_experiments(service: Service) -> None:
    for experiment in service.machine.state.unfinished_experiments():
        if experiment.is_unmanaged:  # its process is not ours
            continue
        try:
            service.apply(Kill(experiment_id=experiment.id))
        except Exception:  # a full disk, for example; the ranks end with their agents
            logger.exception("experiment %d could not be killed", experiment.id)
            return
    deadline = asyncio.get_running_loop().time() + _GANGS_S
    while service.machine.indexes.any_holds_slots and service.links.connected():
        left_s = deadline - asyncio.get_running_loop().time()
        if left_s <= 0:
            logger.warning("some ranks did not end in %g s", _GANGS_S)
            return
        await service.commits.wait(min(left_s, 0.2))


async def _dismiss_agents(service: Service, supervisor: AgentSupervisor) -> None:
    ending = asyncio.create_task(supervisor.end_agents(_AGENT_S))
    commanded: set[str] = set()
    while True:
        # An agent that was started a moment ago receives the command once it has registered.
        for agent_id in set(supervisor.connected()) - commanded:
            commanded.add(agent_id)
            service.links.send(agent_id, Leave())
        if ending.done():
            return
        await asyncio.wait({ending}, timeout=0.02)
