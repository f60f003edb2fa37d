"""Walks a context directory: finds the files, folders and links to send, and problems."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Literal

from det_jupyter.contract.host.regular_files import open_regular
from det_jupyter.contract.trial.context_dir.ignoring import (
    IGNORE_FILE,
    TooSlow,
    ignore_rules,
    too_slow,
)
from det_jupyter.contract.values.text import listed, printable

_MAX_ENTRIES = 50_000  # a home folder, given by mistake, is refused in less than a second
_listed = partial(listed, most=10)
_OF_VENVS = "pyvenv.cfg"  # marks a virtual environment, which works only in its own folder
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
        source: The file or folder on this computer; "" if there is only `content`.
        content: The contents, if they are not those of a file.
        num_bytes: Size of the file.
        is_executable: Whether its owner may execute it.
        link: The target of a link, relative to its folder.
    """

    kind: Literal["file", "folder", "link"]
    source: str = ""
    content: bytes | None = None
    num_bytes: int = 0
    is_executable: bool = False
    link: str = ""

    @property
    def size_bytes(self) -> int:
        """The size in the context."""
        return self.num_bytes if self.content is None else len(self.content)

    def read(self, most: int = -1) -> bytes:
        """Return the contents, at most `most` bytes; for a link, those of its target.

        Raises:
            OSError: The file cannot be read, or is no regular file any more.
        """
        if self.content is not None:
            return self.content
        with open_regular(self.source) as file:
            return file.read(most)


class LiveEntries(Mapping[str, Entry]):
    """The entries of a folder that ranks work in directly, without a context.

    Each is read from the file system when it is used. Iteration is over the top level, and the
    `__init__.py` of packages there.
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
    """Finds what to send of one folder or file.

    Args:
        root: The folder or file; it may be a link.
        at: Its path in the context; "": it is the context directory itself.
        follow_links: Whether links out of the root are replaced by their targets.
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
        # Targets of followed links, by path below the root: those of all links on that path.
        self._followed: dict[str, tuple[str, ...]] = {}
        # Each of these lists becomes one problem or notice.
        self._outside: list[str] = []
        self._unreadable: list[str] = []
        self._odd: list[str] = []
        self._special: list[str] = []

    def run(self) -> None:
        """Fill `entries`, `ignored`, `problems` and `notices`."""
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
        """Add problems and notices about paths that cannot be sent."""
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
                if self._visit(name, each):
                    pending.append(name)
                if len(self.entries) > _MAX_ENTRIES:
                    self.problems.append(self._too_many())
                    return

    def _visit(self, name: str, found: os.DirEntry[str]) -> bool:
        """Add what was found; return whether it is a folder to walk into."""
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
        """Add a link; return whether it is a followed link to a folder, to walk into."""
        target = os.readlink(path)
        real = os.path.realpath(path)
        above = (str(each) for each in Path(name).parents)
        followed = next((self._followed[each] for each in above if each in self._followed), ())
        if not _is_in(real, self._real):
            if self._follow_links:
                return self._follow(name, path, real, followed)
            self._outside.append(f"{printable_path(name)} → {printable_path(target)}")
            return False
        folder = os.path.dirname(name)
        spelled = os.path.normpath(os.path.join(folder, target))
        is_above = spelled == ".." or spelled.startswith(f"..{os.sep}")
        if os.path.isabs(target) or is_above or followed:
            # Its target is inside the root, by a path that the copy does not have.
            target = os.path.relpath(os.path.relpath(real, self._real), folder or os.curdir)
        if not _is_utf8(target):
            self._odd.append(str(os.fsencode(target)))
            return False
        self.entries[self._path(name)] = Entry(kind="link", source=path, link=target)
        return False

    def _follow(self, name: str, path: str, real: str, followed: tuple[str, ...]) -> bool:
        """Add the target of a link in its place; return whether it is a folder to walk into."""
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


def printable_path(path: str) -> str:
    """Return a path as printable text on one line, for messages."""
    text = os.fsencode(path).decode("utf-8", "replace")
    return printable(text).replace("\n", "\\n")


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
