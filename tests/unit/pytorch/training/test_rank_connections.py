"""Connections of a process are shut if they lead to the ends that other processes have named."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from det_jupyter.pytorch.training import rank_connections
from det_jupyter.pytorch.training.rank_connections import own_ends, shut_connections

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def connect() -> Iterator[Callable[..., Pair]]:
    """Return a function that returns the dialed and the accepted end of a connection."""
    with ExitStack() as stack:

        def connect(host: str = "127.0.0.1", **listening: object) -> Pair:
            with socket.create_server((host, 0), **listening) as listener:  # type: ignore[arg-type]
                dialed = socket.create_connection(("127.0.0.1", listener.getsockname()[1]))
                return stack.enter_context(dialed), stack.enter_context(listener.accept()[0])

        yield connect


def is_open(pair: Pair) -> bool:
    dialed, accepted = pair
    try:
        dialed.sendall(b"x")
    except OSError:
        return False
    return accepted.recv(1) == b"x"


def test_only_connections_to_the_ends_of_other_ranks_are_shut(
    connect: Callable[..., Pair],
) -> None:
    to_rank, to_tracker = connect(), connect()
    with socket.create_server(("", 0)) as listener:
        shut_connections({to_rank[1].getsockname(), ("10.0.0.2", to_tracker[1].getsockname()[1])})
        assert not is_open(to_rank)
        assert to_rank[1].recv(1) == b""  # a call there that waits returns
        assert is_open(to_tracker)
        with socket.create_connection(listener.getsockname()) as dialed:
            listener.accept()[0].close()
            assert dialed.recv(1) == b""


def test_only_connections_have_ends(connect: Callable[..., Pair]) -> None:
    before = own_ends()
    dialed, accepted = connect()
    left, right = socket.socketpair()  # as an event loop has
    with left, right, socket.create_server(("", 0)), socket.socket(type=socket.SOCK_DGRAM) as udp:
        udp.connect(("127.0.0.1", 9))
        assert own_ends() - before == {dialed.getsockname(), accepted.getsockname()}


def test_ends_are_the_same_in_ipv4_and_ipv6(connect: Callable[..., Pair]) -> None:
    dialed, accepted = connect("", family=socket.AF_INET6, dualstack_ipv6=True)
    end = dialed.getsockname()
    assert accepted.getpeername()[0] == f"::ffff:{end[0]}"
    assert end in own_ends()
    shut_connections({end})
    assert not is_open((accepted, dialed))


def test_ends_in_one_network_of_a_computer_have_the_same_name_elsewhere() -> None:
    of_interface = ("fe80::1%eth0", 5, 0, 2)
    assert rank_connections._end(of_interface) == ("fe80::1", 5)
    assert rank_connections._end(("fe80:0::1", 5, 0, 3)) == ("fe80::1", 5)


def test_descriptors_that_are_closed_meanwhile_are_skipped(
    connect: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    to_rank = connect()
    numbers = [str(2**20), str(to_rank[0].fileno())]
    monkeypatch.setattr(os, "listdir", lambda _: numbers)
    shut_connections({to_rank[1].getsockname()})
    monkeypatch.undo()
    assert not is_open(to_rank)


def test_without_a_folder_of_open_files_nothing_is_shut(
    connect: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = connect()
    monkeypatch.setattr(rank_connections, "_OPEN_FILES", "/no/such/folder")
    assert own_ends() == set()
    shut_connections({pair[1].getsockname()})
    assert is_open(pair)
