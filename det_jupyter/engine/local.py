"""Starts the agent of this computer as a detached process.

The agent holds a lock, so only one runs for each computer and user.
"""

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
from det_jupyter.contract.host.processes import ProcessIdentity

_PAUSES_S = (0.2, 5.0)  # first and longest pause between starts of agents that soon exit
_REMEDY = (
    "if the master's environment was changed or deleted, `python -m det_jupyter.master restart` "
    "in one that has det_jupyter replaces the master"
)
_MOST_SHOWN = 200  # characters of a line
_LASTING_S = 10.0  # an agent that exits later than this did not fail at its start


class LocalEngine:
    """An Engine with one agent process, which offers the slots of this computer.

    Args:
        agents: Simulated agents that the process offers instead, each as NAME=cpu:N. If empty, the
            agent reads them from DET_JUPYTER_AGENTS.
        starts: Whether to start an agent when none runs. An agent that was started by hand is
            ended by `end_all` even if this is false.
    """

    def __init__(self, agents: Sequence[str] = (), *, starts: bool = True) -> None:
        self.problem = ""
        self._agents = agents
        self._starts = starts
        self._own: subprocess.Popen[bytes] | None = None
        self._started_at = -math.inf
        self._pause_s = _PAUSES_S[0]

    def keep(self, connected: Collection[str]) -> list[str]:
        """Start the agent unless one is connected, is being started, or holds the lock."""
        if connected:
            self.problem = ""
        if not self._starts or self._is_own_alive() or connected or is_agent_running():
            return []
        ran_s = time.monotonic() - self._started_at
        if ran_s < self._pause_s:
            return []
        is_short = self._own is not None and ran_s < _LASTING_S
        self._pause_s = min(2 * self._pause_s, _PAUSES_S[1]) if is_short else _PAUSES_S[0]
        self._started_at = time.monotonic()
        if is_short and self._own is not None and self._own.returncode > 0:
            self.problem = _why_ended(self._own.returncode)
        try:
            self._own = start_agent(self._agents)
        except FileNotFoundError:
            self.problem = f"no agent can be started, because {sys.executable} is gone; {_REMEDY}"
            return []
        return [f"the agent of this computer, pid={self._own.pid}"]

    def is_running(self) -> bool:
        """Return whether an agent holds the lock, or the one started by this object runs."""
        return self._is_own_alive() or is_agent_running()

    def why_silent(self, agent_id: str, process: ProcessIdentity) -> str | None:
        """Return how the agent can be woken or ended; None if no agent holds the lock."""
        if not self._starts or not is_agent_running():
            return None
        if not process.is_here:  # the pid means another process on this computer
            return f"agent {agent_id} (process {process.pid}{process.on_host}) does not answer"
        name = f"agent {agent_id} (process {process.pid})"
        end = f"`kill -KILL {process.pid}` ends it, and its trials go on from their checkpoints"
        if process.is_frozen:
            return f"{name} is stopped: `kill -CONT {process.pid}` lets it go on; {end}"
        return f"{name} does not answer; {end}"

    def dismiss(self) -> None:
        """Terminate the agent that this object started."""
        if self._own is not None and self._is_own_alive():
            self._own.terminate()

    def end_all(self, patience_s: float) -> tuple[list[str], list[str]]:
        """End the agent that holds the lock."""
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
        return self._own is not None and self._own.poll() is None  # `poll` also reaps it


def _why_ended(status: int) -> str:
    """Return why agents end at their start, with the last line of the last one's log."""
    text = paths.agent_log().read_text(encoding="utf-8", errors="replace")
    last = next(iter(text.splitlines()[-1:]), "")
    return f"the agent ends at its start (exit status {status}: {last[:_MOST_SHOWN]}); {_REMEDY}"


def start_agent(agents: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start an agent. It outlives this process, and exits at once if another agent runs.

    Args:
        agents: Simulated agents, each as NAME=cpu:N.
    """
    options = [word for agent in agents for word in ("--agent", agent)]
    log = open_own(paths.agent_log(), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "det_jupyter.agent", *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # the agent must outlive the master's group and terminal
            cwd=paths.data_dir(),
        )
    finally:
        os.close(log)


def is_agent_running() -> bool:
    """Return whether an agent of this computer and user holds the lock."""
    return is_locked(paths.agent_lock())
