"""The links to the agents: a queue of commands for each registered agent process.

    registered ──► streaming ──► dropped         an agent that reconnects registers again and so
                       │            ▲            gets a new link; the old one is closed
                       └────────────┘            no report for SILENT_S: the agent is stopped

An agent reports every few seconds, if only an empty report as a heartbeat. Silence is counted only
while this process runs, so agents do not count as lost after the master itself was stopped.

Commands in the queue of a link that is dropped are lost, and need not be stored: at a registration
the machine repeats its commands to the agent.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from det_jupyter.contract.messages import AgentCommand
from det_jupyter.errors import Conflict

SILENT_S = 10.0  # an agent reports at least every 3 s
_LONGEST_TICK_S = 1.0
_FIRST_S = 15.0  # how long a submission or preview waits for the first agent


class AgentLink:
    """The link to one agent process; its commands can be streamed once.

    Args:
        clock: Returns the seconds for which this process has run.
    """

    def __init__(self, session: str, clock: Callable[[], float]) -> None:
        self.session = session
        self.is_streaming = False
        self.has_ended = False  # its stream has ended
        self.reported_at = clock()
        self.disconnected_at = clock()  # valid only while `is_streaming` is False
        self._clock = clock
        self._was_streamed = False
        self._queue: deque[AgentCommand | None] = deque()  # None marks the end of the stream
        self._filled = asyncio.Event()

    def send(self, command: AgentCommand) -> None:
        self._queue.append(command)
        self._filled.set()

    def close(self) -> None:
        """End the stream after the commands that are queued."""
        self._queue.append(None)
        self._filled.set()

    def stream(self, heartbeat_s: float) -> AsyncIterator[bytes]:
        """Return a JSON line for each command, and an empty line as a heartbeat.

        Raises:
            Conflict: The commands were streamed before; the agent must register again.
        """
        if self._was_streamed:
            raise Conflict("this session's commands were streamed before; register again")
        self._was_streamed = True
        return self._lines(heartbeat_s)

    async def _lines(self, heartbeat_s: float) -> AsyncIterator[bytes]:
        self.is_streaming = True
        try:
            yield b"\n"  # shows the agent at once that it is connected
            while True:
                while self._queue:
                    command = self._queue.popleft()
                    if command is None:
                        return
                    yield command.model_dump_json().encode() + b"\n"
                self._filled.clear()
                try:
                    async with asyncio.timeout(heartbeat_s):
                        await self._filled.wait()
                except TimeoutError:
                    yield b"\n"
        finally:
            self.is_streaming, self.has_ended = False, True
            self.disconnected_at = self._clock()


class AgentLinks:
    """The links to all agents."""

    def __init__(self) -> None:
        self._links: dict[str, AgentLink] = {}
        self._dropped_at: dict[str, float] = {}
        self._refused_at: dict[str, float] = {}
        self._running_s = 0.0  # seconds for which this process has run
        self._ticked_at = time.monotonic()
        self.registered = asyncio.Event()  # set once any agent has registered

    @property
    def running_s(self) -> float:
        """Seconds for which this process has run."""
        return self._running_s

    def open(self, agent_id: str, session: str) -> AgentLink:
        """Return a new link to an agent; the agent's earlier link is closed."""
        if old := self._links.get(agent_id):
            old.close()
        link = self._links[agent_id] = AgentLink(session, lambda: self._running_s)
        self.registered.set()
        return link

    def get(self, agent_id: str, session: str) -> AgentLink:
        """Return the link of this agent process, and restart the timer for its silence.

        Raises:
            Conflict: This process has not registered, or another process with this agent id has
                registered since.
        """
        link = self._links.get(agent_id)
        if link is None or link.session != session:
            raise Conflict(f"agent {agent_id}: this session is not registered; register first")
        link.reported_at = self._running_s
        return link

    def is_current(self, agent_id: str, link: AgentLink) -> bool:
        """Return whether this is the agent's present link, and has not ended."""
        return self._links.get(agent_id) is link and not link.has_ended

    async def wait_for_first(self) -> None:
        """Wait for a short time until the first agent has registered its slots.

        Without slots, the size of a trial cannot be checked.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_S):
                await self.registered.wait()

    def refuse(self, agent_id: str) -> None:
        """Record that an agent tried to register and was refused."""
        self._refused_at[agent_id] = self._running_s
        self.registered.set()  # the first agent is refused: do not wait for another one

    def was_refused(self, agent_id: str) -> bool:
        """Return whether an agent was refused within SILENT_S; it retries about every second."""
        refused_at = self._refused_at.get(agent_id)
        return refused_at is not None and self._running_s - refused_at < SILENT_S

    def tick(self) -> None:
        """Count the time since the last tick. Called several times a second."""
        now = time.monotonic()
        self._running_s += min(now - self._ticked_at, _LONGEST_TICK_S)
        self._ticked_at = now

    def drop_silent(self) -> list[str]:
        """Close the links to agents that have not reported for SILENT_S; return the agents.

        Such an agent registers again when it continues, and then gets the missed commands.
        """
        silent = [
            agent_id
            for agent_id, link in self._links.items()
            if link.is_streaming and self._running_s - link.reported_at > SILENT_S
        ]
        for agent_id in silent:
            self.drop(agent_id)
        return silent

    def drop(self, agent_id: str) -> None:
        """Close the link to an agent, if there is one."""
        if link := self._links.pop(agent_id, None):
            link.close()
            self._dropped_at[agent_id] = link.reported_at

    def send(self, agent_id: str, command: AgentCommand) -> None:
        """Queue a command if the agent is registered; else the machine repeats it later."""
        if link := self._links.get(agent_id):
            link.send(command)

    def is_connected(self, agent_id: str) -> bool:
        link = self._links.get(agent_id)
        return link is not None and link.is_streaming

    def connected(self) -> list[str]:
        return [agent_id for agent_id in self._links if self.is_connected(agent_id)]

    def was_heard(self, agent_id: str) -> bool:
        """Return whether the agent has been connected to this master."""
        return agent_id in self._links or agent_id in self._dropped_at

    def silent_s(self, agent_id: str) -> float:
        """Return the seconds since the agent was last connected or reported; 0 while connected."""
        link = self._links.get(agent_id)
        if link is None:
            return self._running_s - self._dropped_at.get(agent_id, 0.0)
        if link.is_streaming:
            return 0.0
        # The time counts from the last answered report, even if the stream broke before.
        return self._running_s - max(link.disconnected_at, link.reported_at)

    def close(self) -> None:
        for link in self._links.values():
            link.close()
