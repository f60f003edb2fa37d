"""The claim of a chief to a meeting place: a locked file, held as long as its context is open.

A parent may start two jobs, and a run's name may be used twice. Then the second chief fails, and
its error names the first, instead of meeting the other job's ranks. By then the first chief may
have met ranks of the second job: that may be so if a rank is left over that has been started
before one of those that have met.

    started    a0  a1       b0  b1       met: a0 a1    left over: b0 b1, later than both
               a0  b0  a1  b1            met: a0 b1    left over: b0 a1, earlier than b1

What is left over then contests the claim: it writes a file beside it, and the ranks that have met
fail in their next collective. The file stays for the others that are left over, until the next
chief takes the place. A job that is started while another one trains contests nothing.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from det_jupyter.contract.host.ownership import open_own
from det_jupyter.contract.host.processes import birth_of
from det_jupyter.errors import DetError, LaunchError, PeerRefused

logger = logging.getLogger(__name__)

_MOST_BYTES = 65536
_CONTESTED = "-contested"  # of the file beside the claim's
_held: dict[Path, Claim] = {}  # a process may make several contexts at one place


@dataclass(frozen=True, slots=True)
class Started:
    """A process, and when it was started.

    Args:
        birth: As of `birth_of`; empty if that is not known.
    """

    pid: int
    birth: str

    @classmethod
    def own(cls) -> Started:
        return cls(os.getpid(), birth_of(os.getpid()) or "")

    def is_no_later(self, other: Started) -> bool:
        """Return whether it was started before the other process, or in the same moment.

        >>> Started(1, "70@boot").is_no_later(Started(2, "71@boot"))
        True
        >>> Started(1, "70@boot").is_no_later(Started(2, "71@another computer's"))
        False
        """
        (at, _, boot), (others, _, theirs) = (each.birth.partition("@") for each in (self, other))
        return bool(at and others) and boot == theirs and float(at) <= float(others)


class Claim:
    """That of this process.

    Raises:
        LaunchError: A chief that lives has this place.
    """

    def __init__(self, path: Path, owner: str) -> None:
        self._path = path
        self._owner = owner
        self._file = _locked(path)
        self._contest = str(_contest_of(path))  # a str: it is looked for in each collective
        self._num_users = 1
        _contest_of(path).unlink(missing_ok=True)  # of a chief before this one
        self.tell("")

    @classmethod
    def of(cls, path: Path, owner: str) -> Claim:
        """Return the claim to a place; each that has got it calls `release`.

        Args:
            owner: Who this is, for messages of other processes.
        """
        if path in _held:
            _held[path]._num_users += 1
        else:
            _held[path] = cls(path, owner)
        return _held[path]

    def tell(self, members: str, started: Sequence[Started] = ()) -> None:
        """Store which ranks have met here, for messages of other processes.

        Args:
            started: The processes of these ranks.
        """
        if self._file is not None:
            facts = {**asdict(Started.own()), "started": [asdict(each) for each in started]}
            data = json.dumps({"owner": self._owner, "members": members, **facts}).encode()
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, data, 0)

    def check(self) -> None:
        """Do nothing, unless what was left over has contested the claim.

        Raises:
            PeerRefused: It has.
        """
        if os.path.exists(self._contest):
            raise PeerRefused(json.loads(Path(self._contest).read_text())["text"])

    def release(self) -> None:
        """Give the place up once all that have got this claim have released it."""
        if _held.get(self._path) is not self:  # a forked process
            return
        self._num_users -= 1
        if self._num_users:
            return
        del _held[self._path]
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._file)


def contest(path: Path, own_name: str) -> None:
    """Contest the claim if this process is left over, and the ranks that have met may be mixed.

    Args:
        own_name: Of this rank, for messages.

    Raises:
        PeerRefused: They may be.
    """
    found = _read(path) or _load(_contest_of(path))
    own = Started.own()
    members = [Started(**each) for each in found.get("started", ())]
    if own in members or not any(own.is_no_later(each) for each in members):
        return
    text = (
        f"distributed: these ranks have met: {found['members']}. {own_name} is left over, and was "
        "started before one of them: ranks of two jobs may be mixed, since nothing tells the jobs "
        "apart. Give each job a pub_port of its own (or a MASTER_PORT, with torchrun's "
        "variables), or set DET_JUPYTER_STORE for all ranks of a job to a path of its own"
    )
    facts = {name: found[name] for name in ("members", "started")}
    scratch = path.with_name(f"{path.name}-{own.pid}")
    with os.fdopen(open_own(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as file:
        json.dump({"text": text, **facts}, file)
    os.replace(scratch, _contest_of(path))
    raise PeerRefused(text)


def _contest_of(path: Path) -> Path:
    return path.with_name(path.name + _CONTESTED)


def _locked(path: Path) -> int | None:
    """Return the locked file; None where files cannot be locked."""
    while True:
        file = open_own(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.exists(path) and os.path.samestat(os.fstat(file), os.stat(path)):
                return file
        except BlockingIOError:
            os.close(file)
            owner = _read(path).get("owner", "another process")
            raise LaunchError(
                f"distributed: {owner}, has the place of this job; give this job a pub_port of "
                "its own, or start it when that one has ended"
            ) from None
        except FileNotFoundError:
            pass  # the one before has just removed it
        except OSError as error:
            os.close(file)
            logger.debug("%s cannot be locked: %s", path, error)
            return None
        os.close(file)


def members_at(path: Path) -> str:
    """Return which ranks have met at a place whose chief still lives; empty if none have."""
    members: str = _read(path).get("members", "")
    return members


def owners_beside(path: Path) -> list[str]:
    """Return the chiefs that wait at other places of this folder."""
    others = [
        _read(other) for other in sorted(path.parent.glob(f"*{path.suffix}")) if other != path
    ]
    return [found["owner"] for found in others if found and not found["members"]]


def _read(path: Path) -> dict[str, Any]:
    """Return what a chief that lives has stored; empty if there is none."""
    found = _load(path)
    return found if found and birth_of(int(found["pid"])) == found["birth"] else {}


def _load(path: Path) -> dict[str, Any]:
    """Return what a process of this user has stored; empty if there is nothing, or not yet."""
    try:
        with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
            found: dict[str, Any] = json.loads(file.read(_MOST_BYTES))
            return found
    except (OSError, DetError, ValueError):
        return {}


def _forget_in_child() -> None:
    """Leave the claims to the rank that has forked this process."""
    for claim in _held.values():
        if claim._file is not None:
            os.close(claim._file)  # the lock stays: the rank has the file open
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)
