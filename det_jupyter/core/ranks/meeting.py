"""Where the ranks of a job connect with each other, and how a process finds out its job.

The address:

    in an experiment            a unix socket beside the gang's store (a 0700 folder)
    outside, one computer       a unix socket in a 0700 folder of the user, named by job and port
    outside, with force_tcp     chief_ip or 127.0.0.1, and the port; a secret in that folder
    outside, several computers  chief_ip and the port: a network that you trust, unless you set
                                DET_JUPYTER_SECRET to the same long random word on all of them

A job is named by something that its ranks share and no other job has:

    a secret      random; brought to the ranks by mpi4py or the store of torch's process group
    a run         the launcher's name of it, if the launcher has started as many ranks
    the parent    the process that started the ranks, with MASTER_PORT. Rank 0 may have started
                  the others

Ranks on several computers have no common parent: without a secret or a run their job has no name,
and only `chief_ip` and the port bring them together.
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

import psutil

from det_jupyter.contract.host.ownership import make_private, open_own
from det_jupyter.contract.host.processes import birth_of
from det_jupyter.contract.host.rundir import SECRET_VARIABLE, STORE_VARIABLE
from det_jupyter.core.ranks.claim import members_at, owners_beside
from det_jupyter.core.ranks.rank_info import RankInfo

# By launcher: the variables that name its run, and the one with the number of its ranks.
_RUNS = {
    "torchrun": (
        ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"),
        "WORLD_SIZE",
    ),
    "PMIx": (("PMIX_NAMESPACE",), ""),  # Open MPI and others; a name is used only once
    "mpirun": (("PMI_JOBID", "HYDRA_LAUNCHER_JOBID"), "PMI_SIZE"),
    "horovodrun": (
        ("HOROVOD_GLOO_RENDEZVOUS_PORT", "HOROVOD_GLOO_RENDEZVOUS_ADDR"),
        "HOROVOD_SIZE",
    ),
    "srun": (("SLURM_STEP_ID", "SLURM_JOB_ID"), "SLURM_STEP_NUM_TASKS"),
}


@dataclass(frozen=True, slots=True)
class Job:
    """The identity of a process's job.

    Args:
        key: The same on all ranks of the job, and on no other; empty if nothing names the job.
        key_of_children: The key of ranks that this process has started; empty unless jobs are
            named by the parent.
        origin: What the key is derived from, for messages: "started by pid 7 (bash)".
    """

    key: str = ""
    key_of_children: str = ""
    origin: str = ""

    @classmethod
    def of_secret(cls, word: bytes) -> Job:
        """Return the job of the ranks that have this secret."""
        return cls(f"word {hashlib.sha256(word).hexdigest()}", "", "with a secret of its own")

    @property
    def is_by_parent(self) -> bool:
        return bool(self.key_of_children)

    def includes(self, key: str) -> bool:
        """Return whether a rank with this key belongs to the chief whose job this is."""
        return key == self.key or (self.is_by_parent and key == self.key_of_children)


def find_job(info: RankInfo, variables: Mapping[str, str]) -> Job:
    """Return the job by the launcher's variables, or else by the parent process."""
    for launcher, (names, size) in _RUNS.items():
        if names[0] in variables and (not size or variables.get(size) == str(info.size)):
            run = " ".join(variables.get(name, "-") for name in names)
            return Job(f"{launcher} {run}", "", f"of {launcher}'s run {run}")
    if info.local_size != info.size:
        return Job()
    parent, port = os.getppid(), variables.get("MASTER_PORT", "-")
    own = _key_of_parent(os.getpid(), port)
    return Job(_key_of_parent(parent, port), own, f"started by {_process_name(parent)}")


def _key_of_parent(pid: int, port: str) -> str:
    birth = birth_of(pid) if pid else None
    return f"process {socket.gethostname()} {pid} {birth}, port {port}"


def _process_name(pid: int) -> str:
    try:
        return f"pid {pid} ({psutil.Process(pid).name()})"
    except psutil.Error:
        return f"pid {pid}"


PORT = 12360  # Determined's port


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the ranks of a job connect.

    Args:
        address: Path of a unix socket, or host and port.
        secret: Shared by these ranks only; empty if there is none.
        job: Ranks of another job are refused.
        alias: Path of a link to the socket, for ranks that the chief has started itself: they
            compute another address, since their parent is another one.
        claim: File that the chief locks while its context is open (claim.py).
    """

    address: Path | tuple[str, int]
    secret: bytes = field(default=b"", repr=False)
    job: Job = field(default_factory=Job)
    alias: Path | None = None
    claim: Path | None = None

    def __str__(self) -> str:
        if isinstance(self.address, Path):
            return str(self.address)
        return "{}:{}".format(*self.address)

    def hint(self) -> str:
        """Return what to check when ranks do not connect, and which other chiefs wait."""
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
        """Return where the ranks of one computer connect with each other.

        Args:
            cross_rank: Index of the computer.
            word: Random, the same on all ranks of the job.
        """
        folder = self.address.parent if isinstance(self.address, Path) else _private_folder()
        return Meeting(folder / f"ranks-{word}-{cross_rank}", self.secret)


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What the chief has chosen, and sent to all ranks through the store of torch's group."""

    secret: bytes
    port: int


def choose_meeting(
    info: RankInfo,
    variables: Mapping[str, str],
    *,
    chief_ip: str | None = None,
    port: int | None = None,
    force_tcp: bool = False,
    store: str | None = None,
    secret: bytes | None = None,
    exchanged: Exchanged | None = None,
) -> Meeting:
    """Return where these ranks connect; the same on all of them if the arguments are the same.

    Args:
        info: Rank and sizes of this process.
        variables: The environment.
        chief_ip: Address of the computer of rank 0; required for several computers.
        port: The port; by default that of `exchanged`, or 12360.
        force_tcp: Whether to use a port on one computer too.
        store: See DistributedContext.
        secret: See DistributedContext.
        exchanged: A secret and a port from torch's process group; None if there is no group.

    Raises:
        ValueError: `chief_ip` is needed and missing, or the port is out of range.
        DetError: Another user can access the folder for the sockets.
    """
    if port is None:
        port = exchanged.port if exchanged else PORT
    if not 0 < port < 65536:
        raise ValueError(f"distributed: pub_port + port_offset: got {port}, expected 1 to 65535")
    job_secret = secret or (exchanged.secret if exchanged else b"")
    job = Job.of_secret(job_secret) if job_secret else find_job(info, variables)
    if secret is None:
        secret = secret_of(variables) or job_secret
    if store := store or variables.get(STORE_VARIABLE):
        return Meeting(Path(f"{store}-ranks"), secret)
    claim = None if job_secret else _private_folder() / f"{_file_name(job.key, port, info)}.claim"
    if info.local_size != info.size:
        if not chief_ip:
            raise ValueError(
                f"distributed: chief_ip is missing: {info.size} ranks, of which "
                f"{info.local_size} {'is' if info.local_size == 1 else 'are'} on this computer, "
                f"meet at port {port} of the computer of rank 0; give its address as chief_ip"
            )
        return Meeting((chief_ip, port), secret, job, claim=claim)
    if force_tcp:
        address = (chief_ip or "127.0.0.1", port)
        return Meeting(address, secret or _secret_of_user(), job, claim=claim)
    alias = _file_name(job.key_of_children, port, info) if job.is_by_parent else None
    folder = _private_folder()
    return Meeting(
        folder / _file_name(job.key, port, info),
        secret,
        job,
        folder / alias if alias else None,
        claim,
    )


def secret_of(variables: Mapping[str, str]) -> bytes:
    """Return the secret of DET_JUPYTER_SECRET; empty if it is not set."""
    word = variables.get(SECRET_VARIABLE, "")
    try:
        return bytes.fromhex(word)
    except ValueError:
        return word.encode()


def _file_name(key: str, port: int, info: RankInfo) -> str:
    words = [key, str(port), str(info.size), socket.gethostname()]
    return f"ranks-{hashlib.sha256(chr(0).join(words).encode()).hexdigest()[:16]}"


def _private_folder() -> Path:
    """Return a folder on this computer that other users cannot access; create it if missing."""
    folder = Path(tempfile.gettempdir()).resolve() / f"det_jupyter-{os.getuid()}"
    make_private(folder, "set TMPDIR to a folder of your own, for all ranks")
    return folder


def _secret_of_user() -> bytes:
    """Return a secret that all processes of this user on this computer share."""
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
