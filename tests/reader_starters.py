"""Starters of readers without a master, forked from a process that has only one thread."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from det_jupyter._version import __version__
from det_jupyter.errors import DetError
from det_jupyter.master.__main__ import READER
from det_jupyter.master.background import reader_starter
from det_jupyter.master.background.reader_starter import ReaderStarter
from tests.forks import Fork, fork_source


class StarterProcess(ReaderStarter):
    """A starter; `process` is the first one."""

    def __init__(self, target: str, connection: socket.socket, fork: Fork) -> None:
        super().__init__(target, connection, fork)
        self.process = psutil.Process(fork.pid)

    def leave(self) -> None:
        """End it as the end of its master does."""
        self._connection.close()
        self._process.wait()


class NoReaders(ReaderStarter):
    """Starts none."""

    def __init__(self) -> None: ...

    def start(self, token: str, listener: socket.socket, log: int) -> socket.socket:
        """Fail."""
        raise DetError("no readers are started here")


@contextmanager
def starter_of(
    target: str = READER, serve: str = f"{__name__}:serve_starter"
) -> Iterator[StarterProcess]:
    """Run a starter of readers; afterwards no reader is left, not even a zombie."""
    source = fork_source("det_jupyter.master.__main__", "det_jupyter.master.serve")
    ours, theirs = socket.socketpair()
    with theirs:
        fork = source.start(serve, target, descriptors=[theirs.fileno()])
    starter = StarterProcess(target, ours, fork)
    try:
        yield starter
        left = starter.process.children() if starter.process.is_running() else []
        assert not left, f"readers left behind: {left}"
    finally:
        starter.leave()


def serve_starter(connection: int, target: str) -> None:
    """Run as the starter, in the forked process."""
    reader_starter.serve(socket.socket(fileno=connection), target, __version__)
