"""The folder in which the agents of all users of this computer see each other's slots.

    UID-RANDOM.json   written by one agent of this user, and replaced by renames
    SLOT.lock         locked (flock) by the agent that holds the slot; never deleted

    DET_JUPYTER_SHARED_FOLDER=FOLDER   this folder; CPU places are shared too
                              none     nothing is shared
                              unset    DEFAULT, and only GPUs are shared

The folder has mode 1777 (or 3770 for a group), so that everybody can add files and nobody can
replace those of others. All of its files are opened by its descriptor and through no link. Who has
written a file is the file's owner, not what is in it; of each user 16 files count, and at most
128 KiB of a file are read.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import pwd
import re
import secrets
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.values.bounds import PrintableText, ProcessId, Timestamp
from det_jupyter.contract.values.text import printable
from det_jupyter.errors import DetError

logger = logging.getLogger(__name__)

SHARED_FOLDER_VARIABLE = "DET_JUPYTER_SHARED_FOLDER"
DEFAULT = Path("/var/tmp/det_jupyter-shared")
NONE = "none"
_MODE = 0o1777
_MOST_BYTES = 128 << 10
_MOST_FILES = 16  # of each user
MOST_SLOTS = 1024
MOST_WANTS = 128  # so that those of another user cost little time in next_slots
_FILE = re.compile(r"(?P<uid>\d{1,10})-[0-9a-f]{16}\.json")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

SlotKey = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]


class Published(BaseModel):
    """What an agent writes for the others: sizes and times.

    Args:
        pid, birth: The agent's process.
        used_s: Slot-seconds of this agent until `at`.
        at: When it was written, UTC seconds.
        held: Since when it has each of its slots.
        slots: The slots that its waiting gangs may take.
        wants: Number of slots of each waiting gang.
        waits_since: Since when one waits.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    pid: ProcessId
    birth: PrintableText
    used_s: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] = 0.0
    at: Timestamp
    held: Annotated[dict[SlotKey, Timestamp], Field(max_length=MOST_SLOTS)] = {}
    slots: Annotated[tuple[SlotKey, ...], Field(max_length=MOST_SLOTS)] = ()
    wants: Annotated[
        tuple[Annotated[int, Field(ge=1, le=MOST_SLOTS)], ...], Field(max_length=MOST_WANTS)
    ] = ()
    waits_since: Timestamp | None = None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An agent's file: its name, the user who owns it, and its content."""

    name: str
    uid: int
    said: Published

    @property
    def is_alive(self) -> bool:
        """Whether the agent runs; False if processes of other users are hidden here."""
        return ProcessIdentity(self.said.pid, self.said.birth).is_alive

    @property
    def may_be_alive(self) -> bool:
        """Whether the agent runs, or is hidden and there is a process with its pid."""
        return self.is_alive or _is_hidden(self.said.pid)


class SharedFolder:
    """The folder, opened.

    Raises:
        DetError: It cannot be used; the message says why, and what to do.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = _open_folder(path)
        self._name = f"{os.geteuid()}-{secrets.token_hex(8)}.json"
        self._read: dict[str, tuple[tuple[int, ...], Published | None]] = {}
        self._logged: set[str] = set()  # problems

    @property
    def name(self) -> str:
        """The name of this agent's file."""
        return self._name

    def renew(self) -> bool:
        """Open the folder again if it was removed or replaced; return whether it was."""
        try:
            is_there = os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except FileNotFoundError:
            is_there = False
        except OSError:  # a folder above it cannot be read now
            return False
        if is_there:
            return False
        try:
            descriptor = _open_folder(self._path)
        except DetError as error:
            self._log_once(str(error))
            return False
        os.close(self._fd)
        self._fd = descriptor
        return True

    def neighbours(self) -> list[Neighbour]:
        """Return what the agents of all users have written, this one's left out; by name."""
        names = [name for name in os.listdir(self._fd) if _FILE.fullmatch(name)]
        num = Counter[int]()
        found = [self._neighbour(name, num) for name in sorted(names) if name != self.name]
        self._read = {name: self._read[name] for name in names if name in self._read}
        return [each for each in found if each is not None]

    def _neighbour(self, name: str, num: Counter[int]) -> Neighbour | None:
        """Return what is in a file; `num` is how many files of each user are read so far."""
        try:
            descriptor = os.open(name, _READ, dir_fd=self._fd)
        except OSError:  # a link, removed meanwhile, or not readable
            return None
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode) or not name.startswith(f"{info.st_uid}-"):
                return None
            num[info.st_uid] += 1
            if num[info.st_uid] > _MOST_FILES:
                return None
            version = (info.st_ino, info.st_mtime_ns, info.st_size)
            known = self._read.get(name)
            if known is None or known[0] != version:
                text = os.read(descriptor, _MOST_BYTES + 1)
                is_new = known is None or known[1] is not None
                known = self._read[name] = version, _parse(name, text, is_logged=is_new)
        except OSError:  # a disk that fails
            return None
        finally:
            os.close(descriptor)
        return None if known[1] is None else Neighbour(name, info.st_uid, known[1])

    def write(self, said: Published) -> None:
        """Replace this agent's file.

        Raises:
            OSError: It cannot be written.
        """
        scratch = f".{self._name}"
        with suppress(FileNotFoundError):
            os.unlink(scratch, dir_fd=self._fd)
        descriptor = os.open(scratch, os.O_WRONLY | _NEW, 0o600, dir_fd=self._fd)
        with os.fdopen(descriptor, "wb") as file:
            file.write(said.model_dump_json().encode())
            os.fchmod(descriptor, 0o644)  # whatever the umask is
        os.replace(scratch, self._name, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def take_over(self) -> Iterator[Published]:
        """Remove the files of this user's agents that have ended; yield what is in them."""
        for each in self.neighbours():
            if each.uid == os.geteuid() and not each.is_alive:
                with suppress(OSError):  # another agent of this user has just done it
                    os.unlink(each.name, dir_fd=self._fd)
                    yield each.said

    def lock(self, slots: Iterable[str]) -> dict[str, int] | None:
        """Lock slots, all or none; return a descriptor for each, None if another agent has one.

        A descriptor holds the lock until it is closed, also by the end of this process.
        """
        taken: dict[str, int] = {}
        for slot in sorted(slots):
            descriptor = self._lock(f"{slot}.lock", fcntl.LOCK_EX)
            if descriptor is None:
                for each in taken.values():
                    os.close(each)
                return None
            taken[slot] = descriptor
        return taken

    def is_locked(self, slot: str) -> bool:
        """Return whether another agent has a slot, or its file cannot be locked.

        Its file is locked for a moment, which only `lock` notices.
        """
        descriptor = self._lock(f"{slot}.lock", fcntl.LOCK_SH)
        if descriptor is not None:
            os.close(descriptor)
        return descriptor is None

    def has_lock(self, slot: str, descriptor: int) -> bool:
        """Return whether a descriptor is of the file of a slot that is there now.

        It is not if somebody has deleted the file: then another agent can lock a new one.
        """
        return self._is_linked(f"{slot}.lock", descriptor)

    def _is_linked(self, name: str, descriptor: int) -> bool:
        try:
            there = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(descriptor), there)

    def _lock(self, name: str, how: int) -> int | None:
        """Return a descriptor that holds the lock of a file; None if it cannot be locked now."""
        while True:
            try:
                descriptor = self._open_lock(name)
            except OSError as error:
                self._log_lock(name, error)
                return None
            try:
                fcntl.flock(descriptor, how | fcntl.LOCK_NB)
                if self._is_linked(name, descriptor):
                    return descriptor
            except OSError as error:
                os.close(descriptor)
                if not isinstance(error, BlockingIOError):
                    self._log_lock(name, error)
                return None
            os.close(descriptor)  # deleted since it was opened

    def _log_lock(self, name: str, error: OSError) -> None:
        self._log_once(
            f"{self._path / name} cannot be locked: {error.strerror}; its slot is not given out. "
            "The folder has to be on a disk of this computer, and nobody may replace its files"
        )

    def _log_once(self, text: str) -> None:
        if text not in self._logged:
            logger.error("%s", text)
        self._logged.add(text)

    def _open_lock(self, name: str) -> int:
        with suppress(FileNotFoundError):
            return self._open_old_lock(name)
        try:
            descriptor = os.open(name, os.O_RDWR | _NEW, 0o644, dir_fd=self._fd)
        except FileExistsError:
            return self._open_old_lock(name)
        os.fchmod(descriptor, 0o644)
        return descriptor

    def _open_old_lock(self, name: str) -> int:
        descriptor = os.open(name, _READ, dir_fd=self._fd)
        info = os.fstat(descriptor)
        if stat.S_ISREG(info.st_mode) and info.st_nlink < 2:
            return descriptor
        os.close(descriptor)  # two slots with one file could not be locked both
        raise OSError(errno.EMLINK, "it is no regular file with one name")


def _open_folder(path: Path) -> int:
    problem = "" if path.is_absolute() else "expected an absolute path"
    descriptor = -1
    try:
        if not problem:
            if not os.path.lexists(path):
                _make_folder(path)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(path, flags)
            problem = _problem_with(descriptor)
    except OSError as error:
        problem = error.strerror or str(error)
    if not problem:
        return descriptor
    if descriptor >= 0:
        os.close(descriptor)
    shown = printable(str(path))
    raise DetError(
        f"{shown}, the folder of the slots that users share: {problem}; name another one in "
        f"{SHARED_FOLDER_VARIABLE}, or {NONE}; an administrator makes it by: install -d -m "
        f"{_MODE:o} {shown}"
    )


def _make_folder(path: Path) -> None:
    """Make the folder, with its mode before another user sees it."""
    scratch = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    os.mkdir(scratch, 0o700)
    try:
        os.chmod(scratch, _MODE)  # whatever the umask is
        os.rename(scratch, path)
    except OSError:  # another user was faster
        os.rmdir(scratch)


def _problem_with(folder: int) -> str:
    mode = os.fstat(folder).st_mode
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
        return "users could replace files of others in it (it has no sticky bit)"
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=folder):
        return "it cannot be written"
    return ""


def _parse(name: str, text: bytes, *, is_logged: bool) -> Published | None:
    try:
        if len(text) <= _MOST_BYTES:
            return Published.model_validate_json(text)
        problem = f"more than {_MOST_BYTES} bytes"
    except ValidationError as error:
        problem = f"{error.error_count()} mistakes"
    if is_logged:
        logger.warning("the neighbour's file %s is ignored: %s", name, problem)
    return None


def _is_hidden(pid: int) -> bool:
    """Return whether a process of another user exists, but is not shown (hidepid)."""
    if pid < 1 or os.path.exists(f"/proc/{pid}") or not os.path.exists("/proc/self"):
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


@cache  # the system's list of users may be on another computer
def user_name(uid: int) -> str:
    """Return the name of a user of this computer."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
