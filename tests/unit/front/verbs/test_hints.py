"""Lines in backticks, which messages tell the reader to type, are lines of the command."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from det_jupyter.contract.values.reader import SHELL
from det_jupyter.errors import UsageError
from det_jupyter.front.cli.shell_table import shell_parser
from det_jupyter.front.verbs.grammar import HelpShown, parse
from tests.rooms import modules_with
from tests.unit import test_pages
from tests.unit.front.verbs.test_answers import FILE

# A line to type begins, maybe in the text that follows.
_BEGIN = re.compile(r"`!?(?:%{0,2}det|\{)|`[\"']\s")
_LINE = re.compile(r"`!?(%{0,2}det(?:_experiment)? [^`\n]+)`")


def lines_in(text: str) -> Iterator[str]:
    """Yield the lines to type in a text; names of numbers become one."""
    text = text.replace("{det}", SHELL.det).replace("{cli}", SHELL.det)
    for line in _LINE.findall(text):
        yield re.sub(r"\b(?:[NM]|ID)\b", "7", line)


def messages(source: str) -> Iterator[str]:
    """Yield the texts in a module, as a shell's reader gets them; other values are 7."""
    nodes = [*ast.walk(ast.parse(source))]
    inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr)
              for part in node.values}  # fmt: skip
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(map(piece, node.values))
        elif isinstance(node, ast.Constant) and id(node) not in inside:
            yield str(node.value)


def piece(part: ast.expr) -> str:
    if isinstance(part, ast.FormattedValue):
        name = ast.unparse(part.value).rpartition(".")[2]
        return {"det": SHELL.det, "experiment": SHELL.experiment}.get(name, "7")
    return str(part.value) if isinstance(part, ast.Constant) else ""


def problem_of(line: str) -> str:
    """Return what is wrong with a line; one may be named without its arguments."""
    if line.startswith("%"):
        return test_pages.problem_of(line)
    try:
        parse(shell_parser(), line.partition(" ")[2])
    except HelpShown:
        return ""
    except UsageError as error:
        return "" if "required" in str(error) else f"{line}: {error}"
    return ""


@pytest.mark.parametrize(
    ("files", "texts_of"),
    [
        (lambda: modules_with(_BEGIN), messages),
        (lambda: [FILE], lambda text: iter([text])),
    ],
    ids=["code", "answers"],
)
def test_lines_to_type_are_lines_of_the_command(
    files: Callable[[], Iterable[Path]], texts_of: Callable[[str], Iterator[str]]
) -> None:
    sources = [path.read_text(encoding="utf-8") for path in files()]
    lines = {line for source in sources for text in texts_of(source) for line in lines_in(text)}
    assert len(lines) > 3
    assert [problem for line in sorted(lines) if (problem := problem_of(line))] == []
