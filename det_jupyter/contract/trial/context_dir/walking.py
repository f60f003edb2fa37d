"""Walks a folder: files, folders and links that travel; what stays behind, and what cannot go."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Literal

from det_jupyter.contract.trial.context_dir.ignoring import (
    IGNORE_FILE,
    TooSlow,
    ignore_rules,
    too_slow,
)
from det_jupyter.contract.values.text import printable

_MAX_ENTRIES = 50_000  # a home directory by mistake: it is refused in less than a second
_MAX_LISTED = 10
_OF_VENVS = "pyvenv.cfg"  # virtual environments have any name, and their paths hold only here
_KINDS = {
    stat.S_IFSOCK: "socket",
    stat.S_IFIFO: "pipe",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One path of a context.

    Args:
        kind: What it is.
        source: The file or folder on this computer; "" of a text that comes as such.
        content: The text.
        num_bytes: Size of the file.
        is_executable: Whether its owner may execute it.
        link: What a link leads to, relative to its folder.
    """

    kind: Literal["file", "folder", "link"]
    source: str = ""
    content: bytes | None = None
    num_bytes: int = 0
    is_executable: bool = False
    link: str = ""

    @property
    def size_bytes(self) -> int:
        """The size in a context."""
        return self.num_bytes if self.content is None else len(self.content)

    def read(self, most: int = -1) -> bytes:
        """Return the contents, at most so many bytes of them; of a link those of its target.

        Raises:
            OSError: They cannot be read; it may have become something else meanwhile.
        """
        if self.content is not None:
            return self.content
        with open(self.source, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "it is no file any more")
            return file.read(most)


class LiveEntries(Mapping[str, Entry]):
    """A folder as it is at the moment, for ranks that work in it and have no context.

    What is below it is looked up when it is asked for; iteration is over its top alone.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, name: str) -> Entry:
        path = self.folder / name
        if path.is_dir():
            return Entry(kind="folder", source=str(path))
        if not path.is_file():
            raise KeyError(name)
        return Entry(kind="file", source=str(path), is_executable=os.access(path, os.X_OK))

    def __iter__(self) -> Iterator[str]:
        for each in sorted(os.listdir(self.folder)):
            yield each
            if (self.folder / each / "__init__.py").is_file():
                yield f"{each}/__init__.py"

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Walk:
    """What is found in one folder, or for one file.

    Args:
        root: The folder or file; it may be a link.
        at: The path in the context that it gets; "": it is the context.
        follow_links: Whether what links outside of the root lead to travels in their places.
    """

    def __init__(self, root: Path, *, at: str = "", follow_links: bool = False) -> None:
        self.entries: dict[str, Entry] = {}
        self.ignored: list[str] = []
        self.problems: list[str] = []
        self.notices: list[str] = []
        self._root = os.path.abspath(root)
        self._real = os.path.realpath(root)
        self._at = at
        self._follow_links = follow_links
        # By path below the root: the folders that links on the way to it lead to.
        self._followed: dict[str, tuple[str, ...]] = {}
        # Each of these becomes one line, however many paths it has.
        self._outside: list[str] = []
        self._unreadable: list[str] = []
        self._odd: list[str] = []
        self._special: list[str] = []

    def run(self) -> None:
        """Find everything."""
        if os.path.isdir(self._root):
            self._rules = ignore_rules(Path(self._root), self.problems)
            if self._at:
                self.entries[self._at] = Entry(kind="folder", source=self._root)
            try:
                self._walk()
            except TooSlow:
                self.problems.append(too_slow(printable_path(self._root)))
        else:
            self._add_file(self._at, self._root, os.stat(self._root))
        self._report()

    def _report(self) -> None:
        """Say what cannot travel, and what does not."""
        where = printable_path(self._root)
        if self._outside:
            self.problems.append(
                f"context: links lead out of {where}: {_listed(self._outside)}; --follow-links "
                "(in Python follow_links=True) sends what they lead to; or write each as a line "
                f"of {IGNORE_FILE} and use the absolute path"
            )
        if self._unreadable:
            self.problems.append(
                f"context: {where}: cannot be read: {_listed(self._unreadable)}; allow it, or "
                f"write each as a line of {IGNORE_FILE}"
            )
        if self._odd:
            self.problems.append(
                f"context: {where}: names that are not UTF-8: {_listed(self._odd)}; rename them"
            )
        if self._special:
            self.notices.append(f"context: not sent: {_listed(self._special)}")
        lost = [
            f"{printable_path(name)} → {printable_path(entry.link)}"
            for name, entry in self.entries.items()
            if entry.kind == "link" and self._is_lost(name, entry.link)
        ]
        if lost:
            self.notices.append(f"context: links to what does not travel: {_listed(lost)}")

    def _walk(self) -> None:
        pending = [""]
        while pending:
            below = pending.pop()
            try:
                found = sorted(os.scandir(os.path.join(self._root, below)), key=attrgetter("name"))
            except OSError as error:
                self._cannot(below, error.strerror or str(error))
                continue
            if below and any(each.name == _OF_VENVS for each in found):
                del self.entries[self._path(below)]
                self.ignored.append(f"{self._path(below)}/")
                continue
            for each in found:
                name = f"{below}/{each.name}" if below else each.name
                if self._take(name, each):
                    pending.append(name)
                if len(self.entries) > _MAX_ENTRIES:
                    self.problems.append(self._too_many())
                    return

    def _take(self, name: str, found: os.DirEntry[str]) -> bool:
        """Note what was found; return whether it is a folder to walk into."""
        is_folder = found.is_dir(follow_symlinks=False)
        if self._rules.match_file(f"{name}/" if is_folder else name):
            if name != IGNORE_FILE:
                self.ignored.append(f"{self._path(name)}/" if is_folder else self._path(name))
            return False
        if not _is_utf8(name):
            self._odd.append(str(os.fsencode(name)))
            return False
        if found.is_symlink():
            return self._add_link(name, found.path)
        if is_folder:
            self.entries[self._path(name)] = Entry(kind="folder", source=found.path)
            return True
        try:
            self._add_file(self._path(name), found.path, found.stat(follow_symlinks=False))
        except OSError as error:
            self._cannot(name, error.strerror or str(error))
        return False

    def _add_file(self, name: str, source: str, state: os.stat_result) -> None:
        if not stat.S_ISREG(state.st_mode):
            kind = _KINDS.get(stat.S_IFMT(state.st_mode), "no file")
            self._special.append(f"{printable_path(name)} ({kind})")
        elif not os.access(source, os.R_OK):
            self._cannot(name, "Permission denied")
        else:
            self.entries[name] = Entry(
                kind="file",
                source=source,
                num_bytes=state.st_size,
                is_executable=bool(state.st_mode & stat.S_IXUSR),
            )

    def _add_link(self, name: str, path: str) -> bool:
        """Note a link; return whether it is one to a folder that travels, to walk into."""
        target = os.readlink(path)
        real = os.path.realpath(path)
        followed = self._followed_above(name)
        if not _is_in(real, self._real):
            if self._follow_links:
                return self._follow(name, path, real, followed)
            self._outside.append(f"{printable_path(name)} → {printable_path(target)}")
            return False
        folder = os.path.dirname(name)
        spelled = os.path.normpath(os.path.join(folder, target))
        is_above = spelled == ".." or spelled.startswith(f"..{os.sep}")
        if os.path.isabs(target) or is_above or followed:
            # It leads back in, by a path that the copy does not have.
            target = os.path.relpath(os.path.relpath(real, self._real), folder or os.curdir)
        if not _is_utf8(target):
            self._odd.append(str(os.fsencode(target)))
            return False
        self.entries[self._path(name)] = Entry(kind="link", source=path, link=target)
        return False

    def _follow(self, name: str, path: str, real: str, followed: tuple[str, ...]) -> bool:
        """Note what a link leads to in its place; return whether it is a folder to walk into."""
        if not os.path.isdir(real):
            try:
                self._add_file(self._path(name), path, os.stat(path))
            except OSError as error:
                self._cannot(name, error.strerror or str(error))
            return False
        around = (self._real, os.path.realpath(os.path.dirname(path)), *followed)
        if any(_is_in(each, real) for each in around):
            self.problems.append(
                f"context: {printable_path(path)} leads to {printable_path(real)}, which holds "
                f"the link itself; write it as a line of {IGNORE_FILE}"
            )
            return False
        self.entries[self._path(name)] = Entry(kind="folder", source=path)
        self._followed[name] = (*followed, real)
        return True

    def _followed_above(self, name: str) -> tuple[str, ...]:
        above = (str(each) for each in Path(name).parents)
        return next((self._followed[each] for each in above if each in self._followed), ())

    def _is_lost(self, name: str, link: str) -> bool:
        target = os.path.normpath(os.path.join(os.path.dirname(name), link))
        return (
            target not in self.entries
            and target not in (".", self._at)
            and not any(
                self.entries[str(above)].kind == "link"
                for above in Path(target).parents
                if str(above) in self.entries
            )
        )

    def _path(self, name: str) -> str:
        return f"{self._at}/{name}" if self._at else name

    def _cannot(self, name: str, reason: str) -> None:
        self._unreadable.append(f"{printable_path(name) or '.'} ({reason})")

    def _too_many(self) -> str:
        tops = Counter(name.partition("/")[0] for name in self.entries)
        largest = ", ".join(f"{printable_path(n)} ({k:,})" for n, k in tops.most_common(3))
        return (
            f"context: {printable_path(self._root)} holds more than {_MAX_ENTRIES:,} files "
            f"(so far in: {largest}); give the folder with your code, or write what the training "
            f"does not need as lines of its {IGNORE_FILE}"
        )


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(os.path.join(folder, ""))


def _open_at_once(path: str, flags: int) -> int:
    """Open a file, and do not wait for a writer if it has become a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def printable_path(path: str) -> str:
    """Return a path as messages show it, on one line."""
    text = os.fsencode(path).decode("utf-8", "replace")
    return printable(text).replace("\n", "\\n")


def _listed(names: list[str]) -> str:
    more = len(names) - _MAX_LISTED
    return ", ".join(names[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
