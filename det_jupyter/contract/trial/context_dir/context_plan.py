"""Finds the files of a context, without reading their contents."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from det_jupyter.contract.trial.context_dir.ignoring import IGNORE_FILE
from det_jupyter.contract.trial.context_dir.walking import Entry, Walk, printable_path
from det_jupyter.contract.values.text import count, listed, size
from det_jupyter.errors import CaptureError

MAX_BYTES = 95 * 2**20  # Determined's limit
_MAX_IGNORED = 8  # ignored paths that a line names
_LARGEST = 5  # files or folders that a refusal names


@dataclass(slots=True, kw_only=True)
class ContextPlan:
    """The files to send, and the problems with them.

    Args:
        folder: The context directory, to be shown; "" if there is none.
        entries: Files, folders and links, sorted by path in the context.
        ignored: Paths that are not sent; for an ignored folder, only the folder itself.
        problems: Why the context cannot be sent, a line each.
        notices: Other remarks for the user, a line each.
    """

    folder: str = ""
    entries: dict[str, Entry] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    @property
    def files(self) -> dict[str, int]:
        """Sizes of files and links by path, in bytes."""
        return {n: each.size_bytes for n, each in self.entries.items() if each.kind != "folder"}

    @property
    def size_bytes(self) -> int:
        """The size of all files together."""
        return sum(self.files.values())

    def read(self, name: str) -> bytes:
        """Return the contents of a file; for a link, those of its target.

        At most `MAX_BYTES` + 1 bytes are read of a file that has grown since.

        Raises:
            CaptureError: The file cannot be read.
        """
        try:
            return self.entries[name].read(MAX_BYTES + 1)
        except OSError as error:
            raise CaptureError(
                [f"{printable_path(self.entries[name].source)}: {error.strerror}"]
            ) from None

    def describe(self) -> str:
        """Return a line with the number and size of the files, and the ignored paths."""
        name = f" {printable_path(self.folder)}" if self.folder else ""
        left = listed(map(printable_path, self.ignored), most=_MAX_IGNORED)
        return f"Context{name}: {self}" + (f"; stays behind: {left}" if left else "")

    def __str__(self) -> str:
        return f"{count(len(self.files), 'file')}, {size(self.size_bytes)}"


def plan_context(
    folder: Path | str | None,
    *,
    include: Sequence[Path | str] = (),
    scripts: Mapping[str, str] | None = None,
    follow_links: bool = False,
) -> ContextPlan:
    """Find the files to send, and all problems with them.

    Args:
        folder: The context directory; None: the context has only `include` and `scripts`.
        include: Files and folders to add at its root, by their own names.
        scripts: Texts of files by path; they take precedence over files of the folder.
        follow_links: Whether links out of the folder are replaced by their targets.
    """
    plan = ContextPlan()
    if folder is not None:
        _add_folder(plan, Path(folder).expanduser(), follow_links=follow_links)
    for path in include:
        _add_included(plan, Path(path).expanduser(), follow_links=follow_links)
    for name, text in (scripts or {}).items():
        _add_script(plan, name, text)
    plan.entries = dict(sorted(plan.entries.items()))
    if plan.size_bytes > MAX_BYTES:
        plan.problems.append(_too_large(plan))
    return plan


def _add_folder(plan: ContextPlan, folder: Path, *, follow_links: bool) -> None:
    if os.path.isdir(folder):  # False also without permission
        plan.folder = os.path.abspath(folder)
        _merge(plan, Walk(folder, follow_links=follow_links))
        return
    reason = "it is not a folder" if os.path.lexists(folder) else "there is no such folder"
    place = ""
    if not folder.is_absolute():
        try:
            place = f" (this is {printable_path(os.getcwd())})"
        except FileNotFoundError:
            place = " (the present folder itself is gone)"
    plan.problems.append(
        f"context: {printable_path(str(folder))}: {reason}{place}; give the folder with your code"
    )


def _add_included(plan: ContextPlan, path: Path, *, follow_links: bool) -> None:
    name = os.path.basename(os.path.abspath(path))
    if not os.path.exists(path):
        plan.problems.append(
            f"include: {printable_path(str(path))}: there is no such file or folder"
        )
    elif not name:
        plan.problems.append(f"include: {printable_path(str(path))} has no name to be added under")
    elif name in plan.entries:
        plan.problems.append(
            f"include: {printable_path(str(path))}: the context has a {printable_path(name)} "
            "already; rename one of them, or name the one of the context in its .detignore"
        )
    else:
        _merge(plan, Walk(path, at=name, follow_links=follow_links))


def _add_script(plan: ContextPlan, name: str, text: str) -> None:
    if name != os.path.normpath(name) or name.startswith(("/", "../")) or name in (".", ".."):
        plan.problems.append(
            f"script {printable_path(name)}: expected a path in the context, like train.py"
        )
        return
    folders = [str(each) for each in Path(name).parents][:-1]
    blocked = [
        each
        for each in (*folders, name)
        if each in plan.entries and (plan.entries[each].kind == "folder") is (each == name)
    ]
    if blocked:
        plan.problems.append(
            f"script {printable_path(name)}: the context has another {printable_path(blocked[0])}"
        )
        return
    if name in plan.entries:
        plan.notices.append(
            f"{printable_path(name)} is the script of the notebook, not the folder's file"
        )
    for each in folders:
        plan.entries.setdefault(each, Entry(kind="folder"))
    plan.entries[name] = Entry(kind="file", content=text.encode("utf-8", "replace"))


def _merge(plan: ContextPlan, walk: Walk) -> None:
    walk.run()
    plan.entries |= walk.entries
    plan.ignored += walk.ignored
    plan.problems += walk.problems
    plan.notices += walk.notices


def _too_large(plan: ContextPlan) -> str:
    """Return the problem of a context that is too large: its largest files, and what to do."""
    sizes: Counter[str] = Counter()
    for name, num_bytes in plan.files.items():
        top = name.partition("/")[0]
        sizes[name if top == name else f"{top}/"] += num_bytes
    largest = [
        (printable_path(name), num_bytes) for name, num_bytes in sizes.most_common(_LARGEST)
    ]
    named = ", ".join(f"{name} ({size(num_bytes)})" for name, num_bytes in largest)
    file = os.path.join(plan.folder, IGNORE_FILE)
    return (
        f"context: {plan}, and at most {size(MAX_BYTES)} can travel; largest: {named}. Write what "
        f"the training does not read there into {printable_path(file)}, a line like "
        f"/{largest[0][0]} for each, and have data read by absolute paths"
    )
