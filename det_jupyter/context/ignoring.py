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


def ignore_rules(folder: Path, problems: list[str]) -> GitIgnoreSpec:
    """Return what of a folder stays behind, by paths below it; those of folders end with `/`.

    `problems` gets what is wrong with its `.detignore`.
    """
    # Not at the top: agents and ranks, which only unpack, do without it.
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
    return GitIgnoreSpec.from_lines(patterns)


def _lines_of(file: Path, problems: list[str]) -> list[str]:
    try:
        return file.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        problems.append(f"{file}: {reason}; it holds patterns like those of .gitignore")
        return []
