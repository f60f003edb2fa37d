"""The lines to the agents: a queue of commands for each registered agent process.

    registered ──► streaming ──► dropped         an agent that comes back registers anew and so
                       │            ▲            gets a new link; the old one is closed
                       └────────────┘            no report for SILENT_S: it is frozen

An agent reports every few seconds, if only that it lives. Its silence is counted only
while this process runs: after a freeze of the master the agents are not taken for dead.

Commands that were on a link when it dropped are lost, and need not be saved: at a registration the
machine says again what it wants of the agent.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable

from det_jupyter.contract.messages import AgentCommand
from det_jupyter.errors import Conflict

SILENT_S = 10.0  # an agent says at least every 3 s that it lives
_LONGEST_TICK_S = 1.0


class AgentLink:
    """The line to one agent process, good for one stream. The clock counts seconds that we ran."""

    def __init__(self, session: str, clock: Callable[[], float]) -> None:
        self.session = session
        self.is_streaming = False
        self.heard_at = clock()
        self.silent_since = clock()  # counts while it does not stream
        self._clock = clock
        self._was_taken = False
        self._queue: deque[AgentCommand | None] = deque()  # None: the end
        self._filled = asyncio.Event()

    def send(self, command: AgentCommand) -> None:
        self._queue.append(command)
        self._filled.set()

    def close(self) -> None:
        """End the stream after what is on the line."""
        self._queue.append(None)
        self._filled.set()

    def take(self, heartbeat_s: float) -> AsyncIterator[bytes]:
        """Return the stream: a JSON line for each command, an empty one as a sign of life.

        Raises:
            Conflict: It was taken before: the agent has to register again.
        """
        if self._was_taken:
            raise Conflict("this session's commands were streamed before; register again")
        self._was_taken = True
        return self._lines(heartbeat_s)

    async def _lines(self, heartbeat_s: float) -> AsyncIterator[bytes]:
        self.is_streaming = True
        try:
            yield b"\n"  # the agent knows at once that it is heard
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
            self.is_streaming = False
            self.silent_since = self._clock()


class AgentLinks:
    """The lines to all agents."""

    def __init__(self) -> None:
        self._links: dict[str, AgentLink] = {}
        self._dropped_at: dict[str, float] = {}
        self._refused_at: dict[str, float] = {}
        self._awake_s = 0.0  # seconds in which this process ran
        self._ticked_at = time.monotonic()
        self.registered = asyncio.Event()  # some agent, at some time

    def open(self, agent_id: str, session: str) -> AgentLink:
        """Make a new line to an agent in place of the one before."""
        if old := self._links.get(agent_id):
            old.close()
        link = self._links[agent_id] = AgentLink(session, lambda: self._awake_s)
        self.registered.set()
        return link

    def get(self, agent_id: str, session: str) -> AgentLink:
        """Return the line of this agent process.

        Raises:
            Conflict: Another process of that name registered since, or we do not know it (yet).
        """
        link = self._links.get(agent_id)
        if link is None or link.session != session:
            raise Conflict(f"agent {agent_id}: this session is not registered; register first")
        link.heard_at = self._awake_s
        return link

    def refuse(self, agent_id: str) -> None:
        """Note that an agent tried to register and was refused."""
        self._refused_at[agent_id] = self._awake_s
        self.registered.set()  # no other will come while this one lives

    def was_refused(self, agent_id: str) -> bool:
        """Return whether that was a moment ago: an agent tries again each second or so."""
        refused_at = self._refused_at.get(agent_id)
        return refused_at is not None and self._awake_s - refused_at < SILENT_S

    def tick(self) -> None:
        """Count the time since the last tick; to be called several times a second."""
        now = time.monotonic()
        self._awake_s += min(now - self._ticked_at, _LONGEST_TICK_S)
        self._ticked_at = now

    def drop_silent(self) -> list[str]:
        """Close the lines to agents that have been silent for long; return the agents.

        Such an agent registers anew when it wakes, and so gets the commands that it missed.
        """
        silent = [
            agent_id
            for agent_id, link in self._links.items()
            if link.is_streaming and self._awake_s - link.heard_at > SILENT_S
        ]
        for agent_id in silent:
            link = self._links.pop(agent_id)
            link.close()
            self._dropped_at[agent_id] = link.heard_at
        return silent

    def send(self, agent_id: str, command: AgentCommand) -> None:
        """Send a command, if the agent is registered; if not, it is sent when it registers."""
        if link := self._links.get(agent_id):
            link.send(command)

    def is_connected(self, agent_id: str) -> bool:
        link = self._links.get(agent_id)
        return link is not None and link.is_streaming

    def connected(self) -> list[str]:
        return [agent_id for agent_id in self._links if self.is_connected(agent_id)]

    def silent_s(self, agent_id: str) -> float:
        """Return for how long the agent has not been connected; 0 while it is."""
        link = self._links.get(agent_id)
        if link is None:
            return self._awake_s - self._dropped_at.get(agent_id, 0.0)
        return 0.0 if link.is_streaming else self._awake_s - link.silent_since

    def close(self) -> None:
        for link in self._links.values():
            link.close()
