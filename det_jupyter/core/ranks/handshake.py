"""How the chief (host) and another rank (guest) make sure of each other, before a frame is sent.

    host  → guest   challenge: a word of ours, 16 random bytes, how long the host will wait (s)
    guest → host    its place and its own 16 random bytes, as JSON; a mark
    host  → guest   once all have come, or it is clear that they will not: the verdict, as JSON;
                    a mark

A mark is HMAC-SHA256 under the secret of the other side's random bytes and the JSON. Nothing is
unpickled here. What does not know the secret is sent away, and the host goes on waiting.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import torch.distributed as dist

from det_jupyter.core.ranks.link import Link
from det_jupyter.core.ranks.place import Place, find_conflicts, name_ranks
from det_jupyter.errors import DetError, LaunchError, PeerRefused, WaitTimeout

_WORD = b"detranks"
_CHALLENGE = struct.Struct("<8s16sd")
_LENGTH = struct.Struct("<I")
_MOST_BYTES = 1024 * 1024  # of JSON: 100 bytes per rank
_MARK = 32
_VERDICT_S = 5.0  # that a guest waits for it beyond the host's own limit
_ENDED, _CONFLICT, _LATE, _REFUSED = "ended", "conflict", "late", "refused"


def _failure(kind: str, text: str) -> Exception:
    match kind:
        case "conflict":
            return ValueError(text)
        case "late":
            return WaitTimeout(text)
        case "refused":
            return PeerRefused(text)
    return dist.DistNetworkError(text)


@dataclass(frozen=True, slots=True)
class Guest:
    """A rank that comes to the chief.

    Args:
        place: Its place.
        secret: What it believes to be the secret.
    """

    place: Place
    secret: bytes = field(repr=False)


def introduce(sock: socket.socket, guest: Guest, deadline: float, where: str = "") -> Link:
    """Return the connection with the chief once all ranks have come. Closes nothing.

    Args:
        sock: Connected with the chief.
        guest: This process.
        deadline: Monotonic; the chief's own may be later, and then counts.
        where: For messages.

    Raises:
        EOFError: What has answered did not begin: connect again.
        ValueError, WaitTimeout, PeerRefused, DistNetworkError: See `meet`.
    """
    word, nonce, remaining_s = _CHALLENGE.unpack(_read(sock, _CHALLENGE.size, deadline))
    if word != _WORD:
        raise LaunchError(
            f"distributed: rank {guest.place.rank} has met another program instead of rank 0"
            f"{where}; give all ranks another pub_port"
        )
    own = secrets.token_bytes(16)
    words = {"place": asdict(guest.place), "name": _own_name(), "nonce": own.hex()}
    sock.sendall(_signed(guest.secret, b"hello" + nonce, words))
    late = max(deadline, time.monotonic() + remaining_s + _VERDICT_S)
    try:
        (length,) = _LENGTH.unpack(_read(sock, _LENGTH.size, late))
        data = _read(sock, min(length, _MOST_BYTES), late)
        mark = _read(sock, _MARK, late)
    except (EOFError, ConnectionError):
        raise dist.DistNetworkError(
            f"distributed: rank 0 has ended, or has refused rank {guest.place.rank}, before all "
            "ranks had come"
        ) from None
    if not hmac.compare_digest(mark, _mark(guest.secret, b"verdict" + own, data)):
        raise PeerRefused(
            f"distributed: rank {guest.place.rank} and what it has met as rank 0 do not know the "
            "same secret; they are of different jobs, or DET_JUPYTER_SECRET is not the same"
        )
    verdict = json.loads(data)
    if verdict["kind"]:
        raise _failure(verdict["kind"], verdict["text"])
    up, down = _keys(guest.secret, nonce + own)
    return Link(sock, verdict["text"], (up, down) if _is_signed(sock, guest.secret) else None)


def _is_signed(sock: socket.socket, secret: bytes) -> bool:
    return bool(secret) and sock.family != socket.AF_UNIX


def _keys(secret: bytes, nonces: bytes) -> tuple[bytes, bytes]:
    return _mark(secret, b"up" + nonces, b""), _mark(secret, b"down" + nonces, b"")


def _own_name() -> str:
    return f"pid {os.getpid()} on {socket.gethostname()}"


def _read(sock: socket.socket, count: int, deadline: float) -> bytes:
    data = b""
    while len(data) < count:
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            part = sock.recv(count - len(data))
        except TimeoutError:
            raise WaitTimeout(
                "distributed: rank 0 has been found, but does not answer; it may be stopped, or "
                "another program is in its place"
            ) from None
        if not part:
            raise EOFError
        data += part
    return data


def _mark(secret: bytes, words: bytes, data: bytes) -> bytes:
    return hmac.digest(secret, words + data, "sha256")


def _signed(secret: bytes, words: bytes, said: Mapping[str, Any]) -> bytes:
    data = json.dumps(said).encode()
    return _LENGTH.pack(len(data)) + data + _mark(secret, words, data)


@dataclass(slots=True, eq=False)
class _Visitor:
    """A connection of which it is not known yet who it is, or the rank that it is."""

    sock: socket.socket
    nonce: bytes
    data: bytearray = field(default_factory=bytearray)
    place: Place | None = None
    name: str = ""
    own: bytes = b""


class Host:
    """The chief, while it waits for the others.

    Args:
        listener: Does not block; the caller closes it.
        place: The chief's place.
        secret: Of these ranks.
        where: Where it listens, for messages.
        deadline: Monotonic, until all must have come.
        timeout_s: The same as it was given.
    """

    def __init__(
        self,
        listener: socket.socket,
        place: Place,
        secret: bytes,
        where: str,
        deadline: float,
        timeout_s: float,
    ) -> None:
        self._listener = listener
        self._place = place
        self._secret = secret
        self._where = where
        self._deadline = deadline
        self._timeout_s = timeout_s
        self._visitors: set[_Visitor] = set()
        self._num_refused = 0
        self._selector = selectors.DefaultSelector()

    def receive_all(self) -> dict[int, Link]:
        """Return the connections by rank, once all have come.

        Raises:
            ValueError, WaitTimeout, DistNetworkError: See `meet`. All that have come get it too.
        """
        try:
            self._selector.register(self._listener, selectors.EVENT_READ, None)
            while len(self._members()) < self._place.size - 1:
                self._wait()
            return self._admit()
        except BaseException as error:
            self._send_away(error)
            raise
        finally:
            self._selector.close()

    def _members(self) -> list[_Visitor]:
        return [visitor for visitor in self._visitors if visitor.place]

    def _wait(self) -> None:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise WaitTimeout(self._who_is_late())
        for key, _ in self._selector.select(left_s):
            if key.data is None:
                self._welcome()
            else:
                self._listen_to(key.data)

    def _who_is_late(self) -> str:
        here = {member.place.rank for member in self._members() if member.place}
        missing = [rank for rank in range(1, self._place.size) if rank not in here]
        text = (
            f"distributed: {name_ranks(missing)} of {self._place.size} "
            f"{'has' if len(missing) == 1 else 'have'} not come to {self._where} within "
            f"{self._timeout_s:g} s. Are all ranks started, with the same chief_ip and pub_port?"
        )
        if self._num_refused:
            text += (
                f" {self._num_refused} connections were refused, because they did not know the "
                "secret of these ranks"
            )
        return text

    def _welcome(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        visitor = _Visitor(sock, secrets.token_bytes(16))
        left_s = max(0.0, self._deadline - time.monotonic())
        with suppress(OSError):  # its end is noticed when it is read from
            sock.send(_CHALLENGE.pack(_WORD, visitor.nonce, left_s))
        sock.setblocking(False)
        self._visitors.add(visitor)
        self._selector.register(sock, selectors.EVENT_READ, visitor)

    def _listen_to(self, visitor: _Visitor) -> None:
        try:
            part = visitor.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part and visitor.place:
            raise dist.DistNetworkError(
                f"distributed: rank {visitor.place.rank} ({visitor.name}) has ended before all "
                "ranks had come; its own error has the cause"
            )
        visitor.data += part
        if not part or not self._is_understood(visitor):
            self._dismiss(visitor)

    def _is_understood(self, visitor: _Visitor) -> bool:
        """Note who it is, if it has said so; return whether it may stay."""
        data = bytes(visitor.data)
        if visitor.place or len(data) < _LENGTH.size:
            return visitor.place is None
        (length,) = _LENGTH.unpack_from(data)
        end = _LENGTH.size + length
        if length > _MOST_BYTES or len(data) > end + _MARK:
            return False
        if len(data) < end + _MARK:
            return True
        said, mark = data[_LENGTH.size : end], data[end:]
        if not hmac.compare_digest(mark, _mark(self._secret, b"hello" + visitor.nonce, said)):
            self._num_refused += 1
            self._judge(visitor, _REFUSED, "")
            return False
        words = json.loads(said)
        visitor.own = bytes.fromhex(words["nonce"])
        visitor.place, visitor.name = Place(**words["place"]), words["name"]
        self._check()
        return True

    def _check(self) -> None:
        members = [(self._place, _own_name())]
        members += [(member.place, member.name) for member in self._members() if member.place]
        if problems := find_conflicts(members):
            raise ValueError("distributed: the ranks do not fit together: " + "; ".join(problems))

    def _dismiss(self, visitor: _Visitor) -> None:
        self._selector.unregister(visitor.sock)
        self._visitors.discard(visitor)
        visitor.sock.close()

    def _admit(self) -> dict[int, Link]:
        """Tell the ranks that all have come; strangers are sent away."""
        for visitor in self._visitors.difference(self._members()):
            self._dismiss(visitor)
        self._listener.close()  # before a rank may come again, for its next context
        links = {}
        for member in self._members():
            assert member.place
            self._judge(member, "", f"rank 0 ({_own_name()})")
            up, down = _keys(self._secret, member.nonce + member.own)
            keys = (down, up) if _is_signed(member.sock, self._secret) else None
            name = f"rank {member.place.rank} ({member.name})"
            links[member.place.rank] = Link(member.sock, name, keys)
        return links

    def _judge(self, visitor: _Visitor, kind: str, text: str) -> None:
        words = {"kind": kind, "text": text}
        with suppress(OSError):  # it has ended; a collective will notice
            visitor.sock.setblocking(True)
            visitor.sock.sendall(_signed(self._secret, b"verdict" + visitor.own, words))

    def _send_away(self, error: BaseException) -> None:
        kind = _LATE if isinstance(error, WaitTimeout) else _ENDED
        kind = _CONFLICT if isinstance(error, ValueError) else kind
        text = str(error) if isinstance(error, (DetError, ValueError, RuntimeError)) else ""
        for visitor in list(self._visitors):
            if visitor.place:
                self._judge(visitor, kind, text or "distributed: rank 0 was ended")
            visitor.sock.close()
