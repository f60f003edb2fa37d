"""Where ranks meet.

    in an experiment            a socket beside the gang's store (a 0700 folder); its secret
    outside, one computer       a socket in a 0700 folder of the user's, named after job and port
    outside, with force_tcp     chief_ip or 127.0.0.1, and the port; a secret in that folder
    outside, several computers  chief_ip and the port: a network that you trust, unless you set
                                DET_JUPYTER_SECRET to the same long random word on all of them

job.py says what names a job.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from det_jupyter.contract.host.ownership import make_private, open_own
from det_jupyter.contract.host.rundir import SECRET_VARIABLE, STORE_VARIABLE
from det_jupyter.core.ranks.claim import members_at, owners_beside
from det_jupyter.core.ranks.job import Job, find_job
from det_jupyter.core.ranks.place import Place

PORT = 12360  # Determined's


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where ranks meet.

    Args:
        address: Path of a socket, or host and port.
        secret: Known to these ranks only; empty if there is none.
        job: Ranks of another are refused.
        also: Path where the ranks look that the chief has started itself.
        claim: File that the chief locks while its context is open.
    """

    address: Path | tuple[str, int]
    secret: bytes = field(default=b"", repr=False)
    job: Job = field(default_factory=Job)
    also: Path | None = None
    claim: Path | None = None

    def __str__(self) -> str:
        if isinstance(self.address, Path):
            return str(self.address)
        return "{}:{}".format(*self.address)

    def advice(self) -> str:
        """Return what to say of ranks that have not come, and who else waits."""
        text = "Are all ranks started, with the same chief_ip and pub_port?"
        if self.job.is_by_parent:
            text += (
                f" The ranks of this job are those {self.job.origin}; to have others meet, set "
                "DET_JUPYTER_STORE for all of them to the same path in a folder of yours."
            )
        if self.claim is None:
            return text
        if members := members_at(self.claim):
            text += f" Here these ranks have met: {members}."
        if owners := owners_beside(self.claim):
            text += f" At other places wait: {'; '.join(owners)}."
        return text

    def local(self, cross_rank: int, word: str) -> Meeting:
        """Return where the ranks of one computer meet; the word is of all ranks."""
        folder = self.address.parent if isinstance(self.address, Path) else _private_folder()
        return Meeting(folder / f"ranks-{word}-{cross_rank}", self.secret)


@dataclass(frozen=True, slots=True)
class Drawn:
    """What the chief has drawn for these ranks, and torch's group has brought to them."""

    word: bytes
    port: int


def choose_meeting(
    place: Place,
    variables: Mapping[str, str],
    *,
    chief_ip: str | None = None,
    port: int | None = None,
    force_tcp: bool = False,
    store: str | None = None,
    secret: bytes | None = None,
    drawn: Drawn | None = None,
) -> Meeting:
    """Return where these ranks meet; all of them get the same, from the same arguments.

    Args:
        port: 12360 by default, or the one that was drawn.

    Raises:
        ValueError: `chief_ip` is needed and missing, or an argument is not of its form.
        DetError: Another user could get at the folder for our sockets.
    """
    if port is None:
        port = drawn.port if drawn else PORT
    if not 0 < port < 65536:
        raise ValueError(f"distributed: pub_port + port_offset: got {port}, expected 1 to 65535")
    word = secret or (drawn.word if drawn else b"")
    job = Job.of_word(word) if word else find_job(place, variables)
    if secret is None:
        secret = secret_of(variables) or word
    if store := store or variables.get(STORE_VARIABLE):
        return Meeting(Path(f"{store}-ranks"), secret)
    claim = None if word else _private_folder() / f"{_name(job.key, port, place)}.claim"
    if place.local_size != place.size:
        if not chief_ip:
            raise ValueError(
                f"distributed: chief_ip is missing: {place.size} ranks, of which "
                f"{place.local_size} {'is' if place.local_size == 1 else 'are'} on this computer, "
                f"meet at port {port} of the computer of rank 0; give its address as chief_ip"
            )
        return Meeting((chief_ip, port), secret, job, claim=claim)
    if force_tcp:
        address = (chief_ip or "127.0.0.1", port)
        return Meeting(address, secret or _secret_of_user(), job, claim=claim)
    also = _name(job.key_of_children, port, place) if job.is_by_parent else None
    folder = _private_folder()
    return Meeting(
        folder / _name(job.key, port, place), secret, job, folder / also if also else None, claim
    )


def secret_of(variables: Mapping[str, str]) -> bytes:
    """Return the secret of DET_JUPYTER_SECRET; empty if it is not set."""
    word = variables.get(SECRET_VARIABLE, "")
    try:
        return bytes.fromhex(word)
    except ValueError:
        return word.encode()


def _name(key: str, port: int, place: Place) -> str:
    words = [key, str(port), str(place.size), socket.gethostname()]
    return f"ranks-{hashlib.sha256(chr(0).join(words).encode()).hexdigest()[:16]}"


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
