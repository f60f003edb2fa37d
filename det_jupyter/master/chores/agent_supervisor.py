"""Keeps one agent running on this computer, and reports agents that are away or lost.

listens to us            nothing to do
silent for SILENT_S      it is frozen: its line is closed, and its trials show what is wrong
has no line for AWAY_S   nothing new is started there
has none, lock held      it is starting, or will find us again: wait, however long
has none, lock free      it is dead: start another, with growing pauses when they die at once
gone for LOST_S          whatever ran there counts as dead, unless its process holds the lock

When the master ends, what runs is killed or left alone; if nothing runs, the agent leaves too.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress

from det_jupyter.engine.local import is_agent_running, start_agent
from det_jupyter.master.machine.core.events import AgentAway, AgentLost
from det_jupyter.master.machine.core.state import Agent
from det_jupyter.master.service.links import SILENT_S
from det_jupyter.master.service.service import Service
from det_jupyter.system.processes import is_frozen
from det_jupyter.wire import Kill, Leave

logger = logging.getLogger(__name__)

LOOK_S = 0.2
AWAY_S = 1.0
LOST_S = 30.0
_PAUSES_S = (0.2, 5.0)  # first and longest, between the deaths of agents that do not last
_GANGS_S, _AGENT_S = 10.0, 5.0  # how long they may take to end with the master
_LASTING_S = 10.0  # an agent that ran for this long did not fail at its start


class AgentSupervisor:
    """See the module's docstring; its arguments are those of `serve`."""

    def __init__(
        self,
        service: Service,
        *,
        agent: subprocess.Popen[bytes] | None,
        starts_agents: bool,
        agents: Sequence[str] = (),
        lost_s: float = LOST_S,
    ) -> None:
        self._service = service
        self._agent = agent
        self._starts_agents = starts_agents
        self._agents = agents
        self._lost_s = lost_s
        self._lost: set[str] = set()
        self._started_at = time.monotonic()
        self._pause_s = _PAUSES_S[0]

    async def run(self) -> None:
        """Check the agents several times a second, until cancelled."""
        while True:
            try:
                if self._starts_agents:
                    self._keep_agent()
                self._look_at_agents()
            except Exception:  # a full disk, say; the next look may go better
                logger.exception("looking after the agents failed")
            await asyncio.sleep(LOOK_S)

    def _keep_agent(self) -> None:
        if self._is_own_alive() or self._service.links.connected() or is_agent_running():
            return
        lived_s = time.monotonic() - self._started_at
        if lived_s < self._pause_s:
            return
        short = self._agent is not None and lived_s < _LASTING_S
        self._pause_s = min(2 * self._pause_s, _PAUSES_S[1]) if short else _PAUSES_S[0]
        self._started_at = time.monotonic()
        self._agent = start_agent(self._agents)
        logger.info("no agent here: started one, pid=%d", self._agent.pid)

    def _look_at_agents(self) -> None:
        links = self._service.links
        links.tick()
        for agent_id in links.drop_silent():
            logger.warning("agent %s has said nothing for %g s: its line is closed",
                           agent_id, SILENT_S)  # fmt: skip
        for agent_id, agent in list(self._service.machine.state.agents.items()):
            silent_s = links.silent_s(agent_id)
            if silent_s > AWAY_S:
                problem = self._problem_of(agent, silent_s)
                if not agent.is_away or agent.problem != problem:
                    self._service.take(AgentAway(agent_id=agent_id, problem=problem))
            if silent_s < self._lost_s:
                self._lost.discard(agent_id)
            elif agent_id not in self._lost and not self._is_one_unheard():
                self._lost.add(agent_id)
                logger.error("agent %s is gone: what ran there is lost", agent_id)
                self._service.take(AgentLost(agent_id=agent_id))

    def _is_one_unheard(self) -> bool:
        """Return whether this computer's agent lives, though it has no line to us.

        If any listens, it is that process which holds the lock, and others are gone.
        """
        if not self._starts_agents or self._service.links.connected():
            return False
        return is_agent_running()

    def _problem_of(self, agent: Agent, silent_s: float) -> str:
        """Return why an agent has no line to us, as far as that can be known from here."""
        if refusal := self._service.refusal_of(agent.id):
            return refusal
        if silent_s < SILENT_S or not self._is_one_unheard():
            return ""
        who = f"agent {agent.id} (process {agent.pid})"
        end = f"`kill -KILL {agent.pid}` ends it, and its trials go on from their checkpoints"
        if is_frozen(agent.pid):
            return f"{who} is stopped: `kill -CONT {agent.pid}` lets it go on; {end}"
        return f"{who} does not answer; {end}"

    def is_agent_here(self) -> bool:
        """Return whether an agent of this computer lives."""
        return self._is_own_alive() or is_agent_running()

    def _is_own_alive(self) -> bool:
        return self._agent is not None and self._agent.poll() is None  # which also reaps it

    async def end_agent(self, timeout_s: float) -> None:
        """Wait until the agent has left as commanded; after the timeout, terminate ours."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.is_agent_here():
                    await asyncio.sleep(0.02)
        if self._agent is not None and self._is_own_alive():
            logger.warning("the agent did not leave in %g s; terminated", timeout_s)
            self._agent.terminate()


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
        service.apply(Kill(experiment_id=experiment.id))
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
