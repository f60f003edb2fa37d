"""Agents on this computer: a detached process, of which the agent's own lock allows only one.

Light to import: the master starts the agent before anything heavy, since the agent's fork server
takes longest to warm up.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from det_jupyter.system import paths
from det_jupyter.system.ownership import open_own


def start_agent(agents: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start an agent that outlives us; if one runs already, the new one leaves by itself.

    Args:
        agents: Simulated agents that the process is to offer, each as NAME=cpu:N; none: the
            environment variable DET_JUPYTER_AGENTS says so, or it offers what this computer has.
    """
    options = [word for agent in agents for word in ("--agent", agent)]
    log = open_own(paths.agent_log(), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "det_jupyter.agent", *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # what ends the master's group or terminal is not for it
            cwd=paths.data_dir(),
        )
    finally:
        os.close(log)


def is_agent_running() -> bool:
    """Return whether an agent holds the lock of this computer and user."""
    return paths.is_locked(paths.agent_lock())
