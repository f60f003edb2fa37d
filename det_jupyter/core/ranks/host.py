"""The chief's side of the handshake: it waits for all ranks, and checks that they fit together."""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import selectors
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field

from det_jupyter.core.ranks.claim import Started
from det_jupyter.core.ranks.ended import rank_ended
from det_jupyter.core.ranks.handshake import (
    CHALLENGE,
    LENGTH,
    MARK_BYTES,
    MOST_BYTES,
    WORD,
    keys_of,
    mark_of,
    own_name,
    signed,
)
from det_jupyter.core.ranks.link import RankLink
from det_jupyter.core.ranks.meeting import Meeting
from det_jupyter.core.ranks.place import FIELDS, Place, are_late, find_conflicts
from det_jupyter.errors import DetError, WaitTimeout

logger = logging.getLogger(__name__)

_MOST_STRANGERS = 64  # that are connected and have no place: each takes a descriptor
_MOST_NAMED = 8  # of them, in messages
_UNNAMED = "whose job nothing names"
_QUIET_S = 30.0  # of waiting, before the late ranks are logged


@dataclass(slots=True, eq=False)
class _Visitor:
    """A connection; that of a rank once it has a place."""

    sock: socket.socket
    nonce: bytes
    came: bytearray = field(default_factory=bytearray)
    place: Place | None = None
    name: str = ""
    started: Started | None = None
    own: bytes = b""


class Host:
    """The chief, while it waits for the others.

    Args:
        listener: Does not block; the caller closes it.
        deadline: Monotonic, until all must have come.
    """

    def __init__(
        self,
        listener: socket.socket,
        place: Place,
        meeting: Meeting,
        deadline: float,
        timeout_s: float,
    ) -> None:
        self._listener = listener
        self._place = place
        self._meeting = meeting
        self._deadline = deadline
        self._timeout_s = timeout_s
        self._visitors: list[_Visitor] = []
        self._num_refused = 0
        self._strange: list[str] = []  # ranks of other jobs
        self._warns_at = time.monotonic() + _QUIET_S
        self._selector = selectors.DefaultSelector()

    def receive_all(self) -> dict[int, RankLink]:
        """Return the connections by rank, once all have come.

        Raises:
            ValueError, WaitTimeout, RankEnded, DistNetworkError: See `meet`. All that have come
                get it too.
        """
        try:
            self._selector.register(self._listener, selectors.EVENT_READ, None)
            while len(self._members()) < self._place.size - 1:
                self._wait()
            return self._admit()
        except BaseException as error:
            self._refuse_all(error)
            raise
        finally:
            self._selector.close()

    def _members(self) -> list[_Visitor]:
        return [visitor for visitor in self._visitors if visitor.place]

    def _strangers(self) -> list[_Visitor]:
        return [visitor for visitor in self._visitors if not visitor.place]

    def _wait(self) -> None:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise WaitTimeout(self._who_is_late(f"within {self._timeout_s:g} s"))
        quiet_s = self._warns_at - time.monotonic()
        if quiet_s <= 0:
            self._warns_at, quiet_s = self._deadline, left_s
            logger.warning("%s (waiting for %.0f s more)", self._who_is_late("yet"), left_s)
        for key, _ in self._selector.select(min(left_s, quiet_s)):
            if key.data is None:
                self._welcome()
            elif key.data in self._visitors:  # else it was dismissed for the one before
                self._listen_to(key.data)

    def _who_is_late(self, when: str) -> str:
        here = {member.place.rank for member in self._members() if member.place}
        missing = [rank for rank in range(1, self._place.size) if rank not in here]
        where = str(self._meeting)
        text = f"{are_late(missing, self._place.size, where)} {when}. {self._meeting.advice()}"
        if self._strange:
            text += f" Refused, because of another job: {'; '.join(self._strange)}."
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
            sock.send(CHALLENGE.pack(WORD, visitor.nonce, left_s))
        sock.setblocking(False)
        self._visitors.append(visitor)
        self._selector.register(sock, selectors.EVENT_READ, visitor)
        strangers = self._strangers()
        if len(strangers) > self._place.size + _MOST_STRANGERS:
            self._dismiss(strangers[0])

    def _listen_to(self, visitor: _Visitor) -> None:
        try:
            part = visitor.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part and visitor.place:
            raise rank_ended(
                f"distributed: rank {visitor.place.rank} ({visitor.name}) has ended before all "
                "ranks had come; its own error has the cause"
            )
        visitor.came += part
        if not part or not self._is_understood(visitor):
            self._dismiss(visitor)

    def _is_understood(self, visitor: _Visitor) -> bool:
        """Store its place once its hello is complete; return whether the connection stays."""
        data = bytes(visitor.came)
        if visitor.place or len(data) < LENGTH.size:
            return visitor.place is None
        (length,) = LENGTH.unpack_from(data)
        end = LENGTH.size + length
        if length > MOST_BYTES or len(data) > end + MARK_BYTES:
            return False
        if len(data) < end + MARK_BYTES:
            return True
        hello, mark = data[LENGTH.size : end], data[end:]
        if not hmac.compare_digest(
            mark, mark_of(self._meeting.secret, b"hello" + visitor.nonce, hello)
        ):
            self._num_refused += 1
            self._send_verdict(visitor, "refused", "")
            return False
        try:
            words = json.loads(hello)
            visitor.own, visitor.name = bytes.fromhex(words["nonce"]), str(words["name"])
            place = Place.of({name: words["place"][name] for name in FIELDS})
            key, origin = str(words["job"]), str(words["origin"])
            pid, birth = words["started"]["pid"], words["started"]["birth"]
            visitor.started = Started(int(pid), str(birth))
        except (ValueError, TypeError, LookupError, RecursionError):
            return False  # without a secret anyone may have sent it
        if not self._meeting.job.includes(key):
            self._refuse_stranger(visitor, place, origin)
            return False
        visitor.place = place
        self._check()
        return True

    def _refuse_stranger(self, visitor: _Visitor, place: Place, origin: str) -> None:
        stranger = f"rank {place.rank} of {place.size} ({visitor.name}), {origin or _UNNAMED}"
        if len(self._strange) < _MOST_NAMED:
            self._strange.append(stranger)
        own = self._meeting.job.origin or _UNNAMED
        text = (
            f"distributed: {stranger}, has met the rank 0 of another job at {self._meeting} "
            f"({own_name()}, {own}). Give each job a pub_port of its own; start all ranks of a "
            "job from one process, or set DET_JUPYTER_STORE for all of them to the same path"
        )
        self._send_verdict(visitor, "refused", text)

    def _check(self) -> None:
        members = [(self._place, own_name())]
        members += [(member.place, member.name) for member in self._members() if member.place]
        if problems := find_conflicts(members):
            raise ValueError("distributed: the ranks do not fit together: " + "; ".join(problems))

    def _dismiss(self, visitor: _Visitor) -> None:
        self._selector.unregister(visitor.sock)
        self._visitors.remove(visitor)
        visitor.sock.close()

    def _admit(self) -> dict[int, RankLink]:
        """Connect the ranks, and close other connections."""
        for visitor in self._strangers():
            self._dismiss(visitor)
        self._listener.close()  # before a rank may come again, for its next context
        links = {}
        for member in self._members():
            assert member.place
            self._send_verdict(member, "", f"rank 0 ({own_name()})")
            nonces = member.nonce + member.own
            keys = keys_of(member.sock, self._meeting.secret, nonces, (b"down", b"up"))
            name = f"rank {member.place.rank} ({member.name})"
            links[member.place.rank] = RankLink(member.sock, name, keys, member.started)
        return links

    def _send_verdict(self, visitor: _Visitor, kind: str, text: str) -> None:
        words = {"kind": kind, "text": text}
        with suppress(OSError):  # it has ended; a collective will notice
            visitor.sock.setblocking(True)
            visitor.sock.sendall(signed(self._meeting.secret, b"verdict" + visitor.own, words))

    def _refuse_all(self, error: BaseException) -> None:
        kind = "late" if isinstance(error, WaitTimeout) else "ended"
        kind = "conflict" if isinstance(error, ValueError) else kind
        text = str(error) if isinstance(error, (DetError, ValueError, RuntimeError)) else ""
        for visitor in self._visitors:
            if visitor.place:
                self._send_verdict(visitor, kind, text or "distributed: rank 0 was ended")
            visitor.sock.close()
