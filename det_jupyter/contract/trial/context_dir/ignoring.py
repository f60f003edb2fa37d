"""What of a context directory stays behind: `.detignore`, in gitignore's syntax, and the usual.

`.detignore` comes with code that others may have written, so it is bounded: a regular file in its
folder, of 64 KiB at most, whose patterns may take 10 s for all paths. `re` has no time limit: some
patterns with several `*` take for ever on some paths (`**/a/**/a/…`), so these are matched by
`regex`, which has one.
"""

from __future__ import annotations

import os
import re
import stat
import time
from pathlib import Path
from typing import Any

IGNORE_FILE = ".detignore"
_MOST_BYTES = 64 * 2**10
_MOST_S = 10.0
_STARS = re.compile(r"\*+")
_FEW_STARS = 2  # so many take a moment on the longest path
# Laid under the user's patterns: `!.venv/` takes it along all the same.
_USUAL = (
    f"/{IGNORE_FILE}",
    "__pycache__/",
    "*.py[co]",
    "*$py.class",
    ".git/",
    ".hg/",
    ".svn/",
    ".ipynb_checkpoints/",
    ".vscode/",
    ".idea/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".venv/",
    "node_modules/",
    ".terraform*",
    "terraform.tfstate*",
    "terraform.tfvars*",
    ".DS_Store",
)


class TooSlow(Exception):
    """The patterns of a folder took too long."""


class IgnoreRules:
    """What of a folder stays behind.

    Args:
        patterns: Of gitignore's syntax; a later one takes precedence.
    """

    def __init__(self, patterns: list[str]) -> None:
        # Not at the top: agents and ranks, which only unpack, do without it.
        from pathspec import GitIgnoreSpec

        self._left_s = _MOST_S
        lines = [line for line in patterns if line]
        self._spec = GitIgnoreSpec.from_lines(lines)
        for line, pattern in zip(lines, self._spec.patterns, strict=True):
            compiled = getattr(pattern, "regex", None)  # a comment has none
            if compiled is not None and len(_STARS.findall(line)) > _FEW_STARS:
                setattr(pattern, "regex", _Timed(compiled.pattern, self))  # noqa: B010  # no re.Pattern

    @property
    def left_s(self) -> float:
        """The time that may be used from now on, in seconds."""
        return self._left_s

    def match_file(self, path: str) -> bool:
        """Return whether a path below the folder stays behind; that of a folder ends with `/`.

        Raises:
            TooSlow: All paths together took too long.
        """
        began = time.monotonic()
        try:
            return self._spec.match_file(path)
        except TimeoutError:
            raise TooSlow from None
        finally:
            self._left_s -= time.monotonic() - began
            if self._left_s <= 0:
                raise TooSlow


class _Timed:
    """In the place of a compiled pattern: what pathspec calls of it, with a time limit."""

    def __init__(self, pattern: str, rules: IgnoreRules) -> None:
        import regex

        self._regex = regex.compile(pattern)
        self._rules = rules
        self.pattern = pattern

    def search(self, path: str) -> Any:
        return self._regex.search(path, timeout=max(0.001, self._rules.left_s))

    match = search  # all patterns begin with ^


def ignore_rules(folder: Path, problems: list[str]) -> IgnoreRules:
    """Return what of a folder stays behind.

    `problems` gets what is wrong with its `.detignore`.
    """
    from pathspec import GitIgnoreSpec

    patterns = [*_USUAL]
    for number, line in enumerate(_lines_of(folder / IGNORE_FILE, problems), 1):
        try:
            GitIgnoreSpec.from_lines([line])
        except (re.error, ValueError) as error:
            is_told = isinstance(error, re.error)
            reason = str(error) if is_told else "it means nothing in .gitignore's syntax"
            where = f"{folder / IGNORE_FILE}: line {number}"
            problems.append(f"{where}: {line!r} is no pattern: {reason}")
        else:
            patterns.append(line)
    return IgnoreRules(patterns)


def too_slow(folder: str) -> str:
    """Return the problem of a folder whose patterns raised TooSlow."""
    return (
        f"{folder}/{IGNORE_FILE}: its patterns took over {_MOST_S:g} s; write simpler ones, with "
        f"at most {_FEW_STARS} `*` or `**` each"
    )


def _lines_of(file: Path, problems: list[str]) -> list[str]:
    try:
        return _read(file).decode("utf-8-sig").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8 text"
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
        problems.append(f"{file}: {reason}; it holds patterns like those of .gitignore")
        return []


def _read(file: Path) -> bytes:
    """Return the contents of a file; a pipe is not waited for.

    Raises:
        OSError: There is none, or it is not what it should be.
    """
    folder = os.path.realpath(file.parent)
    if not os.path.realpath(file).startswith(os.path.join(folder, "")):
        raise OSError("it is a link that leads out of the folder")
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is no regular file")
        content = opened.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise OSError(f"it has more than {_MOST_BYTES >> 10} KiB")
    return content
