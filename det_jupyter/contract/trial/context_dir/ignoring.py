"""The files of a context directory that are not sent: `.detignore`, and built-in patterns.

`.detignore` has the syntax of .gitignore. It comes with code that others may have written, so it
has limits: a regular file in its folder, of 64 KiB at most, whose patterns may take 10 s for all
paths. How long one takes on a path of n characters depends on its stars (`**` counts as one):

    none or one    n              the limit is checked after each path
    two            n * n          after each pattern: 1,000 of them would take a minute for a path
    more           n * n * n ...  within a pattern: `regex` is used, which has a time limit

Several stars in a row mean the same as one (as a whole name: as two). They are replaced before the
pattern is compiled: 40 stars would be 40 nested loops.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from det_jupyter.contract.host.regular_files import open_regular

IGNORE_FILE = ".detignore"
_MOST_BYTES = 64 * 2**10
_MOST_S = 10.0
_STARS = re.compile(r"\*+")
# A character that is escaped, then stars that are a whole name, then other stars in a row.
_ROWS = re.compile(r"\\.|(^!?|/)\*{2,}(?=/|\s*$)|\*{2,}")
_FEW_STARS = 2  # with so many stars, `re` takes a tenth of a second at most for the longest path
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
        patterns: Patterns in the syntax of .gitignore; a later one takes precedence.
    """

    def __init__(self, patterns: list[str]) -> None:
        # Not at the top: agents and ranks, which only unpack, do not need it.
        from pathspec import GitIgnoreSpec

        self._left_s = _MOST_S
        self._deadline = 0.0  # the deadline of the path that is being matched
        lines = [_with_single_stars(line) for line in patterns if line]
        self._spec = GitIgnoreSpec.from_lines(lines)
        for line, pattern in zip(lines, self._spec.patterns, strict=True):
            compiled = getattr(pattern, "regex", None)  # a comment has none
            num_stars = len(_STARS.findall(line))
            if compiled is not None and num_stars > 1:
                timed = _Timed(compiled, self, is_few=num_stars <= _FEW_STARS)
                setattr(pattern, "regex", timed)  # noqa: B010  # no re.Pattern

    def left_s(self) -> float:
        """Return the rest of the time limit while a path is matched, in seconds.

        Raises:
            TimeoutError: No time is left.
        """
        if (left_s := self._deadline - time.monotonic()) <= 0:
            raise TimeoutError
        return left_s

    def match_file(self, path: str) -> bool:
        """Return whether a path below the folder is ignored; that of a folder ends with `/`.

        Raises:
            TooSlow: The time limit for all paths together is exceeded.
        """
        began = time.monotonic()
        self._deadline = began + self._left_s
        try:
            return self._spec.match_file(path)
        except TimeoutError:
            raise TooSlow from None
        finally:
            self._left_s -= time.monotonic() - began
            if self._left_s <= 0:
                raise TooSlow


class _Timed:
    """Replaces a compiled pattern: the methods that pathspec calls, with a time limit.

    Args:
        compiled: The pattern.
        rules: The rules, which have the time limit.
        is_few: Whether it has so few stars that the limit need not be checked within it.
    """

    def __init__(self, compiled: re.Pattern[str], rules: IgnoreRules, *, is_few: bool) -> None:
        self.pattern = compiled.pattern
        self._left_s = rules.left_s
        self._find: Callable[[str, float], Any] = lambda path, left_s: compiled.search(path)
        if not is_few:
            import regex

            slow = regex.compile(compiled.pattern)
            self._find = lambda path, left_s: slow.search(path, timeout=left_s)

    def search(self, path: str) -> Any:
        return self._find(path, self._left_s())

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
        f"{folder}/{IGNORE_FILE}: its patterns took over {_MOST_S:g} s; write fewer and simpler "
        "ones, with one `*` or `**` each"
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
