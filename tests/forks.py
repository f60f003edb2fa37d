"""Processes for tests, forked from one that has loaded slow modules.

    source = fork_source("torch", "pandas")
    fork = source.start("module:function", "an argument", folder=folder, outputs=files)
    fork.wait()    its exit status

A fork has its own folder, environment, outputs and session, and no input. It runs the function
like a new process, but modules that the source has loaded cost no time.
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
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from det_jupyter.contract.host import paths
from det_jupyter.rank import zygote

PYTHON_PATH = os.environ.get("PYTHONPATH")  # where what a source loads is found
_ROOM = "x" * 16_000  # for the environment of a fork, which /proc then shows


class Fork:
    """A process that is not our child; has the methods of `Popen` that provisioners use."""

    stdin = stdout = stderr = None

    def __init__(self, source: ForkSource, pid: int, descriptors: list[int]) -> None:
        self.pid = pid
        self.descriptors = descriptors  # numbers, in the fork, of the files that it got
        self._source = source
        self._status: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit status; None while the process runs."""
        with self._lock:  # the source can be asked for a status once
            if self._status is None:
                self._status = self._source.ask(self.pid)
            return self._status

    def wait(self) -> int:
        """Return the exit status; on an interrupt, such as a test's timer, kill the process."""
        wait_for_all([self])
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: int) -> None:
        """Send the process a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)


class ForkSource:
    """A process from which others are forked.

    Args:
        modules: The modules that it loads.
        variables: Environment variables in addition to those of this process.
    """

    def __init__(self, modules: Sequence[str], variables: Mapping[str, str]) -> None:
        environment = {**with_python_path(os.environ), **variables, "ROOM": _ROOM}
        environment.pop(paths.HOME_VARIABLE, None)  # the source belongs to no home
        self._lock = threading.Lock()
        self._connection, theirs = socket.socketpair()
        file = Path(__file__).with_name("fork_source.py")
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(file), str(theirs.fileno()), *modules],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=environment,
            )
        self._answers = self._connection.makefile("rb")
        try:
            self.pid: int = pickle.load(self._answers)  # the parent of all forks
        except EOFError:
            self.close()
            raise RuntimeError("the process to fork from has ended; it printed why") from None

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
        """Fork a process; for the arguments see `fork_source.become`."""
        environment = dict(os.environ if environment is None else environment)
        request = {
            "target": target,
            "args": pickle.dumps(args),
            "argv": argv,
            "folder": str(folder or Path.cwd()),
            "environment": environment,
            "outputs": list(map(str, outputs)),
        }
        return Fork(self, *self.ask(request, descriptors))

    def branch(self) -> socket.socket:
        """Fork another source; return the socket by which a program can use it as `Branch`."""
        ours, theirs = socket.socketpair()
        with theirs:
            self.start("tests.fork_source:serve", descriptors=[theirs.fileno()])
        return ours

    def ask(self, request: Any, descriptors: Sequence[int] = ()) -> Any:
        """Send a request, and return the answer."""
        data = pickle.dumps(request)
        with self._lock:
            try:
                socket.send_fds(self._connection, [len(data).to_bytes(4)], descriptors)
                self._connection.sendall(data)
                return pickle.load(self._answers)
            except BaseException:  # otherwise the next request would get this answer
                self._connection.shutdown(socket.SHUT_RDWR)
                raise

    def close(self) -> None:
        """End the source and its forks."""
        self._answers.close()
        with suppress(OSError):  # it may have ended
            # A process of a test may also have the socket open, so closing it is not enough.
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        self._process.wait()


def with_python_path(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with the PYTHONPATH of sources, whatever a test has set."""
    path = {} if PYTHON_PATH is None else {"PYTHONPATH": PYTHON_PATH}
    return {k: v for k, v in environment.items() if k != "PYTHONPATH"} | path


class Branch(ForkSource):
    """A source that another process has forked for this one; it ends with this process.

    Args:
        descriptor: The socket that `ForkSource.branch` has returned.
    """

    def __init__(self, descriptor: int) -> None:
        self._lock = threading.Lock()
        self._connection = socket.socket(fileno=descriptor)
        self._answers = self._connection.makefile("rb")
        self.pid = pickle.load(self._answers)


@cache
def fork_source(*modules: str, **variables: str) -> ForkSource:
    """Return a source for these modules; it is started once, and ends with this process."""
    source = ForkSource(modules, variables)
    atexit.register(source.close)
    return source


def torch_source() -> ForkSource:
    """Return the source of kernels, our programs and ranks; it takes 4 s of CPU to load."""
    return fork_source(
        *zygote.NEEDED,
        *zygote.HELPFUL,
        "det_jupyter.pytorch.parallel",
        "det_jupyter.rank.rank",
        "det_jupyter.agent.run_agent",
        "det_jupyter.master.serve",
        "det_jupyter.reader.program",
        "ipykernel.zmqshell",
        "torch.distributed.fsdp",
        **zygote._WHILE_PRELOADING,
    )


def wait_for_all(forks: Sequence[Fork]) -> None:
    """Wait until all processes have ended; if one fails, or on an interrupt, kill the rest."""
    left = {os.pidfd_open(fork.pid): fork for fork in forks if fork.poll() is None}
    is_failed = any(fork.poll() for fork in forks)
    try:
        while left:
            if is_failed:
                _kill_all(left.values())
            ended = select.select(left, [], [])[0]
            is_failed |= any([left.pop(descriptor).poll() for descriptor in ended])
            for descriptor in ended:
                os.close(descriptor)
    finally:
        _kill_all(left.values())
        for descriptor in left:
            os.close(descriptor)


def _kill_all(forks: Iterable[Fork]) -> None:
    for fork in forks:
        fork.kill()
