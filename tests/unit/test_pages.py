"""The pages are true where that can be looked up: links, names of files, lines to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path

from det_jupyter.errors import UsageError
from det_jupyter.front.cli.shell_table import shell_parser
from det_jupyter.front.notebook.complete.magic_parsers import (
    CELL_VERBS,
    cell_parser,
    det_parser,
    line_parser,
)
from det_jupyter.front.verbs.grammar import HelpShown, LineParser, parse, parse_words

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
CURRENT = [page for page in PAGES if page.name != "CHANGELOG.md"]  # it names what was

_LINK = re.compile(r"\]\((?!http)([^)#\s]+)")
_FILE = re.compile(r"`((?:[\w-]+/)+[\w-]+\.(?:py|ts|md|ipynb))`")
_LINE = re.compile(r"(?:^|`)(%%?det(?:_experiment)?\b[^`\n]*)", re.MULTILINE)
_SHELL_LINE = re.compile(r"^(?:eval \"\$\()?(det [^\n]*?)(?:\)\".*)?$", re.MULTILINE)
_OPEN = re.compile(r"…|\.\.\.| #|  ")  # what follows is not part of the line


Look = Callable[[Path, str], list[str]]


def wrong_in(pages: Iterable[Path], look: Look) -> dict[str, list[str]]:
    """Return by page what is wrong in it, as `look` finds it in its text."""
    found = {str(page.relative_to(ROOT)): look(page, page.read_text()) for page in pages}
    assert found, "there are no pages"
    return {page: wrong for page, wrong in found.items() if wrong}


def test_relative_links_lead_somewhere() -> None:
    def look(page: Path, text: str) -> list[str]:
        return [link for link in _LINK.findall(text) if not (page.parent / link).exists()]

    assert not wrong_in(PAGES, look)


def test_files_that_are_named_exist() -> None:
    """A name starts in the repository's folder or in det_jupyter/."""

    def look(page: Path, text: str) -> list[str]:
        folders = (ROOT, ROOT / "det_jupyter")
        names = _FILE.findall(text)
        return [name for name in names if not any((each / name).exists() for each in folders)]

    assert not wrong_in(CURRENT, look)


def test_lines_to_type_are_lines_of_the_table() -> None:
    def look(page: Path, text: str) -> list[str]:
        lines = (_OPEN.split(line)[0] for line in _LINE.findall(text))
        return [problem for line in lines if (problem := problem_of(line))]

    assert not wrong_in(CURRENT, look)


def problem_of(line: str) -> str:
    """Return what is wrong with a line; one may be named without its arguments."""
    magic, _, words = re.sub(r"\{[^}]*\.id\}", "7", line).partition(" ")
    if not words:
        return ""
    try:
        parse(parser_of(magic, words), words)
    except HelpShown:
        return ""
    except UsageError as error:
        return "" if "required" in str(error) else str(error)
    return ""


def test_lines_for_a_shell_are_lines_of_the_command() -> None:
    def look(page: Path, text: str) -> list[str]:
        lines = (_OPEN.split(line)[0].strip() for line in _SHELL_LINE.findall(text))
        parts = (part for line in lines for part in re.split(r" && | \| ", line))
        return [problem for part in parts if (problem := problem_of_command(part))]

    assert not wrong_in(CURRENT, look)


def problem_of_command(line: str) -> str:
    """Return what is wrong with a line of a shell; `ssh HOST det ...` runs det elsewhere."""
    words = shlex.split(re.sub(r"^(ssh \S+ )?det ", "", line))
    if words[0] in ("source", "…"):
        return ""
    try:
        parse_words(shell_parser(), words)
    except HelpShown:
        return ""
    except UsageError as error:
        return f"{line}: {error}"
    return ""


def parser_of(magic: str, words: str) -> LineParser:
    if magic.endswith("det"):
        return det_parser()
    if magic.startswith("%%") and words.split()[0] not in CELL_VERBS:
        return cell_parser()
    return line_parser()
