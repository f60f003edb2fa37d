"""How the ranks of a job connect: the chief accepts a connection from each other rank.

The chief listens only until all ranks are connected. Each rank proves that it has the secret
before its data is parsed, and the chief proves the same to it (handshake.py). Ranks of another job
are refused, and so is a second chief at the address of a running job (claim.py).
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

from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.core.ranks.claim import Claim, contest
from det_jupyter.core.ranks.handshake import ChiefHandshake, introduce, process_name
from det_jupyter.core.ranks.link import RankLink
from det_jupyter.core.ranks.meeting import Meeting
from det_jupyter.core.ranks.rank_info import RankInfo
from det_jupyter.core.ranks.star import StarExchange
from det_jupyter.errors import LaunchError, WaitTimeout

logger = logging.getLogger(__name__)

_MAX_PATH_BYTES = 100  # most bytes for a unix socket; systems allow 104 to 108
_POLL_S = 0.005
# The chief does not listen yet; or that of a former job does not listen any more.
_NOT_LISTENING = (ConnectionError, FileNotFoundError, EOFError, BlockingIOError)
_CONTEST_S = 0.5  # how long a rank waits for rank 0 before it checks whether to contest a claim
_QUIET_S = 30.0  # how long a rank waits for rank 0 before it logs a warning
_OTHER_CHIEF_S = 3.0  # how long a chief waits for the answer of another one at its address


def connect(
    meeting: Meeting,
    info: RankInfo,
    *,
    join_s: float,
    wait_s: float,
    ranks: Sequence[int] | None = None,
) -> StarExchange:
    """Connect the ranks and return the collectives of the group. Collective.

    Args:
        meeting: Where the ranks connect.
        info: This process's rank and the size of the group.
        ranks: The numbers of the ranks in messages; by default 0 to size - 1.
        join_s: How long to wait until all are connected.
        wait_s: How long each collective waits.

    Raises:
        LaunchError: Another running job uses this address.
        ValueError, WaitTimeout, PeerRefused, RankEnded, DistNetworkError: See `meet`.
    """
    with ExitStack() as held:
        claim, check = None, None
        if meeting.claim is not None and info.rank == 0:
            claim = _claim(meeting, info, meeting.claim)
            held.callback(claim.release)
        links = meet(meeting, info, timeout_s=join_s)
        if claim is not None:
            others = [link for link in links if link is not None]
            names = [f"rank 0 ({process_name()})", *(link.name for link in others)]
            processes = [link.process for link in others if link.process is not None]
            claim.store_members(", ".join(names), [ProcessIdentity.of(os.getpid()), *processes])
            if info.local_size == info.size:
                check = claim.check
        if ranks is None:
            ranks = range(info.size)
        return StarExchange(links, info.rank, ranks, wait_s, held.pop_all().close, check)


def _claim(meeting: Meeting, info: RankInfo, path: Path) -> Claim:
    owner = f"rank 0 of {info.size} ({process_name()}), {meeting.job.origin}".rstrip(", ")
    try:
        return Claim.of(path, owner)
    except LaunchError:
        _raise_at_other_chief(meeting, info)  # if another chief waits there, both have to fail
        _contest(meeting, info)
        raise


def _contest(meeting: Meeting, info: RankInfo) -> None:
    """Contest the claim of ranks that are connected without this one; see `contest`."""
    if meeting.claim is not None and info.local_size == info.size:
        contest(meeting.claim, f"rank {info.rank} of {info.size} ({process_name()})")


def meet(meeting: Meeting, info: RankInfo, *, timeout_s: float) -> list[RankLink | None]:
    """Connect the chief with each other rank. Collective.

    Returns:
        The links of this process by the rank that they lead to; None where there is no connection.

    Raises:
        ValueError: Ranks or sizes contradict each other; raised on all connected ranks.
        WaitTimeout: Ranks have not connected in time; the message names them.
        PeerRefused: This process and the other side do not have the same secret or job.
        RankEnded, DistNetworkError: A connected rank has ended (link.py).
        LaunchError: The chief cannot listen at the address.
    """
    deadline = time.monotonic() + timeout_s
    if info.rank == 0:
        links = _accept_ranks(meeting, info, deadline, timeout_s)
    else:
        links = {0: _connect_to_chief(meeting, info, deadline, timeout_s)}
    return [links.get(rank) for rank in range(info.size)]


def _accept_ranks(
    meeting: Meeting, info: RankInfo, deadline: float, timeout_s: float
) -> dict[int, RankLink]:
    try:
        listener = _listen(meeting, info)
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
        return ChiefHandshake(listener, info, meeting, deadline, timeout_s).admit_all()
    finally:
        listener.close()
        if isinstance(meeting.address, Path):
            meeting.address.unlink(missing_ok=True)
            if meeting.alias is not None:
                meeting.alias.unlink(missing_ok=True)


def _listen(meeting: Meeting, info: RankInfo) -> socket.socket:
    """Return a socket that listens at the address.

    Raises:
        ValueError: Another process of this job with rank 0 listens there.
        OSError: The address cannot be used.
    """
    listener = _socket(meeting)
    try:
        with _shortened(meeting.address) as address:
            try:
                listener.bind(address)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                _raise_at_other_chief(meeting, info)
                if isinstance(address, str):
                    os.unlink(address)  # left by a chief that was killed
                listener.bind(address)
        listener.listen(info.size + 64)
        listener.setblocking(False)
        if meeting.alias is not None and isinstance(meeting.address, Path):
            meeting.alias.unlink(missing_ok=True)  # left by a chief that was killed
            meeting.alias.symlink_to(meeting.address.name)
    except BaseException:  # an interrupt too: the socket is closed
        listener.close()
        raise
    return listener


def _raise_at_other_chief(meeting: Meeting, info: RankInfo) -> None:
    """Introduce this process to a chief at the same address, so that both raise an error.

    Returns if no process answers there, or not any more because its ranks have just connected.

    Raises:
        ValueError: The other chief is of the same job.
        PeerRefused: The other chief is of another job.
    """
    deadline = time.monotonic() + _OTHER_CHIEF_S
    # RuntimeError is raised by `rank_ended`.
    refused = suppress(ConnectionError, FileNotFoundError, TimeoutError, EOFError, RuntimeError)
    with refused, closing(_open_connection(meeting)) as sock:
        introduce(sock, info, meeting, deadline)


def _connect_to_chief(
    meeting: Meeting, info: RankInfo, deadline: float, timeout_s: float
) -> RankLink:
    """Return the link to the chief, once all ranks are connected."""
    contests_at = time.monotonic() + _CONTEST_S
    warns_at = time.monotonic() + _QUIET_S
    while True:
        with suppress(*_NOT_LISTENING):
            sock = _open_connection(meeting)
            try:
                return introduce(sock, info, meeting, deadline)
            except BaseException:  # an interrupt too: the socket is closed
                sock.close()
                raise
        now = time.monotonic()
        if now > contests_at:
            contests_at = now + _CONTEST_S
            _contest(meeting, info)
        text = f"distributed: rank 0 of {info.size} has not come to {meeting}"
        if now > deadline:
            raise WaitTimeout(
                f"{text} within {timeout_s:g} s; rank {info.rank} waits for it there. "
                f"{meeting.hint()}"
            )
        if now > warns_at:
            warns_at = deadline
            left_s = deadline - now
            logger.warning("%s yet. %s (waiting for %.0f s more)", text, meeting.hint(), left_s)
        time.sleep(_POLL_S)


def _open_connection(meeting: Meeting) -> socket.socket:
    sock = _socket(meeting)
    try:
        sock.settimeout(5)
        with _shortened(meeting.address) as address:
            sock.connect(address)
    except BaseException:  # an interrupt too: the socket is closed
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
def _shortened(address: Path | tuple[str, int]) -> Iterator[str | tuple[str, int]]:
    """Yield the address for bind or connect: too long a path by the descriptor of its folder."""
    if not isinstance(address, Path) or len(os.fsencode(address)) <= _MAX_PATH_BYTES:
        yield str(address) if isinstance(address, Path) else address
        return
    folder = os.open(address.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{address.name}"
    finally:
        os.close(folder)
