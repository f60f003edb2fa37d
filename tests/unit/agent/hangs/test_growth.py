"""What connections have received, from messages of the kernel that are written here."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.agent.hangs.growth import Growth

INFO, DONE, BY_FAMILY = 2, 3, 20
ESTABLISHED, LISTENS = 1, 10


class Link:
    """A netlink socket: answers a request for one family with messages about connections."""

    messages: Sequence[bytes] = ()

    def __init__(self, family: int, kind: int, protocol: int) -> None:
        assert (family, kind, protocol) == (socket.AF_NETLINK, socket.SOCK_DGRAM, 4)
        self._parts: list[bytes] = []
        self._limit_s = 0.0

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""

    def settimeout(self, seconds: float) -> None:
        self._limit_s = seconds

    def sendto(self, request: bytes, address: Any) -> None:
        length, kind, flags, _, _, family, protocol, extensions = struct.unpack_from(
            "<IHHIIBBB", request
        )
        assert (length, kind, flags, address) == (len(request), BY_FAMILY, 0x301, (0, 0))
        assert (protocol, extensions) == (socket.IPPROTO_TCP, 1 << (INFO - 1))
        found = [_padded(BY_FAMILY, each) for each in self.messages if family == socket.AF_INET]
        self._parts = [b"".join(found), _padded(DONE, b"")]

    def recv(self, size: int) -> bytes:
        assert 0 < self._limit_s < 5  # a kernel that does not answer holds up the watch of gangs
        return self._parts.pop(0)


def _padded(kind: int, body: bytes) -> bytes:
    length = 16 + len(body)
    return struct.pack("<IHHII", length, kind, 0, 1, 0) + body + bytes(-length % 4)


def attribute(kind: int, payload: bytes, *, length: int | None = None) -> bytes:
    own = struct.pack("<HH", 4 + len(payload) if length is None else length, kind)
    return own + payload + bytes(-len(payload) % 4)


def info(received: int, *, size: int = 232) -> bytes:
    return attribute(INFO, (bytes(128) + struct.pack("<Q", received) + bytes(96))[:size])


def connection(inode: int, *attributes: bytes, state: int = ESTABLISHED, port: int = 7) -> bytes:
    head = struct.pack(">BBBBH", 2, state, 0, 0, port)
    return head.ljust(68, b"\0") + struct.pack("<I", inode) + b"".join(attributes)


@pytest.fixture
def process() -> Iterator[tuple[int, int]]:
    """Return the pid of a process with one socket, and the inode of that."""
    with socket.socket() as own:
        inode = int(os.readlink(f"/proc/self/fd/{own.fileno()}").strip("socket:[]"))
        child = subprocess.Popen(
            ["sleep", "3600"], stdin=subprocess.DEVNULL, pass_fds=[own.fileno()]
        )
    yield child.pid, inode
    child.kill()
    child.wait()


def test_a_process_has_progressed_by_what_it_has_read_of_files_on_disks(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(bytes(1000))
    opened = [os.open(path, os.O_RDONLY) for path in (data, "/proc/stat", "/dev/zero")]
    child = subprocess.Popen(["sleep", "3600"], pass_fds=opened)  # with the same positions
    growth = Growth()
    try:
        assert growth.read(child.pid, []) == (0, 0)
        for fd in opened:
            os.read(fd, 300)
        assert growth.read(child.pid, []) == (300, 0)
        os.lseek(opened[0], 0, os.SEEK_SET)  # it begins anew
        growth.read(child.pid, [])
        os.read(opened[0], 50)
        assert growth.read(child.pid, []) == (350, 0)
    finally:
        child.kill()
        child.wait()
        for fd in opened:
            os.close(fd)


OTHER = attribute(9, b"12345")


@pytest.mark.parametrize(
    ("attributes", "others", "grown"),
    [
        ([lambda n: info(n)], [], 250),
        ([lambda n: OTHER, lambda n: info(n)], [], 250),
        ([lambda n: info(n, size=136)], [], 250),  # of the first kernel that counted them
        ([lambda n: info(n, size=135)], [], 0),
        ([lambda n: attribute(9, b"", length=0), lambda n: info(n)], [], 250),
        ([lambda n: attribute(9, info(n)[4:])], [], 0),
        ([lambda n: info(n)], [connection(1, state=LISTENS)], 0),  # another has opened it
        ([lambda n: info(n)], [connection(1, state=LISTENS, port=8)], 250),
        ([lambda n: info(n)], [connection(1, OTHER), connection(3, info(9))], 250),
    ],
)
def test_a_connection_has_grown_by_what_it_has_received(
    monkeypatch: pytest.MonkeyPatch,
    process: tuple[int, int],
    attributes: Sequence[Any],
    others: list[bytes],
    grown: int,
) -> None:
    pid, inode = process
    monkeypatch.setattr(socket, "socket", Link)
    growth = Growth()
    for received in (100, 350):
        own = connection(inode, *(make(received) for make in attributes))
        monkeypatch.setattr(Link, "messages", [*others, own])
        found = growth.read(pid, [])
    assert found == (grown, 0)


def sleeping(stdout: int, *passed: int) -> subprocess.Popen[bytes]:
    null = subprocess.DEVNULL
    return subprocess.Popen(
        ["sleep", "3600"], stdin=null, stdout=stdout, stderr=null, pass_fds=passed
    )


def test_what_a_rank_prints_counts_as_printed_and_not_as_written(tmp_path: Path) -> None:
    printed, other = (
        os.open(tmp_path / name, os.O_WRONLY | os.O_CREAT) for name in ("output-0", "data")
    )
    with sleeping(printed, other) as rank, sleeping(subprocess.DEVNULL) as idle:
        # The rank itself, a child of one, and files in a folder that is ignored.
        growths = [
            (Growth(), rank, idle), (Growth(), idle, rank), (Growth(str(tmp_path)), rank, idle)
        ]  # fmt: skip
        try:
            for growth, first, second in growths:
                assert growth.read(first.pid, [second.pid]) == (0, 0)
            os.write(printed, bytes(100))
            os.write(other, bytes(7))
            found = [growth.read(first.pid, [second.pid]) for growth, first, second in growths]
            assert found == [(7, 100), (107, 0), (0, 100)]
        finally:
            for process in (rank, idle):
                process.kill()
            os.close(printed)
            os.close(other)
