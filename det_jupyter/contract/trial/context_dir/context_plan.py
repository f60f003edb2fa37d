"""What of a folder would travel, found without reading any contents."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from det_jupyter.contract.trial.context_dir.ignoring import IGNORE_FILE
from det_jupyter.contract.trial.context_dir.walking import Entry, Walk, printable_path
from det_jupyter.contract.values.text import count, size
from det_jupyter.errors import CaptureError

MAX_BYTES = 95 * 2**20  # Determined's limit
_MAX_IGNORED = 8  # that a line names
_LARGEST = 5  # files or folders that a refusal names


@dataclass(slots=True, kw_only=True)
class ContextPlan:
    """What would travel.

    Args:
        folder: The context directory, for people; "" without one.
        entries: By path in the context, sorted; folders too.
        ignored: Paths that stay behind, of folders the topmost.
        problems: Why it cannot travel, a line each.
        notices: What people should know.
    """

    folder: str = ""
    entries: dict[str, Entry] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    @property
    def files(self) -> dict[str, int]:
        """Files by path, with their sizes in bytes; links among them."""
        return {n: each.size_bytes for n, each in self.entries.items() if each.kind != "folder"}

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(self.files.values())

    def read(self, name: str) -> bytes:
        """Return a file's contents; of a link, those of the file in the context it leads to.

        Of a file that has become larger than a context may be, only a part.

        Raises:
            CaptureError: It cannot be read.
        """
        try:
            return self.entries[name].read(MAX_BYTES + 1)
        except OSError as error:
            raise CaptureError(
                [f"{printable_path(self.entries[name].source)}: {error.strerror}"]
            ) from None

    def describe(self) -> str:
        """Return in a line what travels, and what stays behind."""
        name = f" {printable_path(self.folder)}" if self.folder else ""
        left = ", ".join(printable_path(each) for each in self.ignored[:_MAX_IGNORED])
        more = len(self.ignored) - _MAX_IGNORED
        left += f" and {more} more" if more > 0 else ""
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
    """Find what would travel, and all that is wrong with it.

    Args:
        folder: The context directory; None: there are only the others.
        include: Files and folders to add at its root, by their own names.
        scripts: Texts of files, by path; they take precedence over files of the folder.
        follow_links: Whether what links outside of the folder lead to travels in their places.
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
    if os.path.isdir(folder):  # False also where it may not be looked at
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
    """Return the refusal of a large context: what is large in it, and what to write."""
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
