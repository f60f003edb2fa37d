"""The handshake of the chief (host) and another rank (guest), before a frame is sent.

    host  → guest   challenge: a word of ours, 16 random bytes, how long the host will wait (s)
    guest → host    its place, job and own 16 random bytes, as JSON; a mark
    host  → guest   once all have come, or it is clear that they will not: the verdict, as JSON;
                    a mark

A mark is HMAC-SHA256 under the secret of the other side's random bytes and the JSON. Nothing is
unpickled here. A guest without the secret is refused, and the host keeps waiting.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from det_jupyter.core.ranks.claim import Started
from det_jupyter.core.ranks.ended import rank_ended
from det_jupyter.core.ranks.link import RankLink
from det_jupyter.core.ranks.meeting import Meeting
from det_jupyter.core.ranks.place import Place
from det_jupyter.errors import LaunchError, PeerRefused, WaitTimeout

WORD = b"detranks"
CHALLENGE = struct.Struct("<8s16sd")
LENGTH = struct.Struct("<I")
MOST_BYTES = 1024 * 1024  # of JSON: 100 bytes per rank
MARK_BYTES = 32
_VERDICT_S = 5.0  # that a guest waits for it beyond the host's own limit
# What the host says is raised by its guests; any other kind: it has ended.
_FAILURES = {"conflict": ValueError, "late": WaitTimeout, "refused": PeerRefused}


def introduce(sock: socket.socket, place: Place, meeting: Meeting, deadline: float) -> RankLink:
    """Return the connection with the chief once all ranks have come. Closes nothing.

    Args:
        sock: Connected with the chief.
        meeting: Its secret and job are those of this process; the chief may have others.
        deadline: Monotonic; the chief's own may be later, and then counts.

    Raises:
        EOFError: What has answered did not begin: connect again.
        ValueError, WaitTimeout, PeerRefused, RankEnded, DistNetworkError: See `meet`.
    """
    secret, where = meeting.secret, str(meeting)
    word, nonce, remaining_s = CHALLENGE.unpack(_read(sock, CHALLENGE.size, deadline, where))
    if word != WORD:
        raise LaunchError(
            f"distributed: rank {place.rank} has met another program instead of rank 0 "
            f"at {where}; give all ranks another pub_port"
        )
    own = secrets.token_bytes(16)
    job = {"job": meeting.job.key, "origin": meeting.job.origin}
    process = {"name": own_name(), "started": asdict(Started.own())}
    words = {"place": asdict(place), "nonce": own.hex(), **process, **job}
    sock.sendall(signed(secret, b"hello" + nonce, words))
    late = max(deadline, time.monotonic() + remaining_s + _VERDICT_S)
    try:
        (length,) = LENGTH.unpack(_read(sock, LENGTH.size, late, where))
        data = _read(sock, min(length, MOST_BYTES), late, where)
        mark = _read(sock, MARK_BYTES, late, where)
    except (EOFError, ConnectionError):
        raise rank_ended(
            f"distributed: rank 0 has ended, or has refused rank {place.rank}, before all "
            "ranks had come"
        ) from None
    if not hmac.compare_digest(mark, mark_of(secret, b"verdict" + own, data)):
        raise PeerRefused(
            f"distributed: rank {place.rank} and what it has met as rank 0 do not know the "
            "same secret; they are of different jobs, or DET_JUPYTER_SECRET is not the same"
        )
    verdict = json.loads(data)
    if verdict["kind"]:
        raise _FAILURES.get(verdict["kind"], rank_ended)(verdict["text"])
    return RankLink(sock, verdict["text"], keys_of(sock, secret, nonce + own, (b"up", b"down")))


def keys_of(
    sock: socket.socket, secret: bytes, nonces: bytes, directions: tuple[bytes, bytes]
) -> tuple[bytes, bytes] | None:
    """Return the keys of frames that are sent and received; None if they are not signed."""
    if not secret or sock.family == socket.AF_UNIX:
        return None
    sent, received = directions
    return mark_of(secret, sent + nonces, b""), mark_of(secret, received + nonces, b"")


def own_name() -> str:
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


def mark_of(secret: bytes, label: bytes, data: bytes) -> bytes:
    """Return the mark of data; one made under another label does not fit."""
    return hmac.digest(secret, label + data, "sha256")


def signed(secret: bytes, label: bytes, content: Mapping[str, Any]) -> bytes:
    """Return JSON with its length before and its mark behind it."""
    data = json.dumps(content).encode()
    return LENGTH.pack(len(data)) + data + mark_of(secret, label, data)
