"""How ranks meet: the chief waits for all others, and all check each other.

The chief listens only until all have come. Each rank proves that it knows the secret before its
words are read, and the chief proves the same to it (handshake.py has the format). Ranks of another
job are refused, and so is a job with the name of one that lives (claim.py).
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from det_jupyter.core.ranks.claim import Claim, Started, contest
from det_jupyter.core.ranks.handshake import introduce, own_name
from det_jupyter.core.ranks.host import Host
from det_jupyter.core.ranks.link import RankLink
from det_jupyter.core.ranks.meeting import Meeting
from det_jupyter.core.ranks.place import Place
from det_jupyter.core.ranks.star import StarExchange
from det_jupyter.errors import LaunchError, WaitTimeout

logger = logging.getLogger(__name__)

_LONGEST_PATH = 100  # of a socket, in bytes; the system's limit is 104 to 108
_POLL_S = 0.005
# The chief does not listen yet, or not any more: a job before this one.
_NOT_THERE = (ConnectionError, FileNotFoundError, EOFError, BlockingIOError)
_LOOK_S = 0.5  # of waiting for rank 0, before it is seen whether others have met it
_QUIET_S = 30.0  # of the same, before it is logged
_OTHER_CHIEF_S = 3.0  # for its answer, if a process listens at our place already


def connect(
    meeting: Meeting,
    place: Place,
    *,
    join_s: float,
    wait_s: float,
    ranks: Sequence[int] | None = None,
) -> StarExchange:
    """Return collectives of the ranks that meet there. Collective.

    Args:
        ranks: What messages call them; by default as they are numbered.
        join_s: How long to wait until all have come.
        wait_s: How long a collective waits.

    Raises:
        LaunchError: Another job that lives has this place.
        ValueError, WaitTimeout, PeerRefused, RankEnded, DistNetworkError: See `meet`.
    """
    with ExitStack() as held:
        claim, check = None, _nothing
        if meeting.claim is not None and place.rank == 0:
            claim = _claim(meeting, place, meeting.claim)
            held.callback(claim.release)
        links = meet(meeting, place, timeout_s=join_s)
        if claim is not None:
            others = [link for link in links if link is not None]
            names = [f"rank 0 ({own_name()})", *(link.name for link in others)]
            started = [Started.own(), *(link.started for link in others if link.started)]
            claim.tell(", ".join(names), started)
            if place.local_size == place.size:
                check = claim.check
        if ranks is None:
            ranks = range(place.size)
        return StarExchange(links, place.rank, ranks, wait_s, held.pop_all().close, check)


def _nothing() -> None:
    pass


def _claim(meeting: Meeting, place: Place, path: Path) -> Claim:
    owner = f"rank 0 of {place.size} ({own_name()}), {meeting.job.origin}".rstrip(", ")
    try:
        return Claim.of(path, owner)
    except LaunchError:
        _ask_other_chief(meeting, place)  # if it waits: it has to fail, too
        _contest(meeting, place)
        raise


def _contest(meeting: Meeting, place: Place) -> None:
    """Contest the claim of ranks that have met without this one, if they may be of two jobs."""
    if meeting.claim is not None and place.local_size == place.size:
        contest(meeting.claim, f"rank {place.rank} of {place.size} ({own_name()})")


def meet(meeting: Meeting, place: Place, *, timeout_s: float) -> list[RankLink | None]:
    """Connect the ranks: the chief with each, the others with the chief. Collective.

    Returns:
        By rank, the connections of this one; None where there is none.

    Raises:
        ValueError: The ranks do not fit together; raised on all that have come.
        WaitTimeout: Ranks have not come in time; the message names them.
        PeerRefused: This process, or what it has met, does not know the secret, or is of another
            job.
        RankEnded, DistNetworkError: A rank that had come has ended (ended.py).
        LaunchError: Nothing can listen there.
    """
    deadline = time.monotonic() + timeout_s
    if place.rank == 0:
        links = _host(meeting, place, deadline, timeout_s)
    else:
        links = {0: _visit(meeting, place, deadline, timeout_s)}
    return [links.get(rank) for rank in range(place.size)]


def _host(
    meeting: Meeting, place: Place, deadline: float, timeout_s: float
) -> dict[int, RankLink]:
    try:
        listener = _listen(meeting, place)
    except OSError as error:
        problem = (
            "another program does (another job, or a second process with rank 0); give all ranks "
            "another pub_port, or end that program"
            if error.errno == errno.EADDRINUSE
            else f"{error.strerror}; chief_ip has to be an address of the computer that rank 0 is "
            "on"
        )
        raise LaunchError(
            f"distributed: rank 0 cannot wait for the others at {meeting}: {problem}"
        ) from None
    try:
        return Host(listener, place, meeting, deadline, timeout_s).receive_all()
    finally:
        listener.close()
        if isinstance(meeting.address, Path):
            meeting.address.unlink(missing_ok=True)
            if meeting.also is not None:
                meeting.also.unlink(missing_ok=True)


def _listen(meeting: Meeting, place: Place) -> socket.socket:
    """Return a listening socket; the address is free again once the host has closed it.

    A ValueError: another process with rank 0 listens there.
    """
    listener = _socket(meeting)
    try:
        with _usable(meeting.address) as address:
            try:
                listener.bind(address)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                _ask_other_chief(meeting, place)
                if isinstance(address, str):
                    os.unlink(address)  # of a chief that was killed
                listener.bind(address)
        listener.listen(place.size + 64)
        listener.setblocking(False)
        if meeting.also is not None and isinstance(meeting.address, Path):
            meeting.also.unlink(missing_ok=True)  # of a chief that was killed
            meeting.also.symlink_to(meeting.address.name)
    except BaseException:
        listener.close()
        raise
    return listener


def _ask_other_chief(meeting: Meeting, place: Place) -> None:
    """Return if no process answers at our place, or not any more: its ranks have just met."""
    deadline = time.monotonic() + _OTHER_CHIEF_S
    # A RuntimeError is of `rank_ended`.
    refused = suppress(ConnectionError, FileNotFoundError, TimeoutError, EOFError, RuntimeError)
    with refused, closing(_connect(meeting)) as sock:
        introduce(sock, place, meeting, deadline)


def _visit(meeting: Meeting, place: Place, deadline: float, timeout_s: float) -> RankLink:
    """Return the connection with the chief, once all have come."""
    looks_at = time.monotonic() + _LOOK_S
    warns_at = time.monotonic() + _QUIET_S
    while True:
        with suppress(*_NOT_THERE):
            sock = _connect(meeting)
            try:
                return introduce(sock, place, meeting, deadline)
            except BaseException:
                sock.close()
                raise
        now = time.monotonic()
        if now > looks_at:
            looks_at = now + _LOOK_S
            _contest(meeting, place)
        text = f"distributed: rank 0 of {place.size} has not come to {meeting}"
        if now > deadline:
            raise WaitTimeout(
                f"{text} within {timeout_s:g} s; rank {place.rank} waits for it there. "
                f"{meeting.advice()}"
            )
        if now > warns_at:
            warns_at = deadline
            left_s = deadline - now
            logger.warning("%s yet. %s (waiting for %.0f s more)", text, meeting.advice(), left_s)
        time.sleep(_POLL_S)


def _connect(meeting: Meeting) -> socket.socket:
    sock = _socket(meeting)
    try:
        sock.settimeout(5)
        with _usable(meeting.address) as address:
            sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


def _socket(meeting: Meeting) -> socket.socket:
    if isinstance(meeting.address, Path):
        return socket.socket(socket.AF_UNIX)
    host, port = meeting.address
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except socket.gaierror as error:
        raise ValueError(
            f"distributed: chief_ip: got {host!r}, which is not found ({error.strerror})"
        ) from None
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return sock


@contextmanager
def _usable(address: Path | tuple[str, int]) -> Iterator[str | tuple[str, int]]:
    """Yield the address as a socket takes it: paths of sockets are short."""
    if not isinstance(address, Path) or len(os.fsencode(address)) <= _LONGEST_PATH:
        yield str(address) if isinstance(address, Path) else address
        return
    folder = os.open(address.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{address.name}"
    finally:
        os.close(folder)
