"""Starts the agent of this computer as a detached process; its lock allows only one.

Light to import: the master starts the agent before it imports the rest, because the agent's fork
server takes longest to get ready.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from det_jupyter.system import paths
from det_jupyter.system.locks import is_locked
from det_jupyter.system.ownership import open_own


def start_agent(agents: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start an agent, which outlives this process and exits if another one runs.

    Args:
        agents: Simulated agents to offer, each as NAME=cpu:N. By default DET_JUPYTER_AGENTS
            names them, or the agent offers the slots of this computer.
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
