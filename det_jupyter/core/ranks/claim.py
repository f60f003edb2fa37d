"""The claim of a chief to an address: a file that it keeps locked while its context is open.

A parent process may start two jobs that choose the same address, and the name of a run may be used
twice. Then the second chief raises an error that names the first, so that it does not connect to
ranks of the first job. But ranks of the second job may have connected to the first chief by then.
That is possible if an unconnected rank was started before one of the connected ones:

    started    a0  a1       b0  b1       connected: a0 a1    unconnected: b0 b1, later than both
               a0  b0  a1  b1            connected: a0 b1    unconnected: b0 a1, earlier than b1

In the second case the unconnected rank contests the claim: it writes a file beside the claim, and
the connected ranks raise an error in their next collective. The file stays, for the other
unconnected ranks to read, until the next chief claims the address. A job that is started while
another one trains contests nothing.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from det_jupyter.contract.host.ownership import open_own
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.errors import DetError, LaunchError, PeerRefused

logger = logging.getLogger(__name__)

_MOST_BYTES = 65536
_CONTESTED = "-contested"  # the suffix of the file beside the claim
_held: dict[Path, Claim] = {}  # a process may open several contexts at one address


class Claim:
    """This process's claim to an address.

    Raises:
        LaunchError: Another running chief holds it.
    """

    def __init__(self, path: Path, owner: str) -> None:
        self._path = path
        self._owner = owner
        self._file = _open_locked(path)
        self._contest = str(_contest_of(path))  # a str is faster: each collective looks for it
        self._num_users = 1
        _contest_of(path).unlink(missing_ok=True)  # left by a former chief
        self.store_members("")

    @classmethod
    def of(cls, path: Path, owner: str) -> Claim:
        """Return the claim to an address; each caller has to call `release` later.

        Args:
            path: The claim's file.
            owner: Description of this rank and job, for error messages of other processes.
        """
        if path in _held:
            _held[path]._num_users += 1
        else:
            _held[path] = cls(path, owner)
        return _held[path]

    def store_members(self, members: str, processes: Sequence[ProcessIdentity] = ()) -> None:
        """Store in the file which ranks have connected, for other processes to read.

        Args:
            members: Their names, for error messages.
            processes: Their processes.
        """
        if self._file is not None:
            own = asdict(ProcessIdentity.of(os.getpid()))
            started = [asdict(process) for process in processes]
            content = {"owner": self._owner, "members": members, **own, "started": started}
            data = json.dumps(content).encode()
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, data, 0)

    def check(self) -> None:
        """Check that no unconnected rank has contested the claim.

        Raises:
            PeerRefused: Such a rank has contested it.
        """
        if os.path.exists(self._contest):
            raise PeerRefused(json.loads(Path(self._contest).read_text())["text"])

    def release(self) -> None:
        """Remove the file and its lock once every caller of `of` has called this."""
        if _held.get(self._path) is not self:  # in a forked process
            return
        self._num_users -= 1
        if self._num_users:
            return
        del _held[self._path]
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._file)


def contest(path: Path, own_name: str) -> None:
    """Contest the claim if the ranks that have connected may be of two jobs.

    Called by a rank that is not connected yet. Returns if this rank is one of the connected ones,
    or was started later than all of them.

    Args:
        path: The claim's file.
        own_name: Description of this rank, for the error message.

    Raises:
        PeerRefused: They may be of two jobs.
    """
    found = _read(path) or _load(_contest_of(path))
    own = ProcessIdentity.of(os.getpid())
    members = [ProcessIdentity(**each) for each in found.get("started", ())]
    if own in members or not any(own.started_no_later_than(each) for each in members):
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


def _open_locked(path: Path) -> int | None:
    """Return the descriptor of the locked file; None on a file system without locks.

    Raises:
        LaunchError: Another process holds the lock.
    """
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
            pass  # the former owner has just removed the file
        except OSError as error:
            os.close(file)
            logger.debug("%s cannot be locked: %s", path, error)
            return None
        os.close(file)


def members_at(path: Path) -> str:
    """Return the names of the ranks connected to the running chief with this claim; "" if none."""
    members: str = _read(path).get("members", "")
    return members


def owners_beside(path: Path) -> list[str]:
    """Return descriptions of the chiefs that wait for ranks at other addresses of this folder."""
    others = [
        _read(other) for other in sorted(path.parent.glob(f"*{path.suffix}")) if other != path
    ]
    return [found["owner"] for found in others if found and not found["members"]]


def _read(path: Path) -> dict[str, Any]:
    """Return what a chief has stored in its claim; empty if that process has ended."""
    found = _load(path)
    if not found:
        return {}
    owner = ProcessIdentity(int(found["pid"]), found["birth"], found.get("host", ""))
    return found if owner.is_alive else {}


def _load(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of this user; empty if there is none, or not yet."""
    try:
        with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
            found: dict[str, Any] = json.loads(file.read(_MOST_BYTES))
            return found
    except (OSError, DetError, ValueError):
        return {}


def _drop_claims_in_child() -> None:
    """Close the files of claims in a process that was forked from the rank that holds them."""
    for claim in _held.values():
        if claim._file is not None:
            os.close(claim._file)  # the lock stays, since the rank has the file open
    _held.clear()


os.register_at_fork(after_in_child=_drop_claims_in_child)
