"""The pages are true where that can be looked up: links, names of files, lines to type."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    links = _LINK.findall(page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    """A name starts in the repository's folder or in det_jupyter/."""
    names = _FILE.findall(page.read_text())
    assert [
        name
        for name in names
        if not (ROOT / name).exists() and not (ROOT / "det_jupyter" / name).exists()
    ] == []


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.name)
def test_lines_to_type_are_lines_of_the_table(page: Path) -> None:
    lines = (_OPEN.split(line)[0] for line in _LINE.findall(page.read_text()))
    assert [problem for line in lines if (problem := problem_of(line))] == []


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


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.name)
def test_lines_for_a_shell_are_lines_of_the_command(page: Path) -> None:
    problems = []
    for line in _SHELL_LINE.findall(page.read_text()):
        for one in re.split(r" && | \| ", _OPEN.split(line)[0].strip()):
            # `ssh HOST det ...` runs det on another computer.
            words = shlex.split(re.sub(r"^(ssh \S+ )?det ", "", one))
            if words[0] not in ("source", "…"):
                try:
                    parse_words(shell_parser(), words)
                except HelpShown:
                    continue
                except UsageError as error:
                    problems.append(f"{one}: {error}")
    assert problems == []


def parser_of(magic: str, words: str) -> LineParser:
    if magic.endswith("det"):
        return det_parser()
    if magic.startswith("%%") and words.split()[0] not in CELL_VERBS:
        return cell_parser()
    return line_parser()
