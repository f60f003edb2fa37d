"""Every verb of Determined's `det` is one of ours, or is answered with what is there instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, product
from pathlib import Path

import pytest

from det_jupyter.errors import UsageError
from det_jupyter.front.cli.shell_table import SHELL, shell_parser
from det_jupyter.front.verbs.grammar import HelpShown, VerbGroup, parse_words

VERBS = Path(__file__).parents[3] / "fixtures" / "determined" / "verbs.txt"  # of its 0.38.1


def _answer(words: tuple[str, ...]) -> str:
    try:
        parse_words(shell_parser(), words)
    except UsageError as error:
        return str(error)
    return ""


def test_a_verb_of_determined_is_known_by_each_of_its_names() -> None:
    lines = VERBS.read_text().splitlines()
    for words in chain(*(product(*(word.split("|") for word in each.split())) for each in lines)):
        said = _answer(words)
        assert "invalid choice" not in said, words
        assert not said or said.startswith("there is no `det") or " required" in said, said


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("tkn create", "there is no `det tkn`: there is one user: you"),
        ("user whoami", "there is no `det user`: there is one user: you"),
        ("rp bindings add", "there is no `det pool bindings`: there are no workspaces"),
        ("master config set", "there is no `det master config set`: its log has one level"),
        ("t set log-retention 7", "there is no `det trial set log-retention`: logs are kept"),
        ("deploy", "there is no `det deploy`: the master starts when something needs it"),
    ],
)
def test_what_is_missing_is_answered_with_what_is_there(line: str, answer: str) -> None:
    assert _answer(tuple(line.split())).startswith(answer)


def _instead(group: VerbGroup) -> Iterator[str]:
    yield from group.absent.values()
    for member in group.members:
        if isinstance(member, VerbGroup):
            yield from _instead(member)


@pytest.mark.parametrize("text", sorted({*_instead(SHELL)}))
def test_lines_that_answers_name_exist(text: str) -> None:
    for line in re.findall(r"`\{(?:det|cli)\} ([^`]*)`", text):
        said = ""
        with suppress(HelpShown):
            said = _answer(tuple(line.replace("ID", "1").split()))
        # `e delete`, say, is named without what it needs.
        assert not said or " are required: " in said, said
