"""The claim of a chief to a meeting place: a locked file, held as long as its context is open.

A parent may start two jobs, and a run's name may be used twice. Then the second chief fails, and
its error names the first, instead of meeting the other job's ranks.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from pathlib import Path

from det_jupyter.errors import DetError, LaunchError
from det_jupyter.system.ownership import open_own
from det_jupyter.system.processes import birth_of

logger = logging.getLogger(__name__)

_MOST_BYTES = 65536
_held: dict[Path, Claim] = {}  # a process may make several contexts at one place


class Claim:
    """That of this process.

    Raises:
        LaunchError: A chief that lives has this place.
    """

    def __init__(self, path: Path, owner: str) -> None:
        self._path = path
        self._owner = owner
        self._file = _locked(path)
        self._num_users = 1
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

    def tell(self, members: str) -> None:
        """Store which ranks have met here, for messages of other processes."""
        if self._file is not None:
            facts = {"pid": os.getpid(), "birth": birth_of(os.getpid())}
            data = json.dumps({"owner": self._owner, "members": members, **facts}).encode()
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, data, 0)

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
    return _read(path).get("members", "")


def owners_beside(path: Path) -> list[str]:
    """Return the chiefs that wait at other places of this folder."""
    others = [
        _read(other) for other in sorted(path.parent.glob(f"*{path.suffix}")) if other != path
    ]
    return [found["owner"] for found in others if found and not found["members"]]


def _read(path: Path) -> dict[str, str]:
    """Return what a chief that lives has stored; empty if there is none."""
    try:
        with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
            found: dict[str, str] = json.loads(file.read(_MOST_BYTES))
        return found if birth_of(int(found["pid"])) == found["birth"] else {}
    except (OSError, DetError, ValueError, LookupError, TypeError):  # it is just being written
        return {}


def _forget_in_child() -> None:
    """Leave the claims to the rank that has forked this process."""
    for claim in _held.values():
        if claim._file is not None:
            os.close(claim._file)  # the lock stays: the rank has the file open
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)
