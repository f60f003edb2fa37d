"""The table of verbs: it parses every line that a text of det_jupyter suggests."""

from __future__ import annotations

from typing import get_args

import pytest

from det_jupyter.contract.messages import Remedy
from det_jupyter.contract.messages.resources import RemedyVerb, command_lines
from det_jupyter.contract.values.reader import NOTEBOOK, SHELL
from det_jupyter.front.cli.shell_table import shell_parser
from det_jupyter.front.notebook.complete.magic_parsers import (
    DET,
    EXPERIMENT,
    det_parser,
    line_parser,
)
from det_jupyter.front.verbs.grammar import HelpShown, Verb, VerbGroup, make_parser, parse
from det_jupyter.front.verbs.showing import explain
from det_jupyter.front.verbs.table_others import OTHERS

REMEDIES = [
    Remedy(verb="pause", target=[3, 4], text=""),
    Remedy(verb="pause_at_once", target=[3], text=""),
    Remedy(verb="activate", target=[3], text=""),
    Remedy(verb="kill", target=[3], text=""),
    Remedy(verb="set", target=[3], values={"priority": 10, "max_slots": "none"}, text=""),
    Remedy(verb="set", target=[3], values={"pool": "at night"}, text=""),
    Remedy(verb="move", target=[3], values={"ahead_of": 2}, text=""),
    Remedy(verb="kill_and_continue", target=[3], text=""),
    Remedy(verb="kill_and_submit", target=[3], values={"slots_per_trial": 2}, text=""),
    Remedy(verb="enable_slots", target=["the left"], values={"slot_ids": [0, 1]}, text=""),
]
WITHOUT_A_LINE = {"wait", "reset_devices", "ask_for_devices", "add_agent", "end_processes"}


def test_each_remedy_is_tried_here() -> None:
    assert {remedy.verb for remedy in REMEDIES} | WITHOUT_A_LINE == set(get_args(RemedyVerb))


@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda remedy: remedy.verb)
def test_the_lines_of_a_remedy_are_lines_of_the_table(remedy: Remedy) -> None:
    lines = [line for line in command_lines(remedy, NOTEBOOK) if line.startswith("%")]
    assert lines
    for line in lines:
        magic, _, words = line.partition(" ")
        options = parse({"%det": det_parser, "%det_experiment": line_parser}[magic](), words)
        assert options.verb.name in words
    for line in [line for line in command_lines(remedy, SHELL) if line.startswith("det ")]:
        assert parse(shell_parser(), line.removeprefix("det ")).verb.name in line


@pytest.mark.parametrize("line", ["", "list wide", "pause 7", "logs 7 -f", "label add 7 good"])
def test_a_line_of_det_experiment_is_one_of_det_e(line: str) -> None:
    by_its_name, by_e = parse(line_parser(), line), parse(det_parser(), f"e {line}")
    assert by_e.verb is by_its_name.verb


def test_the_help_of_a_verb_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(HelpShown):
        parse(line_parser(), "why --help")
    assert "\nPrint why it does not run, and what would start it.\n" in capsys.readouterr().out


def test_the_help_of_det_experiment_has_that_of_its_cell(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(HelpShown):
        parse(line_parser(), "--help")
    _, of_lines, of_cells = capsys.readouterr().out.partition("\n\nas a cell magic: ")
    assert of_lines
    assert "--queue-anyway" in of_cells


def test_defaults_are_explained_as_they_are_written() -> None:
    [row] = [
        line
        for line in explain("", NOTEBOOK).splitlines()
        if line.startswith("min_checkpoint_period")
    ]
    assert "  {batches: 0}  " in row


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("t profile 1", {"steps": 10, "ranks": [0], "with_stack": False}),
        ("t profile 1 --steps 3 --ranks 0,2 --with-stack",
         {"steps": 3, "ranks": [0, 2], "with_stack": True}),
        ("e set 7", {"title": None, "priority": None, "weight": None, "pool": None}),
        ("e set 7 --name a -p 3 -w 0.5", {"title": "a", "priority": 3, "weight": 0.5}),
        ("e logs 7", {"rank": None, "tail": None, "level": None, "follow": False, "json": False}),
        ("e logs 7 --level INFO", {"level": "info"}),
        ("e fork 7", {"overrides": [], "trial": None, "checkpoint": None, "queue_anyway": False}),
        ("e lt 7", {"all": False, "csv": False, "json": False}),
    ],
)  # fmt: skip
def test_what_a_line_leaves_out_has_its_default(line: str, given: dict[str, object]) -> None:
    options = parse(det_parser(), line)
    assert {name: getattr(options, name) for name in given} == given


def test_the_examples_of_the_help_are_lines_of_the_table() -> None:
    for line in f"{EXPERIMENT.examples}\n{DET.examples}".splitlines():
        magic, _, words = line.strip().partition("  ")[0].partition(" ")
        if magic in ("%det", "%%det", "%det_experiment"):
            parser = line_parser() if magic == "%det_experiment" else det_parser()
            assert isinstance(parse(parser, words).verb, Verb)


def test_a_shell_command_can_be_made_of_the_same_groups() -> None:
    experiment = VerbGroup(
        name="experiment", help=EXPERIMENT.help.replace("%", "%%"), aliases=("e",),
        members=EXPERIMENT.members, default="list",
    )  # fmt: skip
    parser = make_parser(VerbGroup(name="det", help=DET.help, members=(experiment, *OTHERS)))
    assert parse(parser, "e pause 7").words == "det experiment pause"
    assert parse(parser, "experiment").verb.name == "list"
    assert parse(parser, "slot disable left 0 --drain").slots == [0]
