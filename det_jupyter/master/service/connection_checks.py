"""Checks the connections of agents on other computers, and describes problems with them."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

from det_jupyter.contract.messages import (
    AgentCheck,
    CheckConnections,
    ClusterCheck,
    ConnectionsChecked,
)
from det_jupyter.errors import DetError, NotFound
from det_jupyter.master.machine.model.events import AgentsReachable
from det_jupyter.master.service.agents.agent_access import AgentAccess
from det_jupyter.master.service.agents.gang_links import link_between
from det_jupyter.master.service.service import Service

logger = logging.getLogger(__name__)

_ANSWER_S = 25.0
_FOLDER_S = 5.0  # time for a folder to answer; one on a network may never answer
_MOST_AHEAD_S = 1.0  # greatest difference of clocks that is not a problem
_SLOW_BYTES_PER_S = 10e6  # slower transfers of checkpoints are a problem: 1 GB takes 100 s
_SLOW_PEER_BYTES_PER_S = 50e6  # slower transfers of gradients are a problem; 1 Gbit/s is faster
_SENT_BYTES = 64 * 2**20  # most bytes sent to each other agent
_PEER_S = 3.0  # time for the transfer to each other agent
_CUTS_S = 10.0  # pause between two examinations of a pair of agents that cannot reach each other
_CUTS_POLL_S = 1.0
_PREFIX = ".det-probe-"

Pair: TypeAlias = frozenset[str]


class ConnectionChecks:
    """Checks the connections of agents, and whether separated agents can reach each other again.

    Args:
        service: Has the agents.
        access: Has the certificate for connections between agents.
    """

    def __init__(self, service: Service, access: AgentAccess) -> None:
        self._service = service
        self._access = access
        self._answers: dict[tuple[str, str], asyncio.Future[ConnectionsChecked]] = {}

    def take(self, agent_id: str, check_id: str, checked: ConnectionsChecked) -> None:
        """Store the measurements of an agent.

        Raises:
            NotFound: No check waits for them.
        """
        answer = self._answers.get((agent_id, check_id))
        if answer is None or answer.done():
            raise NotFound("the check is over")
        answer.set_result(checked)

    async def check(self, folder: str) -> ClusterCheck:
        """Check all agents on other computers.

        Args:
            folder: A folder that they should share with this computer; "": none.

        Raises:
            DetError: The folder cannot be written on this computer, or there is no certificate.
            OSError: The certificate cannot be read.
        """
        state, links = self._service.machine.state, self._service.links
        remote = [agent for agent in state.agents.values() if agent.is_remote]
        connected = [agent.id for agent in remote if links.is_connected(agent.id)]
        answers = await self._measure(connected, _SENT_BYTES, folder) if connected else {}
        checks = [
            AgentCheck(
                agent=agent.id,
                hostname=agent.hostname,
                clock_ahead_s=self._service.clock_ahead_s(agent.id),
                measured=answers.get(agent.id),
            )
            for agent in remote
        ]
        problems = find_problems([each for each in checks if each.agent in connected], folder)
        return ClusterCheck(
            agents=checks,
            problems=[*self._absences(connected), *problems, *self._service.problems],
        )

    def _absences(self, connected: Sequence[str]) -> list[str]:
        """Return a sentence for each agent that may connect and is not connected.

        Agents on nodes of clusters are left out if they have never registered.
        """
        agents, access = self._service.machine.state.agents, self._access
        why = (
            f"if it runs, it prints why it cannot connect to port {access.port} of this computer; "
            "if a firewall closes that port, open it"
        )
        return [
            f"agent {name} is not connected: {(name in agents and agents[name].problem) or why}"
            for name in access.agents
            if name not in connected and (name in agents or not access.cluster_of(name))
        ]

    async def _measure(
        self, names: Sequence[str], num_bytes: int, folder: str = ""
    ) -> dict[str, ConnectionsChecked]:
        """Request agents to measure their connections; return the answers by agent."""
        check_id = uuid.uuid4().hex
        link = link_between(names, check_id, self._service.machine.state, self._access)
        loop = asyncio.get_running_loop()
        answers = {name: loop.create_future() for name in names}
        waiting = {(name, check_id): answer for name, answer in answers.items()}
        self._answers |= waiting
        try:
            async with _probe_in(folder) as probe:
                command = CheckConnections(
                    check_id=check_id, link=link, num_bytes=num_bytes, probe=probe
                )
                for name in names:
                    self._service.links.send(name, command)
                await asyncio.wait(answers.values(), timeout=_ANSWER_S + len(names) * _PEER_S)
            return {name: answer.result() for name, answer in answers.items() if answer.done()}
        finally:
            for key, answer in waiting.items():
                del self._answers[key]
                answer.cancel()

    async def keep_cuts_current(self) -> None:
        """Examine repeatedly which separated agents can reach each other again, until cancelled.

        An agent takes part in one examination at a time, so a slow one delays only its own pairs.
        """
        examining: dict[Pair, asyncio.Task[None]] = {}
        ended_at: dict[Pair, float] = {}
        loop = asyncio.get_running_loop()
        try:
            while True:
                await asyncio.sleep(_CUTS_POLL_S)
                for pair in [pair for pair, task in examining.items() if task.done()]:
                    del examining[pair]
                    ended_at[pair] = loop.time()
                pairs = [cut.pair for cut in self._service.machine.state.cuts]
                ended_at = {pair: ended_at.get(pair, loop.time()) for pair in pairs}
                for pair in sorted(pairs, key=ended_at.__getitem__):
                    is_due = loop.time() - ended_at[pair] >= _CUTS_S
                    if is_due and not any(pair & other for other in examining):
                        examining[pair] = asyncio.create_task(self._examine(sorted(pair)))
        finally:
            for task in examining.values():
                task.cancel()

    async def _examine(self, pair: Sequence[str]) -> None:
        """Let two agents that could not reach each other try again."""
        links = self._service.links
        try:
            if all(links.is_connected(name) for name in pair):
                answers = await self._measure(pair, 0)
                if len(answers) == 2 and not any(a.closed for a in answers.values()):
                    self._service.take(AgentsReachable(agents=list(pair)))
        except Exception:  # a full disk, for example; it is tried again
            logger.exception(
                "whether %s reach each other could not be examined", " and ".join(pair)
            )


@asynccontextmanager
async def _probe_in(folder: str) -> AsyncIterator[str]:
    """Create a file in a folder, removed after the block, and yield its path; "": no folder.

    Raises:
        DetError: The file cannot be created, or the folder does not answer.
    """
    if not folder:
        yield ""
        return
    try:
        async with asyncio.timeout(_FOLDER_S):
            descriptor, probe = await asyncio.to_thread(tempfile.mkstemp, "", _PREFIX, folder)
    except TimeoutError:
        raise DetError(
            f"{folder}: does not answer within {_FOLDER_S:g} s; if it is on a network, see "
            "whether its server can be reached"
        ) from None
    except OSError as error:
        raise DetError(f"{folder}: nothing can be written there: {error.strerror}") from None
    os.close(descriptor)
    try:
        yield probe
    finally:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_FOLDER_S):
                await asyncio.to_thread(os.unlink, probe)


def find_problems(checks: Sequence[AgentCheck], folder: str) -> list[str]:
    """Return sentences on the problems, the most important first.

    Args:
        checks: The results of the checks.
        folder: The folder that the agents should share with this computer.
    """
    silent, closed, unshared, others = [], [], [], []
    known = {check.agent for check in checks}
    for check in checks:
        found = check.measured
        if found is None:
            silent.append(f"agent {check.agent} on {check.hostname} does not answer")
            continue
        closed += [
            f"{cut.sentence}. If a firewall closes ports between the two, open them; a trial "
            "cannot span both"
            for cut in found.closed
            if cut.to_agent in known  # the agent may have left meanwhile
        ]
        if not found.has_folder:
            unshared.append(
                f"agent {check.agent} on {check.hostname} does not see what this computer writes "
                f"to {folder}: mount the same folder on both"
            )
        if abs(check.clock_ahead_s) > _MOST_AHEAD_S:
            direction = "ahead of" if check.clock_ahead_s > 0 else "behind"
            others.append(
                f"the clock of {check.hostname} is {abs(check.clock_ahead_s):.1f} s {direction} "
                "this computer's: times are corrected, but programs compare files' times"
            )
        slowest = min(found.down_bytes_per_s, found.up_bytes_per_s)
        if slowest < _SLOW_BYTES_PER_S:
            others.append(
                f"agent {check.agent} exchanges {slowest / 1e6:.1f} MB/s with this computer: "
                "checkpoints take long"
            )
        others += [
            f"agent {check.agent} sends {peer.bytes_per_s / 1e6:.1f} MB/s to agent {name}: in a "
            "trial on both, exchanging gradients takes long"
            for name, peer in found.peers.items()
            if peer.bytes_per_s is not None and peer.bytes_per_s < _SLOW_PEER_BYTES_PER_S
        ]
    return [*silent, *closed, *unshared, *others]
