"""The files of a context directory that are not sent: `.detignore`, and built-in patterns.

`.detignore` has the syntax of .gitignore. It comes with code that others may have written, so it
has limits: a regular file in its folder, of 64 KiB at most, whose patterns may take 10 s for all
paths. Some patterns with several `*` take exponential time on some paths (`**/a/**/a/…`), and `re`
has no time limit, so these are matched by `regex`, which has one. Stars in a row mean what one
means (as a whole name: two), and are written so before anything is compiled: 40 of them are 40
loops within each other.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

from det_jupyter.contract.host.regular_files import open_regular

IGNORE_FILE = ".detignore"
_MOST_BYTES = 64 * 2**10
_MOST_S = 10.0
_STARS = re.compile(r"\*+")
# A character that is escaped, then stars that are a whole name, then other stars in a row.
_ROWS = re.compile(r"\\.|(^!?|/)\*{2,}(?=/|\s*$)|\*{2,}")
_FEW_STARS = 2  # stars in a pattern that is fast even on the longest path
# They precede the user's patterns, which can revoke them: `!.venv/`.
_BUILT_IN = (
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
    """The patterns of a folder took more than 10 s."""


class IgnoreRules:
    """Decides which files of a folder are not sent.

    Args:
        patterns: In the syntax of .gitignore; a later one takes precedence.
    """

    def __init__(self, patterns: list[str]) -> None:
        # Not at the top: agents and ranks, which only unpack, do not need it.
        from pathspec import GitIgnoreSpec

        self._left_s = _MOST_S
        lines = [_with_single_stars(line) for line in patterns if line]
        self._spec = GitIgnoreSpec.from_lines(lines)
        for line, pattern in zip(lines, self._spec.patterns, strict=True):
            compiled = getattr(pattern, "regex", None)  # a comment has none
            if compiled is not None and len(_STARS.findall(line)) > _FEW_STARS:
                setattr(pattern, "regex", _Timed(compiled.pattern, self))  # noqa: B010  # no re.Pattern

    @property
    def left_s(self) -> float:
        """The rest of the time limit, in seconds."""
        return self._left_s

    def match_file(self, path: str) -> bool:
        """Return whether a path below the folder is ignored; that of a folder ends with `/`.

        Raises:
            TooSlow: The time limit for all paths together is exceeded.
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
    """Replaces a compiled pattern: the methods that pathspec calls, with a time limit."""

    def __init__(self, pattern: str, rules: IgnoreRules) -> None:
        import regex

        self._regex = regex.compile(pattern)
        self._rules = rules
        self.pattern = pattern

    def search(self, path: str) -> Any:
        return self._regex.search(path, timeout=max(0.001, self._rules.left_s))

    match = search  # all patterns begin with ^


def ignore_rules(folder: Path, problems: list[str]) -> IgnoreRules:
    """Return the rules of a folder.

    Problems with its `.detignore` are appended to `problems`.
    """
    from pathspec import GitIgnoreSpec

    patterns = [*_BUILT_IN]
    for number, line in enumerate(_lines_of(folder / IGNORE_FILE, problems), 1):
        try:
            GitIgnoreSpec.from_lines([_with_single_stars(line)])
        except (re.error, ValueError) as error:
            is_explained = isinstance(error, re.error)
            reason = str(error) if is_explained else "it means nothing in .gitignore's syntax"
            where = f"{folder / IGNORE_FILE}: line {number}"
            problems.append(f"{where}: {line!r} is no pattern: {reason}")
        else:
            patterns.append(line)
    return IgnoreRules(patterns)


def _with_single_stars(line: str) -> str:
    r"""Return a pattern that means the same, without stars in a row.

    >>> [_with_single_stars(line) for line in ("a****b", "!***/x", "x/****", r"\**y")]
    ['a*b', '!**/x', 'x/**', '\\**y']
    """

    def single(row: re.Match[str]) -> str:
        if row[0].startswith("\\"):
            return row[0]
        return "*" if row[1] is None else f"{row[1]}**"

    return _ROWS.sub(single, line)


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
    """Return the contents of a `.detignore`, without blocking if it is a pipe.

    Raises:
        OSError: The file does not exist, is no regular file of its folder, or is too large.
    """
    folder = os.path.realpath(file.parent)
    if not os.path.realpath(file).startswith(os.path.join(folder, "")):
        raise OSError("it is a link that leads out of the folder")
    with open_regular(file) as opened:
        content = opened.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise OSError(f"it has more than {_MOST_BYTES >> 10} KiB")
    return content
