"""What a starter of agents implements.

Light to import, as all of this part: the master starts the agent before it imports the rest,
because the agent's fork server takes longest to get ready.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from det_jupyter.contract.host.processes import Process


class Engine(Protocol):
    """Starts agents, and ends those that do not end by themselves.

    An agent connects to the master by itself, outlives it, and connects to the next one. So an
    engine may find agents that an engine of an earlier master started, and each method may be
    repeated. Used by one thread at a time; all methods but `end_all` return at once, and none
    raises because an agent cannot be started, asked or ended: an OSError is of this computer.
    """

    def keep(self, connected: Collection[str]) -> list[str]:
        """Start the agents that are missing. Called several times a second.

        When agents end soon after their start, it waits before it starts the next, each time
        longer.

        Args:
            connected: The ids of the agents that are connected to the master.

        Returns:
            What it has started now, in words.
        """

    def is_running(self) -> bool:
        """Return whether an agent lives or is being started, of whatever engine object."""

    def why_silent(self, agent_id: str, process: Process) -> str | None:
        """Return why an agent that lives is not connected, and what ends it, in a sentence.

        None: it has ended, or cannot be found; then what ran there can be given up. Called only if
        none of this engine's agents is connected: one that is may have taken its place.

        Args:
            agent_id: Its name.
            process: As it registered.
        """

    def dismiss(self) -> None:
        """Terminate what this object has started and what has not left as it was asked to."""

    def end_all(self, patience_s: float) -> tuple[list[str], list[str]]:
        """End all agents, also those that an earlier master's engine started, and wait.

        Args:
            patience_s: How long each step may take: terminating, then killing.

        Returns:
            What has ended and what has not, in words.
        """
