"""The protocol that a starter of agents implements.

All modules of this part import little: the master starts the agent before it imports the rest,
because the agent's fork server takes longest to become ready.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from det_jupyter.contract.host.processes import ProcessIdentity


class Engine(Protocol):
    """Starts agents, and ends those that do not end by themselves.

    An agent connects to the master by itself, outlives it, and connects to the next one. So an
    engine may find agents that were started by an engine of an earlier master, and each method is
    idempotent. Used by one thread at a time. All methods except `end_all` return at once. No
    method raises an error if an agent cannot be started, reached or ended. An OSError means a
    failure of this computer.

    Attributes:
        problem: Why the last call of `keep` could start no agent; "": it could.
    """

    problem: str

    def keep(self, connected: Collection[str]) -> list[str]:
        """Start the agents that are not running. Called several times a second.

        When agents end soon after their start, the pause before the next start gets longer.

        Args:
            connected: The ids of the agents that are connected to the master.

        Returns:
            A description of each agent that was started by this call, for the log.
        """

    def is_running(self) -> bool:
        """Return whether an agent runs or is being started, by this engine object or another."""

    def why_silent(self, agent_id: str, process: ProcessIdentity) -> str | None:
        """Return a sentence: why a running agent is not connected, and which command ends it.

        Called only if none of this engine's agents is connected, because a connected one may have
        replaced this one.

        Args:
            agent_id: The agent's name.
            process: The agent's process, from its registration.

        Returns:
            None if the agent has ended or cannot be found; then its runs count as lost.
        """

    def dismiss(self) -> None:
        """Terminate the agents that this object started and that have not exited on request."""

    def end_all(self, patience_s: float) -> tuple[list[str], list[str]]:
        """End all agents, also those that an earlier master's engine started, and wait.

        Args:
            patience_s: Seconds that each step may take: terminating, then killing.

        Returns:
            Descriptions of the agents that have ended, and of those that have not.
        """
