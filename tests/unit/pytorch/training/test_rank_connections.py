"""Connections of a process are shut if they lead to given processes and computers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psutil
import pytest

from det_jupyter.pytorch.training import rank_connections
from det_jupyter.pytorch.training.rank_connections import own_addresses, shut_connections

# Connects to the port that it is given, and sends what it receives back until it is shut.
PEER = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    while received := connection.recv(9):
        connection.sendall(received)
"""


@pytest.fixture
def connect() -> Iterator[Callable[..., tuple[socket.socket, int]]]:
    """Return a function that returns a connection with a new process, and its pid."""
    with ExitStack() as stack:

        def connect(host: str = "127.0.0.1", **listening: object) -> tuple[socket.socket, int]:
            with socket.create_server((host, 0), **listening) as listener:  # type: ignore[arg-type]
                port = listener.getsockname()[1]
                arguments = ["127.0.0.1", str(port)]
                process = subprocess.Popen([sys.executable, "-Sc", PEER, *arguments])
                stack.callback(process.wait)
                return stack.enter_context(listener.accept()[0]), process.pid

        yield connect


def is_open(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"x")
    except OSError:
        return False
    return connection.recv(1) == b"x"


def test_only_connections_to_these_processes_are_shut(
    connect: Callable[..., tuple[socket.socket, int]],
) -> None:
    to_rank, rank = connect()
    also_to_rank, other_rank = connect("", family=socket.AF_INET6, dualstack_ipv6=True)
    to_tracker, _ = connect()
    with socket.create_server(("", 0)) as listener:
        shut_connections([rank, other_rank, 2**22 + 1])  # of the last one, there is no process
        assert not is_open(to_rank)
        assert not is_open(also_to_rank)
        assert is_open(to_tracker)
        with socket.create_connection(listener.getsockname()) as dialed:
            listener.accept()[0].close()
            assert dialed.recv(1) == b""


def test_the_other_end_returns(connect: Callable[..., tuple[socket.socket, int]]) -> None:
    _, rank = connect()
    shut_connections([rank])
    psutil.Process(rank).wait()  # it has received the end


def test_connections_to_other_computers_are_shut(
    connect: Callable[..., tuple[socket.socket, int]],
) -> None:
    to_rank, _ = connect()
    left, right = socket.socketpair()  # as an event loop has
    with left, right:
        shut_connections([], ["10.0.0.1"])
        assert is_open(to_rank)
        shut_connections([], ["127.0.0.1"])
        assert not is_open(to_rank)
        right.send(b"x")
        assert left.recv(1) == b"x"


def test_a_descriptor_that_was_used_again_meanwhile_stays_open(
    connect: Callable[..., tuple[socket.socket, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (to_tracker, _), (to_rank, rank) = connect(), connect()
    found = rank_connections._connections

    def find(pid: int) -> object:
        seen = found(pid)
        if pid == os.getpid():
            os.dup2(to_tracker.fileno(), to_rank.fileno())
        return seen

    monkeypatch.setattr(rank_connections, "_connections", find)
    shut_connections([rank])
    assert is_open(to_tracker)


def test_addresses_are_those_of_the_interfaces_that_ranks_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loopback = next(
        name
        for name, found in psutil.net_if_addrs().items()
        if "127.0.0.1" in (each.address for each in found)
    )
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", f"{loopback},no-such-interface")
    assert "127.0.0.1" in own_addresses()
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no-such-interface")
    assert own_addresses() == []
