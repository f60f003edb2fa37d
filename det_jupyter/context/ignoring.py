"""What of a context directory stays behind: `.detignore`, in gitignore's syntax, and the usual."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE = ".detignore"
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


class Ignored:
    """The patterns of one folder.

    Args:
        folder: Its root, where `.detignore` may be.
        problems: Gets what is wrong with that file.
    """

    def __init__(self, folder: Path, problems: list[str]) -> None:
        # Not at the top: agents and ranks, which only unpack, do without it.
        from pathspec import GitIgnoreSpec

        self._spec: GitIgnoreSpec = GitIgnoreSpec.from_lines(
            [*_USUAL, *_own_patterns(folder / IGNORE_FILE, problems)]
        )

    def has(self, name: str, *, is_folder: bool) -> bool:
        """Return whether a path below the root stays behind; a link is no folder, as in git."""
        return self._spec.match_file(f"{name}/" if is_folder else name)


def _own_patterns(file: Path, problems: list[str]) -> list[str]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        problems.append(f"{file}: {reason}; it holds patterns like those of .gitignore")
        return []
    patterns = []
    for number, line in enumerate(text.splitlines(), 1):
        if reason := _find_fault(line):
            problems.append(f"{file}: line {number}: {line!r} is no pattern: {reason}")
        else:
            patterns.append(line)
    return patterns


def _find_fault(line: str) -> str:
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([line])
    except re.error as error:
        return str(error)
    except ValueError:
        return "it means nothing in .gitignore's syntax"
    return ""
