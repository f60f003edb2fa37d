"""Checks the owners of folders and files before use, and makes our folders private.

Another user controls a folder that they made, a link that they put on our path, and any name in a
folder in which they can rename entries. None of that is used.

    above        no folder in which every user may replace entries (0777, not 1777); no link of
                 another user; the parent folder is ours or root's
    the folder   is ours. Its mode becomes 0700; if others could write to it before, it must not
                 contain anything of theirs
    a file       is ours, and no link

The user's home ($HOME) and the folders above it are not checked, and its owner is trusted like
root: a user who can replace .bashrc or .ipython there runs code as the user anyway. In containers
the home may belong to another user, or have mode 0777.

On Windows nothing is checked.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from det_jupyter.errors import DetError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_IS_POSIX = os.name == "posix"
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
_NOBODY = 65534  # the owner of files under NFS with all_squash
_SQUASHED = (
    ": a file system that changes the owner of new files (such as NFS with all_squash) cannot "
    "protect them; take a folder on a disk of this computer"
)
_passed: dict[Path, tuple[int, ...]] = {}  # folders that passed the checks, and their state


def make_private(folder: Path, remedy: str) -> None:
    """Make the folder if it does not exist, and make it private to the user.

    Args:
        remedy: What the user can do if that fails: the end of the error message.

    Raises:
        DetError: The folder belongs to another user, or another user could replace it.
        OSError: The folder cannot be made.
    """
    if folder in _passed and _passed[folder] == _state(folder):
        return
    for path in [*reversed(folder.parents), folder]:
        if not os.path.lexists(path):
            _check(path, remedy, find_problem_above)
            path.mkdir(mode=0o700, exist_ok=True)
            _check(path, remedy, _find_changed_owner)
    _check(folder, remedy, find_problem_above, _find_problem_with)
    _passed[folder] = _state(folder)


def _check(folder: Path, remedy: str, *finders: Callable[[Path], str]) -> None:
    for find in finders if _IS_POSIX else ():
        if problem := find(folder):
            raise DetError(f"{problem}; {remedy}")


def _state(folder: Path) -> tuple[int, ...]:
    try:
        info = os.stat(folder)
    except OSError:
        return ()
    return info.st_dev, info.st_ino, info.st_mode, info.st_uid


def find_problem_above(folder: Path) -> str:
    """Return how another user could replace the folder, which need not exist; "" if none can."""
    trusted = {0, os.geteuid()}
    with suppress(OSError):  # some services have no home
        trusted.add(_home().stat().st_uid)
    for path in [*folder.parents, folder]:
        if not os.path.lexists(path):
            continue
        info = path.lstat()
        if stat.S_ISLNK(info.st_mode) and info.st_uid not in trusted:
            return f"{path} is a link of {_user(info.st_uid)}, who could change its target"
    real = folder.resolve()
    if (owner := real.parent.stat().st_uid) not in trusted:
        return f"{real.parent} belongs to {_user(owner)}, who could replace what we put there"
    if (found := find_world_writable(*real.parents)) is not None:
        can_mend = os.geteuid() in (0, found.stat().st_uid)
        mend = f" (it is not used until that is changed: chmod o-w {found})" if can_mend else ""
        return f"every user of this computer can replace what is in {found}{mend}"
    return ""


def find_world_writable(*folders: Path) -> Path | None:
    """Return the first of `folders` in which every user can replace entries, else None.

    The user's home and what is above it are not checked: the search stops there.
    """
    home = _home()
    for path in folders:
        if home.is_relative_to(path):
            break
        mode = path.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return path
    return None


def _home() -> Path:
    return Path(os.path.realpath(os.path.join("/", os.path.expanduser("~"))))


def _find_problem_with(folder: Path) -> str:
    info = folder.stat()
    if not stat.S_ISDIR(info.st_mode):
        return f"{folder} is no folder"
    if info.st_uid != os.geteuid():
        whose = f"{folder} belongs to {_user(info.st_uid)}, not to {_user(os.geteuid())}"
        return f"{whose}{_SQUASHED if info.st_uid == _NOBODY else ''}"
    if not info.st_mode & _OTHERS:
        return ""
    os.chmod(folder, 0o700)
    if folder.stat().st_mode & _OTHERS:
        return f"{folder} cannot be made private: its file system keeps no permissions"
    return _find_foreign_entry(folder) if info.st_mode & _OTHERS_WRITE else ""


def _find_changed_owner(folder: Path) -> str:
    """Return an error message if a folder that we have just made is not ours; "" if it is."""
    owner = folder.stat().st_uid
    is_ours = owner == os.geteuid()
    return "" if is_ours else f"{folder} was made just now and is {_user(owner)}'s{_SQUASHED}"


def _find_foreign_entry(folder: Path) -> str:
    with os.scandir(folder) as entries:
        for entry in entries:
            owner = entry.stat(follow_symlinks=False).st_uid
            if owner != os.geteuid():
                return (
                    f"{folder} could be written by other users, and {entry.name} in it is of "
                    f"{_user(owner)} (remove it: rm -r {entry.path})"
                )
    return ""


def open_own(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file of ours and return its descriptor; with O_CREAT a new file has mode 0600.

    Raises:
        DetError: The file is a link, or belongs to another user.
        OSError: The file cannot be opened.
    """
    try:
        descriptor = os.open(path, flags | _NO_LINKS, 0o600)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise DetError(f"{path} is a link; det_jupyter uses no links; remove it") from None
    if _IS_POSIX and (owner := os.fstat(descriptor).st_uid) != os.geteuid():
        os.close(descriptor)
        raise DetError(f"{path} belongs to {_user(owner)}, not to {_user(os.geteuid())}")
    return descriptor


def _user(uid: int) -> str:
    import pwd  # Windows has none

    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"
