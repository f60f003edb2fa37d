"""Starters of readers without a master, forked from a process that has only one thread."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from det_jupyter.master.__main__ import READER
from det_jupyter.master.background import reader_starter
from det_jupyter.master.background.reader_starter import ReaderStarter
from tests.forks import fork_source


class StarterProcess(ReaderStarter):
    """A starter, and its process."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        super().__init__(connection)
        self.process = psutil.Process(pid)


@contextmanager
def starter_of(
    target: str = READER, serve: str = f"{__name__}:serve_starter"
) -> Iterator[StarterProcess]:
    """Run a starter of readers; afterwards no reader is left, not even a zombie."""
    source = fork_source("det_jupyter.master.__main__", "det_jupyter.master.serve")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        fork = source.start(serve, target, descriptors=[theirs.fileno()])
        theirs.close()
        starter = StarterProcess(ours, fork.pid)
        try:
            yield starter
            left = starter.process.children() if starter.process.is_running() else []
            assert not left, f"readers left behind: {left}"
        finally:
            ours.close()
            fork.wait()


def serve_starter(connection: int, target: str) -> None:
    """Run as the starter, in the forked process."""
    reader_starter.serve(socket.socket(fileno=connection), target)
