"""A connection between two ranks: it carries frames, and notices when the other rank has ended.

    length   8 bytes, of the payload
    kind     1 byte: which collective, or that the other rank gives up
    number   4 bytes: of the collective in its group
    mark     32 bytes, HMAC-SHA256 under a key of this connection and direction, of all else; only
             over a network with a secret. A socket in a 0700 folder needs none
    payload

Sockets do not block; callers wait.
"""

from __future__ import annotations

import hmac
import socket
import struct
from collections.abc import Sequence
from enum import IntEnum

import numpy

from det_jupyter.core.ranks.claim import Started
from det_jupyter.errors import PeerRefused

_HEAD = struct.Struct("<QBI")
_MARK = 32
_JOINED_BYTES = 64 * 1024  # below it one copy is cheaper than another system call
_MOST_BUFFERS = 512
_SOCKET_BYTES = 1024 * 1024

Buffer = bytes | bytearray | memoryview


class Kind(IntEnum):
    """What a frame is part of."""

    ALLGATHER = 1
    GATHER = 2
    BROADCAST = 3
    BARRIER = 4
    REDUCE = 5
    END = 6  # the sender gives up; the payload has the reason


class PeerGone(Exception):
    """The other rank has closed the connection."""


class Link:
    """One connection.

    Args:
        sock: Connected; this object owns it.
        name: The other process: "rank 3 (pid 12 on host)".
        keys: Of the frames that are sent and received; None: frames are not signed.
        started: The other process, where the chief has been told of it.
    """

    def __init__(
        self,
        sock: socket.socket,
        name: str,
        keys: tuple[bytes, bytes] | None = None,
        started: Started | None = None,
    ) -> None:
        self.sock = sock
        self.name = name
        self.started = started
        self._keys = keys
        self._counts = [0, 0]  # frames sent and received: none can be replayed
        self._head_bytes = _HEAD.size + (_MARK if keys else 0)
        self._unsent: list[memoryview] = []
        self._head = b""
        self._filled = 0
        self._room = memoryview(b"")
        self._begin_head()
        sock.setblocking(False)
        if sock.family == socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _notice_lost_computer(sock)

    def fileno(self) -> int:
        return self.sock.fileno()

    def post(self, kind: Kind, number: int, payload: Sequence[Buffer]) -> None:
        """Prepare a frame; `send` sends it."""
        head = _HEAD.pack(sum(len(part) for part in payload), kind, number)
        if self._keys:
            head += self._mark(0, head, payload)
        parts = [head, *payload]
        if sum(len(part) for part in parts) <= _JOINED_BYTES:
            parts = [b"".join(parts)]
        self._unsent = [memoryview(part).cast("B") for part in parts if len(part)]

    def send(self) -> bool:
        """Send what can be sent now, and return whether the frame is out.

        Raises:
            PeerGone: The other rank has ended.
        """
        unsent = self._unsent
        while unsent:
            try:
                sent = self.sock.sendmsg(unsent[:_MOST_BUFFERS])
            except BlockingIOError:
                return False
            except OSError as error:
                raise PeerGone from error
            while unsent and sent >= len(unsent[0]):
                sent -= len(unsent.pop(0))
            if sent:
                unsent[0] = unsent[0][sent:]
        return True

    def post_last(self, kind: Kind, payload: bytes) -> None:
        """Send a last frame if that does not wait and no frame is half sent."""
        if not self._unsent:
            self.post(kind, 0, [payload])
            self.send()

    def receive(self) -> tuple[int, int, memoryview] | None:
        """Read what has come; return kind, number and payload once a frame is whole.

        Raises:
            PeerGone: The other rank has ended.
            PeerRefused: The frame is not signed by the other rank.
        """
        while True:
            while self._filled < len(self._room):
                try:
                    count = self.sock.recv_into(self._room[self._filled :])
                except BlockingIOError:
                    return None
                except OSError as error:
                    raise PeerGone from error
                if not count:
                    raise PeerGone
                self._filled += count
            if self._head:
                return self._end_frame()
            self._head = bytes(self._room)
            length = _HEAD.unpack_from(self._head)[0]
            self._room, self._filled = _new_room(length), 0

    def close(self) -> None:
        self.sock.close()

    def _begin_head(self) -> None:
        self._head = b""
        self._room, self._filled = memoryview(bytearray(self._head_bytes)), 0

    def _end_frame(self) -> tuple[int, int, memoryview]:
        head, payload = self._head, self._room
        self._begin_head()
        _, kind, number = _HEAD.unpack_from(head)
        if self._keys:
            mark = self._mark(1, head[: _HEAD.size], [payload])
            if not hmac.compare_digest(mark, head[_HEAD.size :]):
                raise PeerRefused(
                    f"distributed: what came as from {self.name} is not signed with the secret "
                    "of these ranks, and was not read: another program has written into the "
                    "connection"
                )
        return kind, number, payload

    def _mark(self, direction: int, head: bytes, payload: Sequence[Buffer]) -> bytes:
        assert self._keys is not None
        digest = hmac.new(self._keys[direction], head, "sha256")
        digest.update(struct.pack("<Q", self._counts[direction]))
        self._counts[direction] += 1
        for part in payload:
            digest.update(part)
        return digest.digest()


def _notice_lost_computer(sock: socket.socket) -> None:
    """Have a computer that is switched off count as gone after a minute, not after two hours."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # Linux has all of them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _new_room(length: int) -> memoryview:
    if length <= _JOINED_BYTES:
        return memoryview(bytearray(length))
    return numpy.empty(length, dtype=numpy.uint8).data  # not filled with zeros
