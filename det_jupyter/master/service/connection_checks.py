"""Checks the connections of agents on other computers, and says what is wrong with them."""

from __future__ import annotations

import asyncio
import os
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from det_jupyter.contract.messages import (
    AgentCheck,
    CheckConnections,
    ClusterCheck,
    ConnectionsChecked,
    Peer,
)
from det_jupyter.contract.values.text import shortened
from det_jupyter.errors import DetError, NotFound
from det_jupyter.master.machine.model.state import Agent
from det_jupyter.master.service.service import Service

_ANSWER_S = 25.0
_FOLDER_S = 5.0  # how long a folder may take to answer; one on a network may never
_MOST_AHEAD_S = 1.0  # the difference of clocks that is worth mending
_SLOW_BYTES_PER_S = 10e6  # of checkpoints: 1 GB takes 100 s
_PREFIX = ".det-probe-"


class ConnectionChecks:
    """The checks that are under way."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._answers: dict[str, asyncio.Future[ConnectionsChecked]] = {}

    def take(self, check_id: str, checked: ConnectionsChecked) -> None:
        """Take what an agent has measured.

        Raises:
            NotFound: This is not waited for.
        """
        answer = self._answers.get(check_id)
        if answer is None or answer.done():
            raise NotFound("the check is over")
        answer.set_result(checked)

    async def check(self, folder: str) -> ClusterCheck:
        """Check all agents on other computers.

        Args:
            folder: A folder that they should have in common with this computer; "": none.

        Raises:
            DetError: Nothing can be written in the folder here.
        """
        state, links = self._service.machine.state, self._service.links
        remote = [agent for agent in state.agents.values() if agent.is_remote]
        connected = [agent for agent in remote if links.is_connected(agent.id)]
        measured = await asyncio.gather(
            *(self._measure(agent, connected, folder) for agent in connected)
        )
        answers = {agent.id: each for agent, each in zip(connected, measured, strict=True)}
        checks = [
            AgentCheck(
                agent=agent.id,
                hostname=agent.hostname,
                cluster=agent.cluster,
                num_slots=len(agent.slots),
                slot_kind=agent.slots[0].kind if agent.slots else "",
                versions=agent.versions,
                clock_ahead_s=self._service.clock_ahead_s(agent.id),
                measured=answers.get(agent.id),
            )
            for agent in remote
        ]
        problems = find_problems(checks, {agent.id: agent for agent in remote}, folder)
        return ClusterCheck(agents=checks, problems=[*problems, *self._service.problems])

    async def _measure(
        self, agent: Agent, others: Sequence[Agent], folder: str
    ) -> ConnectionsChecked | None:
        check_id = uuid.uuid4().hex
        probe = await _probe_in(folder) if folder else None
        answer: asyncio.Future[ConnectionsChecked] = asyncio.get_running_loop().create_future()
        self._answers[check_id] = answer
        peers = [
            Peer(agent=other.id, address=other.address, port=other.port)
            for other in others
            if other.id != agent.id and other.port
        ]
        self._service.links.send(
            agent.id,
            CheckConnections(check_id=check_id, peers=peers, probe=str(probe or "")),
        )
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._answers[check_id]
            if probe is not None:
                with suppress(OSError, TimeoutError):
                    async with asyncio.timeout(_FOLDER_S):
                        await asyncio.to_thread(probe.unlink, missing_ok=True)


async def _probe_in(folder: str) -> Path:
    """Make a file in a folder; return its path.

    Raises:
        DetError: That is not possible, or the folder does not answer.
    """
    try:
        async with asyncio.timeout(_FOLDER_S):
            return await asyncio.to_thread(make_probe, folder)
    except TimeoutError:
        raise DetError(
            f"{folder}: does not answer within {_FOLDER_S:g} s; if it is on a network, see "
            "whether its server can be reached"
        ) from None


def make_probe(folder: str) -> Path:
    """Make a file in a folder; return its path.

    Raises:
        DetError: That is not possible.
    """
    try:
        descriptor, name = tempfile.mkstemp(prefix=_PREFIX, dir=folder)
    except OSError as error:
        raise DetError(f"{folder}: nothing can be written there: {error.strerror}") from None
    os.close(descriptor)
    return Path(name)


def find_problems(
    checks: Sequence[AgentCheck], agents: Mapping[str, Agent], folder: str
) -> list[str]:
    """Return what is wrong, in sentences, the most important first.

    Args:
        checks: What was found.
        agents: The agents by name, for their addresses.
        folder: The folder that they should have in common.
    """
    silent, closed, unshared, others = [], [], [], []
    for check in checks:
        found = check.measured
        if found is None:
            silent.append(f"agent {check.agent} on {check.hostname} does not answer")
            continue
        for peer, why in found.closed.items():
            if (to := agents.get(peer)) is not None:  # the agent may have left meanwhile
                closed.append(
                    f"agent {check.agent} cannot connect to agent {peer} at {to.address} port "
                    f"{to.port} ({shortened(why)}): if a firewall closes ports between the two, "
                    "open them; a trial cannot span both"
                )
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
    return [*silent, *closed, *unshared, *others, *_differences(checks)]


def _differences(checks: Sequence[AgentCheck]) -> list[str]:
    """Return a sentence if agents have slots of different numbers or kinds."""
    sizes = {(check.num_slots, check.slot_kind) for check in checks if check.measured is not None}
    if len(sizes) < 2:
        return []
    each = ", ".join(f"{check.agent} {check.num_slots} {check.slot_kind}" for check in checks)
    return [f"agents differ in their slots ({each}): a trial spans computers of one size only"]
