"""Starts the agent of this computer as a detached process; its lock allows only one."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Collection, Sequence

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.locks import holder_of, is_locked
from det_jupyter.contract.host.ownership import open_own
from det_jupyter.contract.host.processes import Process

_PAUSES_S = (0.2, 5.0)  # first and longest, between the deaths of agents that do not last
_LASTING_S = 10.0  # an agent that ran for this long did not fail at its start


class LocalEngine:
    """An Engine: one agent process, which offers the slots of this computer.

    Args:
        agents: Simulated agents that the process offers instead, each as NAME=cpu:N. By default
            DET_JUPYTER_AGENTS names them.
        starts: Whether to start an agent when there is none. If not, one that was started by hand
            is ended all the same.
    """

    def __init__(self, agents: Sequence[str] = (), *, starts: bool = True) -> None:
        self._agents = agents
        self._starts = starts
        self._own: subprocess.Popen[bytes] | None = None
        self._started_at = -math.inf
        self._pause_s = _PAUSES_S[0]

    def keep(self, connected: Collection[str]) -> list[str]:
        """Start the agent unless one is connected, starts, or holds the lock."""
        if not self._starts or self._is_own_alive() or connected or is_agent_running():
            return []
        lived_s = time.monotonic() - self._started_at
        if lived_s < self._pause_s:
            return []
        is_short = self._own is not None and lived_s < _LASTING_S
        self._pause_s = min(2 * self._pause_s, _PAUSES_S[1]) if is_short else _PAUSES_S[0]
        self._started_at = time.monotonic()
        self._own = start_agent(self._agents)
        return [f"the agent of this computer, pid={self._own.pid}"]

    def is_running(self) -> bool:
        """Return whether an agent holds the lock, or ours is alive."""
        return self._is_own_alive() or is_agent_running()

    def why_silent(self, agent_id: str, process: Process) -> str | None:
        """Return whether the process is stopped; None if none holds the lock."""
        if not self._starts or not is_agent_running():
            return None
        if not process.is_here:  # a pid here would be another process
            return f"agent {agent_id} (process {process.pid}{process.on_host}) does not answer"
        who = f"agent {agent_id} (process {process.pid})"
        end = f"`kill -KILL {process.pid}` ends it, and its trials go on from their checkpoints"
        if process.is_frozen:
            return f"{who} is stopped: `kill -CONT {process.pid}` lets it go on; {end}"
        return f"{who} does not answer; {end}"

    def dismiss(self) -> None:
        """Terminate our process."""
        if self._own is not None and self._is_own_alive():
            self._own.terminate()

    def end_all(self, patience_s: float) -> tuple[list[str], list[str]]:
        """End the process that holds the lock."""
        if not is_agent_running():
            return [], []
        agent = holder_of(paths.agent_lock())
        if agent is None:
            return [], ["the agent"]
        what = f"the agent (pid {agent.pid}{agent.on_host})"
        if not agent.end(patience_s):
            return [], [what]
        return [f"{what} (the next master continues its trials)"], []

    def _is_own_alive(self) -> bool:
        return self._own is not None and self._own.poll() is None  # which also reaps it


def start_agent(agents: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start an agent, which outlives this process and exits if another one runs.

    Args:
        agents: As of LocalEngine.
    """
    options = [word for agent in agents for word in ("--agent", agent)]
    log = open_own(paths.agent_log(), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "det_jupyter.agent", *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # it must not end with the master's group or terminal
            cwd=paths.data_dir(),
        )
    finally:
        os.close(log)


def is_agent_running() -> bool:
    """Return whether an agent holds the lock of this computer and user."""
    return is_locked(paths.agent_lock())
