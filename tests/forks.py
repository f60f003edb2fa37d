"""Processes for tests, forked from one that has loaded what takes seconds.

    server = ForkServer(["torch", "sklearn.datasets"])
    fork = server.start("module:function", "an argument", folder=folder, outputs=files)
    fork.wait()      its exit status
    server.close()   kills what still runs

A fork has its own folder, environment, outputs and session, no input, and calls the function as a
process does that was started for it. What the server has loaded costs it nothing.
"""

from __future__ import annotations

import atexit
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from det_jupyter.system import paths
from det_jupyter.worker import zygote

# Homes of forks: the system tells the environment of their server only.
homes_of_forks: dict[psutil.Process, str] = {}


class Fork:
    """A process that is not a child of ours; has what `LocalProvisioner` uses of a `Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, server: ForkServer, pid: int, descriptors: list[int]) -> None:
        self.pid = pid
        self.descriptors = descriptors  # the numbers there of the files that it was sent
        self._server = server
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return its exit status; None while it runs."""
        if self._status is None:
            self._status = self._server.ask(self.pid)
        return self._status

    def wait(self, timeout_s: float = 60.0) -> int:
        """Return its exit status; kill it if it goes on for longer."""
        wait_for_all([self], timeout_s)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: int) -> None:
        """Send it a signal; raise ProcessLookupError where it has ended."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)


class ForkServer:
    """A process from which others are forked.

    Args:
        modules: What it loads.
        environment: Its variables; without, those of this process, less the home: it serves tests
            of many homes and must not be taken for a process of one.
    """

    def __init__(
        self,
        modules: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._connection, theirs = socket.socketpair()
        file = Path(__file__).with_name("fork_server.py")
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(file), str(theirs.fileno()), *modules],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=_without_home() if environment is None else environment,
            )
        self._answers = self._connection.makefile("rb")
        assert pickle.load(self._answers) == "ready"

    @property
    def pid(self) -> int:
        """The parent of all that are forked."""
        return self._process.pid

    def start(
        self,
        target: str,
        *args: Any,
        argv: Sequence[str] = ("",),
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        outputs: Sequence[Path] = (),
        descriptors: Sequence[int] = (),
    ) -> Fork:
        """Fork a process; see `fork_server.become`."""
        environment = dict(os.environ if environment is None else environment)
        request = {
            "target": target,
            "args": pickle.dumps(args),
            "argv": argv,
            "folder": str(folder or Path.cwd()),
            "environment": environment,
            "outputs": list(map(str, outputs)),
        }
        fork = Fork(self, *self.ask(request, descriptors))
        homes_of_forks[psutil.Process(fork.pid)] = environment.get(paths.HOME_VARIABLE, "")
        return fork

    def ask(self, request: Any, descriptors: Sequence[int] = ()) -> Any:
        """Return the server's answer."""
        data = pickle.dumps(request)
        with self._lock:
            socket.send_fds(self._connection, [len(data).to_bytes(4)], descriptors)
            self._connection.sendall(data)
            return pickle.load(self._answers)

    def close(self) -> None:
        """End it, and what it has forked."""
        self._answers.close()
        self._connection.shutdown(socket.SHUT_RDWR)  # a process of a test may have it open, too
        self._connection.close()
        self._process.wait()


@cache
def torch_server() -> ForkServer:
    """Start, once, what kernels and ranks are forked from: it loads for 4 s of CPU."""
    server = ForkServer(
        [
            *zygote.NEEDED,
            *zygote.HELPFUL,
            "det_jupyter.pytorch.parallel",
            "det_jupyter.worker.rank",
            "ipykernel.zmqshell",
            "torch.distributed.fsdp",
        ],
        environment=_without_home() | zygote._WHILE_PRELOADING,
    )
    atexit.register(server.close)
    return server


def wait_for_all(forks: Iterable[Fork], timeout_s: float) -> None:
    """Wait until all have ended; when one fails or time is up, kill the others."""
    left = {os.pidfd_open(fork.pid): fork for fork in forks if fork.poll() is None}
    deadline = time.monotonic() + timeout_s
    while left:
        ended = select.select(left, [], [], max(0.1, deadline - time.monotonic()))[0]
        is_failed = any([left.pop(descriptor).poll() for descriptor in ended])
        for descriptor in ended:
            os.close(descriptor)
        if is_failed or not ended:
            for fork in left.values():
                fork.kill()


def _without_home() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k != paths.HOME_VARIABLE}
