"""The actor that runs an agent on a node of a Ray cluster.

Its source travels to the node by value, so Ray's workers need no det_jupyter: only the standard
library is imported. It takes and returns plain values for the same reason.

The agent is in the actor's process group, so Ray kills it with the actor. It gets SIGTERM, and so
exits gracefully, when the actor's process ends by itself, and when the raylet has ended: Ray may
let the actor continue then, but another raylet there would start another agent.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

# How long an actor without an agent stays, so that the bridge can request the reason.
LINGER_S = 60.0
_LEAVE_S = 20.0  # how long an agent may take to end gracefully
_TAIL_BYTES = 2000
_LOG_BYTES = 5_000_000

# A process between actor and agent: an actor whose raylet has ended kills its own children before
# they can exit gracefully. This process passes SIGTERM on. The kernel sends it SIGTERM when the
# thread that has started it ends, and sends it to the agent when this process ends. (A function
# that the actor runs between fork and exec could wait for ever for a lock of one of its threads.)
_STARTER = """
import ctypes, os, signal, sys

def follow(parent):
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit("the actor has ended")

follow(int(sys.argv[1]))
starter = os.getpid()
if not (agent := os.fork()):
    follow(starter)
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
signal.signal(signal.SIGTERM, lambda *_: os.kill(agent, signal.SIGTERM))
code = os.waitstatus_to_exitcode(os.waitpid(agent, 0)[1])
sys.exit(code if code >= 0 else 128 - code)
"""


class AgentHost:
    """Runs one agent. Methods are called one after the other, in the process's main thread."""

    def __init__(self) -> None:
        self._agent = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._log = Path()
        self._problem = ""  # why the agent could not be started
        self._raylet = os.getppid()
        threading.Thread(target=self._watch, daemon=True).start()

    def start(
        self, agent: str, credentials: str, home: str, python: str, variables: dict[str, str]
    ) -> None:
        """Start the agent, unless it runs; `state` shows whether that failed.

        Args:
            agent: Its name.
            credentials: AgentCredentials as JSON; handed over by a pipe.
            home: The name of its folder, which is made below the node's temporary folder.
            python: The interpreter; "": that of this process.
            variables: Environment variables that it gets; an empty value removes one.
        """
        self._agent = agent
        if self._process is None:
            try:
                self._start(credentials, home, python, variables)
            except OSError as error:
                self._problem = str(error)

    def _start(self, credentials: str, home: str, python: str, variables: dict[str, str]) -> None:
        folder = Path(tempfile.gettempdir(), f"det-agent-{os.geteuid()}", home)
        _make_private(folder.parent)
        _make_private(folder)
        _remove_siblings(folder)
        self._log = folder / "agent.out"
        # Ray has its token and its internals in variables.
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("RAY_")
        }
        environment["DET_JUPYTER_HOME"] = str(folder)
        for name, value in variables.items():
            environment.pop(name, None)
            if value:
                environment[name] = value
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        if self._log.exists() and self._log.stat().st_size > _LOG_BYTES:
            flags |= os.O_TRUNC
        log = os.open(self._log, flags, 0o600)
        arguments = ["-m", "det_jupyter.agent", "--credentials", "--grace-s", f"{_LEAVE_S:g}"]
        try:
            self._process = subprocess.Popen(
                [python or sys.executable, "-c", _STARTER, str(os.getpid()), *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=environment,
            )
        finally:
            os.close(log)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(credentials.encode())

    def state(self) -> dict[str, Any]:
        """Return the agent's name, its exit status (None: it runs), and the end of its output."""
        if self._problem:
            return {"agent": self._agent, "code": 1, "output": self._problem}
        code = None if self._process is None else self._process.poll()
        return {"agent": self._agent, "code": code, "output": "" if code is None else self._tail()}

    def end(self) -> None:
        """Send the agent SIGTERM; `state` shows when it has ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def _tail(self) -> str:
        with contextlib.suppress(OSError), open(self._log, "rb") as file:
            file.seek(max(0, self._log.stat().st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace")
        return ""

    def _watch(self) -> None:
        """End this process when it has had no agent for a while, or when the raylet has ended."""
        # Without an agent, this process must not keep its GPUs of the cluster for long.
        idle_since = time.monotonic()
        while time.monotonic() - idle_since < LINGER_S and os.getppid() == self._raylet:
            time.sleep(1.0)
            if self._process is not None and self._process.poll() is None:
                idle_since = time.monotonic()
        self.end()
        deadline = time.monotonic() + _LEAVE_S
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                break
            time.sleep(0.1)
        os._exit(0)


def _make_private(folder: Path) -> None:
    """Make the folder, unless it exists.

    Raises:
        OSError: It cannot be made; or another user has made it, who could put links into it.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"{folder} is not a folder of this user; remove it there")
    folder.chmod(0o700)


def _remove_siblings(folder: Path) -> None:
    """Remove folders of this agent's predecessors: the node had other ids before, after restarts.

    Their names differ in the node's id alone. One whose lock is held has a running agent.
    """
    name = folder.name.rpartition("-")[0]
    for other in folder.parent.iterdir():
        if other != folder and other.name.rpartition("-")[0] == name:
            with contextlib.suppress(OSError), open(other / "data" / "agent.lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(other, ignore_errors=True)
