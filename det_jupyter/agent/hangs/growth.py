"""Measures by how many bytes the files and TCP connections of processes grow.

So a rank that downloads, copies or reads data is not taken for one that hangs.

A file that is read or written in order has a position that grows, in /proc/PID/fdinfo. The file
itself is not touched: `stat` of a file on a server that does not answer would block. The bytes
that a TCP connection has received are read through a netlink socket (sock_diag), as any user may.
The connections that others have opened to the rank (consoles of its kernel, gloo) are left out.

Pipes, UDP, RDMA, shared memory, and files written at given positions (pwrite) are not measured.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress

_NETLINK_SOCK_DIAG = 4
_HEADER = struct.Struct("<IHHII")  # length, type, flags, sequence, port
_DUMP_BY_FAMILY, _FLAGS = 20, 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_REQUEST = struct.Struct("<BBBBI48x")  # family, protocol, extensions, -, states
_INFO, _LISTENS = 2, 10  # INET_DIAG_INFO, TCP_LISTEN
_MESSAGE = struct.Struct(">xBxxH")  # state, port here; of inet_diag_msg
_INODE_AT, _ATTRIBUTES_AT = 68, 72
_RECEIVED_AT = 128  # tcpi_bytes_received in tcp_info
_REPLY_S = 1.0
_MOST_FILES = 2000  # of a process
_MOST_BYTES = 1 << 17  # of a reply

_Key = tuple[int, str, str]  # process, descriptor, what it is open to


class Growth:
    """Adds up the growth between two readings.

    Args:
        ignored: Files directly in this folder do not count, except for the rank's output.
    """

    def __init__(self, ignored: str | None = None) -> None:
        self._ignored = ignored
        self._last: Mapping[_Key, int] = {}
        self._pids: frozenset[int] = frozenset()
        self._num_bytes = self._num_printed = 0

    def read(self, pid: int, children: Iterable[int]) -> tuple[int, int]:
        """Return the bytes by which all these have grown so far, and those that `pid` printed."""
        received = _received()
        pids = frozenset((pid, *children))
        seen = {key: at for each in pids for key, at in _positions(each, received)}
        for key, at in seen.items():
            if key[0] in self._pids:  # the first reading of a process is only the base
                grown = max(0, at - self._last.get(key, 0))
                if key[0] == pid and key[1] in ("1", "2"):
                    self._num_printed += grown
                elif os.path.dirname(key[2]) != self._ignored:
                    self._num_bytes += grown
        self._last, self._pids = seen, pids
        return self._num_bytes, self._num_printed


def _positions(pid: int, received: Mapping[str, int]) -> Iterable[tuple[_Key, int]]:
    """Yield the position of a process in each file, and what each connection has received."""
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd")[:_MOST_FILES]:
            with suppress(OSError, ValueError, IndexError):  # it is closed just now
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.startswith("socket:["):
                    if target in received:
                        yield (pid, name, target), received[target]
                elif target.startswith("/") and not target.startswith(("/dev/", "/proc/")):
                    with open(f"/proc/{pid}/fdinfo/{name}", "rb") as file:
                        yield (pid, name, target), int(file.readline().split()[1])


def _received() -> dict[str, int]:
    """Return the bytes that each TCP connection of this computer has received, by `socket:[N]`."""
    found: dict[str, tuple[int, int]] = {}
    listening: set[int] = set()
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, AttributeError, struct.error):
            for state, port, inode, num in _connections(family):
                if state == _LISTENS:
                    listening.add(port)
                else:
                    found[f"socket:[{inode}]"] = port, num
    return {name: num for name, (port, num) in found.items() if port not in listening}


def _connections(family: int) -> Iterable[tuple[int, int, int, int]]:
    """Yield state, port here, inode and received bytes of each TCP socket.

    Raises:
        OSError: The kernel does not report them.
    """
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, 0xFFFF)
    header = _HEADER.pack(_HEADER.size + len(request), _DUMP_BY_FAMILY, _FLAGS, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(_REPLY_S)
        link.sendto(header + request, (0, 0))
        while True:
            data, at = link.recv(_MOST_BYTES), 0
            while at < len(data):
                length, kind, *_ = _HEADER.unpack_from(data, at)
                if kind != _DUMP_BY_FAMILY:  # the end, or an error
                    return
                yield _connection(data[at + _HEADER.size : at + length])
                at += length + 3 & ~3


def _connection(message: bytes) -> tuple[int, int, int, int]:
    state, port = _MESSAGE.unpack_from(message)
    (inode,) = struct.unpack_from("<I", message, _INODE_AT)
    at, received = _ATTRIBUTES_AT, 0
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("<HH", message, at)
        if kind == _INFO and length >= 4 + _RECEIVED_AT + 8:
            (received,) = struct.unpack_from("<Q", message, at + 4 + _RECEIVED_AT)
        at += max(4, length + 3 & ~3)
    return state, port, inode, received
