"""A connection between two ranks: it carries frames, and notices when the other rank has ended.

    length   8 bytes, of the payload
    kind     1 byte: which collective, or that the other rank gives up
    number   4 bytes: of the collective in its group
    mark     32 bytes, HMAC-SHA256 under a key of this connection and direction, of all else; only
             over a network with a secret. A socket in a 0700 folder needs none
    payload

A small frame is one message of a `multiprocessing.connection.Connection`. A large one is several:
a Connection copies what it receives, and one message of 10 MB took twice the time of twenty.
"""

from __future__ import annotations

import hmac
import os
import socket
import struct
from collections.abc import Generator, Sequence
from contextlib import suppress
from enum import IntEnum
from multiprocessing import BufferTooShort
from multiprocessing.connection import Connection

import numpy

from det_jupyter.core.ranks.claim import Started
from det_jupyter.errors import PeerRefused

_HEAD = struct.Struct("<QBI")
_MARK = 32
_MESSAGE_BYTES = 512 * 1024
_SOCKET_BYTES = 1024 * 1024
_TIME = struct.Struct("@ll")  # C's timeval
_MOST_S = 2**31

Buffer = bytes | bytearray | memoryview
Frame = tuple[int, int, Buffer]  # kind, number, payload


class Kind(IntEnum):
    """What a frame is part of."""

    ALLGATHER = 1
    GATHER = 2
    BROADCAST = 3
    BARRIER = 4
    REDUCE = 5
    END = 6  # the sender gives up; the payload has the reason


class RankLink:
    """One connection.

    Sending and receiving are generators that handle one message at a time, so that the caller can
    wait for several ranks: it continues each when the connection is ready. OSError and EOFError:
    the other rank has ended; BlockingIOError: it has stopped within a message.

    Args:
        sock: Connected; this object takes it over.
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
        self.name = name
        self.started = started
        self._keys = keys
        self._counts = [0, 0]  # frames sent and received: none can be replayed
        self._head_bytes = _HEAD.size + (_MARK if keys else 0)
        self._is_sending = False
        sock.setblocking(True)
        if sock.family == socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _notice_lost_computer(sock)
        self._connection = Connection(sock.detach())

    def fileno(self) -> int:
        return self._connection.fileno()

    def limit(self, wait_s: float) -> None:
        """Set how long a message that has begun waits for the other rank to go on with it."""
        whole_s, part_s = divmod(min(wait_s, _MOST_S), 1)
        limit = _TIME.pack(int(whole_s), max(1, int(part_s * 1e6)))  # zeros: no limit
        sock = socket.socket(fileno=self.fileno())
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, option, limit)
        sock.detach()

    def send(
        self, kind: Kind, number: int, payload: Sequence[Buffer]
    ) -> Generator[None, None, None]:
        """Send a frame."""
        length = sum(len(part) for part in payload)
        head = _HEAD.pack(length, kind, number)
        if self._keys:
            head += self._mark(0, head, payload)
        self._is_sending = True
        if length <= _MESSAGE_BYTES:
            self._connection.send_bytes(b"".join([head, *payload]))
        else:
            self._connection.send_bytes(head)
            for part in payload:
                for begin in range(0, len(part), _MESSAGE_BYTES):
                    yield
                    self._connection.send_bytes(memoryview(part)[begin : begin + _MESSAGE_BYTES])
        self._is_sending = False

    def send_last(self, kind: Kind, payload: bytes) -> None:
        """Send a small frame if that does not wait and no other is half sent."""
        if not self._is_sending:
            os.set_blocking(self.fileno(), False)
            with suppress(OSError):
                list(self.send(kind, 0, [payload]))

    def receive(self) -> Generator[None, None, Frame]:
        """Receive a frame.

        Raises:
            PeerRefused: It is not signed by the other rank.
        """
        message = memoryview(self._connection.recv_bytes(self._head_bytes + _MESSAGE_BYTES))
        head, payload = message[: self._head_bytes], message[self._head_bytes :]
        try:
            length, kind, number = _HEAD.unpack_from(head)
            if length > _MESSAGE_BYTES:
                payload, filled = numpy.empty(length, dtype=numpy.uint8).data, 0  # not zeros
                while filled < length:
                    yield
                    filled += self._connection.recv_bytes_into(payload, filled)
            if not self._keys or hmac.compare_digest(
                head[_HEAD.size :], self._mark(1, head[: _HEAD.size], [payload])
            ):
                return kind, number, payload
        except (struct.error, BufferTooShort):  # no rank has sent it
            pass
        raise PeerRefused(
            f"distributed: what came as from {self.name} is not signed with the secret of these "
            "ranks, and was not read: another program has written into the connection"
        )

    def close(self) -> None:
        self._connection.close()

    def _mark(self, direction: int, head: Buffer, payload: Sequence[Buffer]) -> bytes:
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
