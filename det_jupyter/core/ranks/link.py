"""A connection between two ranks. It carries frames, and raises when the other rank has ended.

A frame:

    length     8 bytes: of the payload
    kind       1 byte: which collective, or END
    number     4 bytes: of the collective in its group
    signature  32 bytes: HMAC-SHA256 of the rest under a key of this connection and direction. Only
               over a network with a secret; a socket in a 0700 folder needs none
    payload

A small frame is one message of a `multiprocessing.connection.Connection`, a large one several: a
Connection copies what it receives, and one message of 10 MB took twice as long as twenty.
"""

from __future__ import annotations

import hmac
import os
import socket
import struct
import sys
from collections.abc import Generator, Sequence
from contextlib import suppress
from enum import IntEnum
from multiprocessing import BufferTooShort
from multiprocessing.connection import Connection

import numpy

from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.errors import PeerRefused

_HEAD = struct.Struct("<QBI")
_SIGNATURE_BYTES = 32
_MESSAGE_BYTES = 512 * 1024
_SOCKET_BYTES = 1024 * 1024
_TIMEVAL = struct.Struct("@ll")
_MAX_TIMEOUT_S = 2**31

Buffer = bytes | bytearray | memoryview
Frame = tuple[int, int, Buffer]  # kind, number, payload


class FrameKind(IntEnum):
    """The collective that a frame belongs to."""

    ALLGATHER = 1
    GATHER = 2
    BROADCAST = 3
    BARRIER = 4
    REDUCE = 5
    END = 6  # no collective: the sender has failed, and the payload is the reason


class RankLink:
    """One connection.

    `send` and `receive` are generators that transfer one message at each step. A caller that waits
    for several ranks advances each generator when its connection is ready. They raise OSError or
    EOFError if the other rank has ended, and BlockingIOError if it stopped within a message.

    Args:
        sock: A connected socket, which this object takes over.
        name: The other process, for messages: "rank 3 (pid 12 on host)".
        keys: For frames that are sent and that are received; None: frames are not signed.
        process: The other process; None if it has not introduced itself (on ranks other than the
            chief).
    """

    def __init__(
        self,
        sock: socket.socket,
        name: str,
        keys: tuple[bytes, bytes] | None = None,
        process: ProcessIdentity | None = None,
    ) -> None:
        self.name = name
        self.process = process
        self._keys = keys
        self._counts = [0, 0]  # frames sent and received; signed, so that none can be replayed
        self._head_bytes = _HEAD.size + (_SIGNATURE_BYTES if keys else 0)
        self._is_sending = False
        sock.setblocking(True)
        if sock.family == socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _shorten_keepalive(sock)
        self._connection = Connection(sock.detach())

    def fileno(self) -> int:
        return self._connection.fileno()

    def set_timeout(self, wait_s: float) -> None:
        """Set how long the transfer of one message may pause before BlockingIOError is raised."""
        whole_s, part_s = divmod(min(wait_s, _MAX_TIMEOUT_S), 1)
        limit = _TIMEVAL.pack(int(whole_s), max(1, int(part_s * 1e6)))  # zeros: no limit
        sock = socket.socket(fileno=self.fileno())
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, option, limit)
        sock.detach()

    def send(
        self, kind: FrameKind, number: int, payload: Sequence[Buffer]
    ) -> Generator[None, None, None]:
        """Send a frame."""
        length = sum(len(part) for part in payload)
        head = _HEAD.pack(length, kind, number)
        if self._keys:
            head += self._signature(0, head, payload)
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

    def send_last(self, kind: FrameKind, payload: bytes) -> None:
        """Send a small frame, unless another one is half sent. Never blocks or raises."""
        if not self._is_sending:
            os.set_blocking(self.fileno(), False)
            with suppress(OSError):
                list(self.send(kind, 0, [payload]))

    def receive(self) -> Generator[None, None, Frame]:
        """Receive a frame, which is the generator's return value.

        Raises:
            PeerRefused: It is not a frame, or not signed by the other rank.
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
                head[_HEAD.size :], self._signature(1, head[: _HEAD.size], [payload])
            ):
                return kind, number, payload
        except (struct.error, BufferTooShort):  # the message does not come from a rank
            pass
        raise PeerRefused(
            f"distributed: what came as from {self.name} is not signed with the secret of these "
            "ranks, and was not read: another program has written into the connection"
        )

    def close(self) -> None:
        self._connection.close()

    def _signature(self, direction: int, head: Buffer, payload: Sequence[Buffer]) -> bytes:
        assert self._keys is not None
        digest = hmac.new(self._keys[direction], head, "sha256")
        digest.update(struct.pack("<Q", self._counts[direction]))
        self._counts[direction] += 1
        for part in payload:
            digest.update(part)
        return digest.digest()


def _shorten_keepalive(sock: socket.socket) -> None:
    """Let TCP detect within a minute, not two hours, that the other computer is switched off."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # Linux has all of them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class RankEnded(RuntimeError):
    """Another rank has ended; raised in a process that has not loaded torch."""


def rank_ended(text: str) -> RuntimeError:
    """Return the error to raise when another rank has ended.

    torch's DistNetworkError, as its own collectives raise it; or RankEnded in a process that has
    not loaded torch, where the import would take seconds.
    """
    if "torch" not in sys.modules:
        return RankEnded(text)
    import torch  # not torch.distributed, which would not wait for a thread that is loading torch

    return torch.distributed.DistNetworkError(text)
