"""Where ranks meet: the chief waits for all others, and all check each other.

    in an experiment            a socket beside the gang's store (a 0700 folder); its secret
    outside, one computer       a socket in a 0700 folder of the user's, named after the job
    outside, with force_tcp     chief_ip or 127.0.0.1, and the port; a secret in that folder
    outside, several computers  chief_ip and the port: a network that you trust, unless you set
                                DET_JUPYTER_SECRET to the same long random word on all of them

The chief listens only until all have come. Each rank proves that it knows the secret before its
words are read, and the chief proves the same to it (handshake.py has the format).
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from det_jupyter.core.ranks.handshake import introduce
from det_jupyter.core.ranks.host import Host
from det_jupyter.core.ranks.link import Link
from det_jupyter.core.ranks.place import Place
from det_jupyter.errors import LaunchError, WaitTimeout
from det_jupyter.system.ownership import make_private, open_own
from det_jupyter.system.rundir import SECRET_VARIABLE, STORE_VARIABLE

PORT = 12360  # Determined's
# In these launchers name the job, so that jobs at one time have different sockets.
_JOB_VARIABLES = (
    "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
    "PMIX_NAMESPACE", "PMI_JOBID", "HYDRA_LAUNCHER_JOBID", "SLURM_JOB_ID", "SLURM_STEP_ID",
)  # fmt: skip
_LONGEST_PATH = 100  # of a socket, in bytes; the system's limit is 104 to 108
_POLL_S = 0.005
# The chief does not listen yet, or not any more: a job before this one.
_NOT_THERE = (ConnectionError, FileNotFoundError, EOFError, BlockingIOError)
_OTHER_CHIEF_S = 3.0  # for its answer, if a process listens at our place already


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where ranks meet.

    Args:
        address: Path of a socket, or host and port.
        secret: Known to these ranks only; empty if there is none.
    """

    address: Path | tuple[str, int]
    secret: bytes = field(default=b"", repr=False)

    def __str__(self) -> str:
        if isinstance(self.address, Path):
            return str(self.address)
        return "{}:{}".format(*self.address)

    def local(self, cross_rank: int) -> Meeting:
        """Return where the ranks of one computer meet."""
        if isinstance(self.address, Path):
            return Meeting(Path(f"{self.address}-{cross_rank}"), self.secret)
        name = _job_name(os.environ, f"{self}", socket.gethostname(), f"{cross_rank}")
        return Meeting(_private_folder() / name, self.secret)


def choose_meeting(
    place: Place,
    variables: Mapping[str, str],
    *,
    chief_ip: str | None = None,
    port: int = PORT,
    force_tcp: bool = False,
    store: str | None = None,
    secret: bytes | None = None,
) -> Meeting:
    """Return where these ranks meet; all of them get the same, from the same arguments.

    Raises:
        ValueError: `chief_ip` is needed and missing, or an argument is not of its form.
        DetError: Another user could get at the folder for our sockets.
    """
    if not 0 < port < 65536:
        raise ValueError(f"distributed: pub_port + port_offset: got {port}, expected 1 to 65535")
    if secret is None:
        secret = secret_of(variables)
    if store := store or variables.get(STORE_VARIABLE):
        return Meeting(Path(f"{store}-ranks"), secret)
    if place.local_size != place.size:
        if not chief_ip:
            raise ValueError(
                f"distributed: chief_ip is missing: {place.size} ranks, of which "
                f"{place.local_size} {'is' if place.local_size == 1 else 'are'} on this computer, "
                f"meet at port {port} of the computer of rank 0; give its address as chief_ip"
            )
        return Meeting((chief_ip, port), secret)
    if force_tcp:
        return Meeting((chief_ip or "127.0.0.1", port), secret or _secret_of_user())
    name = _job_name(variables, secret.hex(), str(port), str(place.size), socket.gethostname())
    return Meeting(_private_folder() / name, secret)


def secret_of(variables: Mapping[str, str]) -> bytes:
    """Return the secret of DET_JUPYTER_SECRET; empty if it is not set."""
    word = variables.get(SECRET_VARIABLE, "")
    try:
        return bytes.fromhex(word)
    except ValueError:
        return word.encode()


def _job_name(variables: Mapping[str, str], *words: str) -> str:
    job = "\0".join([*words, *(variables.get(name, "") for name in _JOB_VARIABLES)])
    return f"ranks-{hashlib.sha256(job.encode()).hexdigest()[:16]}"


def _private_folder() -> Path:
    """Return a folder on this computer that other users cannot enter."""
    folder = Path(tempfile.gettempdir()).resolve() / f"det_jupyter-{os.getuid()}"
    make_private(folder, "set TMPDIR to a folder of your own, for all ranks")
    return folder


def _secret_of_user() -> bytes:
    """Return a secret that the user's processes on this computer share."""
    path = _private_folder() / "secret"
    scratch = path.with_name(f".secret-{secrets.token_hex(8)}")
    while True:
        with suppress(FileNotFoundError), os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
            return file.read()
        with os.fdopen(open_own(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(secrets.token_bytes(32))
        with suppress(FileExistsError):  # another rank was first
            os.link(scratch, path)
        scratch.unlink()


def meet(meeting: Meeting, place: Place, *, timeout_s: float) -> list[Link | None]:
    """Connect the ranks: the chief with each, the others with the chief. Collective.

    Returns:
        By rank, the connections of this one; None where there is none.

    Raises:
        ValueError: The ranks do not fit together; raised on all that have come.
        WaitTimeout: Ranks have not come in time; the message names them.
        PeerRefused: This process, or what it has met, does not know the secret.
        RankEnded, DistNetworkError: A rank that had come has ended (ended.py).
        LaunchError: Nothing can listen there.
    """
    deadline = time.monotonic() + timeout_s
    if place.rank == 0:
        links = _host(meeting, place, deadline, timeout_s)
    else:
        links = {0: _visit(meeting, place, deadline, timeout_s)}
    return [links.get(rank) for rank in range(place.size)]


def _host(meeting: Meeting, place: Place, deadline: float, timeout_s: float) -> dict[int, Link]:
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
        host = Host(listener, place, meeting.secret, str(meeting), deadline, timeout_s)
        return host.receive_all()
    finally:
        listener.close()
        if isinstance(meeting.address, Path):
            meeting.address.unlink(missing_ok=True)


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
    except BaseException:
        listener.close()
        raise
    return listener


def _ask_other_chief(meeting: Meeting, place: Place) -> None:
    """Return if no process answers at our place."""
    deadline = time.monotonic() + _OTHER_CHIEF_S
    refused = suppress(ConnectionRefusedError, FileNotFoundError, TimeoutError, EOFError)
    with refused, closing(_connect(meeting)) as sock:
        introduce(sock, place, meeting.secret, deadline, str(meeting))


def _visit(meeting: Meeting, place: Place, deadline: float, timeout_s: float) -> Link:
    """Return the connection with the chief, once all have come."""
    while True:
        with suppress(*_NOT_THERE):
            sock = _connect(meeting)
            try:
                return introduce(sock, place, meeting.secret, deadline, str(meeting))
            except BaseException:
                sock.close()
                raise
        if time.monotonic() > deadline:
            raise WaitTimeout(
                f"distributed: rank 0 of {place.size} has not come to {meeting} within "
                f"{timeout_s:g} s; rank {place.rank} waits for it there. Are all ranks started, "
                "with the same chief_ip and pub_port?"
            )
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
