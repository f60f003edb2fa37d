"""The handshake of the chief (host) with each other rank (guest), before frames are sent.

    host  → guest   challenge: MAGIC, 16 random bytes, how long the host will wait (s)
    guest → host    hello: rank and sizes, job, 16 random bytes of its own, as JSON; a signature
    host  → guest   verdict, once all ranks have connected or one of them cannot: JSON; a signature

A signature is the HMAC-SHA256, under the secret, of the other side's random bytes and the JSON.
Nothing is unpickled here. A guest without the secret is refused, and the host keeps waiting.
"""

from __future__ import annotations

import hmac
import json
import logging
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

from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.core.ranks.link import RankLink, rank_ended
from det_jupyter.core.ranks.meeting import Meeting
from det_jupyter.core.ranks.rank_info import FIELDS, RankInfo, find_conflicts, late_text
from det_jupyter.errors import DetError, LaunchError, PeerRefused, WaitTimeout

logger = logging.getLogger(__name__)

MAGIC = b"detranks"
CHALLENGE = struct.Struct("<8s16sd")
LENGTH = struct.Struct("<I")
MAX_BYTES = 1024 * 1024  # most bytes of JSON: about 100 per rank
SIGNATURE_BYTES = 32
_VERDICT_S = 5.0  # how long a guest waits for the verdict after the host's own deadline
_QUIET_S = 30.0  # how long the host waits before it logs which ranks are late
_MAX_UNADMITTED = 64  # connections beside those of the ranks, as each takes a descriptor
_MAX_NAMED = 8  # refused ranks of other jobs, in messages
_UNKNOWN_JOB = "whose job nothing names"
# The error that a guest raises for the kind of a verdict; for other kinds, that of an ended rank.
_FAILURES = {"conflict": ValueError, "late": WaitTimeout, "refused": PeerRefused}


def introduce(sock: socket.socket, info: RankInfo, meeting: Meeting, deadline: float) -> RankLink:
    """Introduce this process as a guest; return the link to the chief once all have connected.

    Args:
        sock: Connected with the chief; stays open if this raises.
        info: Rank and sizes of this process.
        meeting: The secret and job of this process; the chief may have others.
        deadline: Monotonic; the chief's own deadline counts if it is later.

    Raises:
        EOFError: The connection was closed before the challenge: connect again.
        ValueError, WaitTimeout, PeerRefused, RankEnded, DistNetworkError: See `meet`.
    """
    secret, where = meeting.secret, str(meeting)
    magic, nonce, remaining_s = CHALLENGE.unpack(_read(sock, CHALLENGE.size, deadline, where))
    if magic != MAGIC:
        raise LaunchError(
            f"distributed: rank {info.rank} has met another program instead of rank 0 "
            f"at {where}; give all ranks another pub_port"
        )
    own = secrets.token_bytes(16)
    job = {"job": meeting.job.key, "origin": meeting.job.origin}
    process = {"name": process_name(), "started": asdict(ProcessIdentity.of(os.getpid()))}
    fields = {"place": asdict(info), "nonce": own.hex(), **process, **job}
    sock.sendall(signed(secret, b"hello" + nonce, fields))
    verdict_deadline = max(deadline, time.monotonic() + remaining_s + _VERDICT_S)
    try:
        (length,) = LENGTH.unpack(_read(sock, LENGTH.size, verdict_deadline, where))
        data = _read(sock, min(length, MAX_BYTES), verdict_deadline, where)
        signature = _read(sock, SIGNATURE_BYTES, verdict_deadline, where)
    except (EOFError, ConnectionError):
        raise rank_ended(
            f"distributed: rank 0 has ended, or has refused rank {info.rank}, before all "
            "ranks had come"
        ) from None
    if not hmac.compare_digest(signature, signature_of(secret, b"verdict" + own, data)):
        raise PeerRefused(
            f"distributed: rank {info.rank} and what it has met as rank 0 do not have the "
            "same secret; they are of different jobs, or DET_JUPYTER_SECRET is not the same"
        )
    verdict = json.loads(data)
    if verdict["kind"]:
        raise _FAILURES.get(verdict["kind"], rank_ended)(verdict["text"])
    return RankLink(sock, verdict["text"], keys_of(sock, secret, nonce + own, (b"up", b"down")))


def keys_of(
    sock: socket.socket, secret: bytes, nonces: bytes, directions: tuple[bytes, bytes]
) -> tuple[bytes, bytes] | None:
    """Return the keys for frames that are sent and received; None if frames are not signed.

    Args:
        sock: Frames over a unix socket are not signed.
        secret: The ranks' secret; empty: frames are not signed.
        nonces: The random bytes of host and guest.
        directions: Labels of sending and of receiving; the other side has them in reverse.
    """
    if not secret or sock.family == socket.AF_UNIX:
        return None
    sent, received = directions
    return signature_of(secret, sent + nonces, b""), signature_of(secret, received + nonces, b"")


def process_name() -> str:
    """Return the name of this process for messages of other ranks."""
    return f"pid {os.getpid()} on {socket.gethostname()}"


def _read(sock: socket.socket, count: int, deadline: float, where: str) -> bytes:
    data = b""
    while len(data) < count:
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            part = sock.recv(count - len(data))
        except TimeoutError:
            raise WaitTimeout(
                f"distributed: what is at {where} does not answer as rank 0; it may be stopped, "
                "or another program is in its place: give all ranks another pub_port then"
            ) from None
        if not part:
            raise EOFError
        data += part
    return data


def signature_of(secret: bytes, label: bytes, data: bytes) -> bytes:
    """Return the signature of data; the label says what it is used for."""
    return hmac.digest(secret, label + data, "sha256")


def signed(secret: bytes, label: bytes, content: Mapping[str, Any]) -> bytes:
    """Return the length, the content as JSON, and the signature."""
    data = json.dumps(content).encode()
    return LENGTH.pack(len(data)) + data + signature_of(secret, label, data)


@dataclass(slots=True, eq=False)
class _Guest:
    """A connection of the host. It is that of a rank once `info` is set.

    Args:
        nonce: The random bytes of the host's challenge.
        received: Bytes of the hello so far.
        own: The random bytes of its hello.
    """

    sock: socket.socket
    nonce: bytes
    received: bytearray = field(default_factory=bytearray)
    info: RankInfo | None = None
    name: str = ""
    process: ProcessIdentity | None = None
    own: bytes = b""


class ChiefHandshake:
    """The host's side: accepts connections until all ranks have introduced themselves.

    Args:
        listener: A listening, non-blocking socket. The caller closes it too.
        info: The chief's rank and sizes.
        deadline: Monotonic; when all have to be connected.
        timeout_s: Seconds from the beginning to the deadline, for messages.
    """

    def __init__(
        self,
        listener: socket.socket,
        info: RankInfo,
        meeting: Meeting,
        deadline: float,
        timeout_s: float,
    ) -> None:
        self._listener = listener
        self._info = info
        self._meeting = meeting
        self._deadline = deadline
        self._timeout_s = timeout_s
        self._guests: list[_Guest] = []
        self._num_refused = 0
        self._of_other_jobs: list[str] = []  # refused ranks, for messages
        self._warns_at = time.monotonic() + _QUIET_S
        self._selector = selectors.DefaultSelector()

    def admit_all(self) -> dict[int, RankLink]:
        """Return the links by rank, once all ranks are connected.

        Raises:
            ValueError, WaitTimeout, RankEnded, DistNetworkError: See `meet`. The ranks that are
                connected raise it too.
        """
        try:
            self._selector.register(self._listener, selectors.EVENT_READ, None)
            while len(self._members()) < self._info.size - 1:
                self._wait()
            return self._admit()
        except BaseException as error:  # an interrupt too: the other ranks would wait
            self._refuse_all(error)
            raise
        finally:
            self._selector.close()

    def _members(self) -> list[_Guest]:
        return [guest for guest in self._guests if guest.info]

    def _unadmitted(self) -> list[_Guest]:
        return [guest for guest in self._guests if not guest.info]

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
                self._accept()
            elif key.data in self._guests:  # an earlier key may have disconnected this guest
                self._receive(key.data)

    def _who_is_late(self, when: str) -> str:
        here = {member.info.rank for member in self._members() if member.info}
        missing = [rank for rank in range(1, self._info.size) if rank not in here]
        where = str(self._meeting)
        text = f"{late_text(missing, self._info.size, where)} {when}. {self._meeting.hint()}"
        if self._of_other_jobs:
            text += f" Refused, because of another job: {'; '.join(self._of_other_jobs)}."
        if self._num_refused:
            text += (
                f" {self._num_refused} connections were refused, because they did not have the "
                "secret of these ranks"
            )
        return text

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        guest = _Guest(sock, secrets.token_bytes(16))
        left_s = max(0.0, self._deadline - time.monotonic())
        with suppress(OSError):  # a closed connection is found when it is read
            sock.send(CHALLENGE.pack(MAGIC, guest.nonce, left_s))
        sock.setblocking(False)
        self._guests.append(guest)
        self._selector.register(sock, selectors.EVENT_READ, guest)
        unadmitted = self._unadmitted()
        if len(unadmitted) > self._info.size + _MAX_UNADMITTED:
            self._disconnect(unadmitted[0])

    def _receive(self, guest: _Guest) -> None:
        try:
            part = guest.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part and guest.info:
            raise rank_ended(
                f"distributed: rank {guest.info.rank} ({guest.name}) has ended before all "
                "ranks had come; its own error has the cause"
            )
        guest.received += part
        if not part or not self._takes_hello(guest):
            self._disconnect(guest)

    def _takes_hello(self, guest: _Guest) -> bool:
        """Check the hello once it is complete; return False if the connection is to be closed."""
        data = bytes(guest.received)
        if guest.info or len(data) < LENGTH.size:
            return guest.info is None
        (length,) = LENGTH.unpack_from(data)
        end = LENGTH.size + length
        if length > MAX_BYTES or len(data) > end + SIGNATURE_BYTES:
            return False
        if len(data) < end + SIGNATURE_BYTES:
            return True
        hello, signature = data[LENGTH.size : end], data[end:]
        if not hmac.compare_digest(
            signature, signature_of(self._meeting.secret, b"hello" + guest.nonce, hello)
        ):
            self._num_refused += 1
            self._send_verdict(guest, "refused", "")
            return False
        try:
            fields = json.loads(hello)
            guest.own, guest.name = bytes.fromhex(fields["nonce"]), str(fields["name"])
            info = RankInfo.of({name: fields["place"][name] for name in FIELDS})
            key, origin = str(fields["job"]), str(fields["origin"])
            started = fields["started"]
            host = str(started.get("host", ""))
            guest.process = ProcessIdentity(int(started["pid"]), str(started["birth"]), host)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return False  # without a secret any program may have sent it
        if not self._meeting.job.includes(key):
            self._refuse_other_job(guest, info, origin)
            return False
        guest.info = info
        self._check()
        return True

    def _refuse_other_job(self, guest: _Guest, info: RankInfo, origin: str) -> None:
        described = f"rank {info.rank} of {info.size} ({guest.name}), {origin or _UNKNOWN_JOB}"
        if len(self._of_other_jobs) < _MAX_NAMED:
            self._of_other_jobs.append(described)
        own = self._meeting.job.origin or _UNKNOWN_JOB
        text = (
            f"distributed: {described}, has met the rank 0 of another job at {self._meeting} "
            f"({process_name()}, {own}). Give each job a pub_port of its own; start all ranks of "
            "a job from one process, or set DET_JUPYTER_STORE for all of them to the same path"
        )
        self._send_verdict(guest, "refused", text)

    def _check(self) -> None:
        members = [(self._info, process_name())]
        members += [(member.info, member.name) for member in self._members() if member.info]
        if problems := find_conflicts(members):
            raise ValueError("distributed: the ranks do not fit together: " + "; ".join(problems))

    def _disconnect(self, guest: _Guest) -> None:
        self._selector.unregister(guest.sock)
        self._guests.remove(guest)
        guest.sock.close()

    def _admit(self) -> dict[int, RankLink]:
        """Send the verdict to all ranks, and close other connections; return the links by rank."""
        for guest in self._unadmitted():
            self._disconnect(guest)
        self._listener.close()  # before a rank may connect again, for its next context
        links = {}
        for member in self._members():
            assert member.info
            self._send_verdict(member, "", f"rank 0 ({process_name()})")
            nonces = member.nonce + member.own
            keys = keys_of(member.sock, self._meeting.secret, nonces, (b"down", b"up"))
            name = f"rank {member.info.rank} ({member.name})"
            links[member.info.rank] = RankLink(member.sock, name, keys, member.process)
        return links

    def _send_verdict(self, guest: _Guest, kind: str, text: str) -> None:
        fields = {"kind": kind, "text": text}
        with suppress(OSError):  # the rank has ended: the next collective fails
            guest.sock.setblocking(True)
            guest.sock.sendall(signed(self._meeting.secret, b"verdict" + guest.own, fields))

    def _refuse_all(self, error: BaseException) -> None:
        kind = "late" if isinstance(error, WaitTimeout) else "ended"
        kind = "conflict" if isinstance(error, ValueError) else kind
        text = str(error) if isinstance(error, (DetError, ValueError, RuntimeError)) else ""
        for guest in self._guests:
            if guest.info:
                self._send_verdict(guest, kind, text or "distributed: rank 0 was ended")
            guest.sock.close()
