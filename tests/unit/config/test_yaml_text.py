"""A mistake in the text hides nothing else of a configuration, nor of the template under it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from det_jupyter.config import Sources, check_sanity, read_yaml
from det_jupyter.config.yaml_text import with_lines
from det_jupyter.errors import Problem
from tests.problems import said

WRONG = """\
name: digits
entrypoint: DigitsTrial
hyperparameters:
  global_batch_size: 64
  layers: [1, 2]
searcher:
  name: random
  max_length: {epochs: 6}
labels:
- a
- b
max_restarts: five
resources:
  slots_per_trial: 2
  weight: -1
"""
FOUND = [
    "line 12: max_restarts: got 'five', expected a number",
    "line 15: resources.weight: got -1, expected at least 0.001",
]


def problems_of(text: str) -> list[str]:
    reading = read_yaml(text)
    return said(with_lines(reading.problems + check_sanity(reading.document), reading.lines))


@pytest.mark.parametrize(
    ("good", "bad", "problem"),
    [
        ("[1, 2]", "[1, 2", "line 5: hyperparameters.layers: this is not YAML: the [ that begins "
                            "here is not closed"),
        ("{epochs: 6}", "{epochs: 6", "line 8: searcher.max_length: this is not YAML: the { that "
                                      "begins here is not closed"),
        ("{epochs: 6}", "{epochs: 6}}", "line 8: searcher.max_length: this is not YAML: '}' is "
                                        "left over; perhaps quotes are missing"),
        ("{epochs: 6}", "{", "line 8: searcher.max_length: this is not YAML: the { that begins "
                             "here is not closed"),
        ("{epochs: 6}", "{epochs: [6", "line 8: searcher.max_length: this is not YAML: the [ that "
                                       "begins here is not closed"),
        ("{epochs: 6}", "{epochs: 6,", "line 8: searcher.max_length: this is not YAML: the { that "
                                       "begins here is not closed"),
        ("name: digits", 'name: "digits', "line 1: name: this is not YAML: the quotation mark "
                                          "that begins here is not closed"),
        ("name: digits", "name: @digits", "line 1: name: this is not YAML: found character '@' "
                                          "that cannot start any token; put the value in quotes"),
        ("name: digits", "name:digits", "line 1: name: this is not YAML: got 'name:digits', "
                                        "expected `key: value` (no space after the colon)"),
        ("name: digits", "name digits", "line 1: name: this is not YAML: got 'name digits', "
                                        "expected `key: value` (no colon)"),
        ("name: digits", "name: digits: b", "line 1: name: this is not YAML: a second `key: ` in "
                                            "the line, or one indented more than the line before"),
        ("name: digits", "name: *digits", "line 1: name: this is not YAML: found undefined alias "
                                          "'digits'"),
        ("name: digits", "'name': [", "line 1: this is not YAML: the [ that begins here is not "
                                      "closed"),
        ("  name: random", " name: random", "line 8: this is not YAML: a second `key: ` in the "
                                            "line, or one indented more than the line before"),
        ("  max_length", " max_length", "line 8: this is not YAML: indented otherwise than the "
                                        "lines before"),
        ("- b", "- [b", "line 11: labels[1]: this is not YAML: the [ that begins here is not "
                        "closed"),
        ("  max_length", "\tmax_length", "line 8: this is not YAML: indent with spaces, not tabs"),
        ("[1, 2]", "{{ layers }}", "line 5: hyperparameters.layers: expected a name as key, got a "
                                    "mapping; no template fills {{ }} in here"),
        ("[1, 2]", "!my [1, 2]", "line 5: hyperparameters.layers: the tag !my is not allowed"),
        ("[1, 2]", "off", "line 5: hyperparameters.layers: off is false in one version of YAML "
                          'and text in the next; write false, or "off" if it is text'),
        ("labels:", "name: b\nlabels:", "line 9: name: given twice, in lines 1 and 9"),
        ("name: digits", "name: dig\x00its", "line 1: this is not YAML: the character #x0000 is "
                                             "not allowed"),
        ("labels:", "---\nlabels:", "line 9: a second document begins here; expected one"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_text_is_told_with_all_else(good: str, bad: str, problem: str) -> None:
    shift = bad.count("\n")
    others = [line.replace("12", str(12 + shift)).replace("15", str(15 + shift)) for line in FOUND]
    found = problems_of(WRONG.replace(good, bad, 1))
    assert problem in found
    assert set(others) <= set(found)
    assert [line for line in found if line not in others] == [problem]


def test_mistakes_in_many_places_are_told_at_once() -> None:
    text = (
        WRONG.replace("[1, 2]", "[1, 2").replace("{epochs: 6}", "{epochs: 6").replace("- b", "- [")
    )
    assert [line.partition(":")[0] for line in problems_of(text)] == [
        "line 5", "line 8", "line 11", "line 12", "line 15",
    ]  # fmt: skip


def test_text_may_be_damaged_anywhere_and_hides_nothing_that_is_elsewhere() -> None:
    draw = random.Random(3)
    for _ in range(60):
        lines = WRONG.split("\n")
        number = draw.randrange(11)
        place = draw.randrange(len(lines[number]) + 1)
        sign = draw.choice("[]{}:,'\"#&*!|>%@`\t")
        lines[number] = lines[number][:place] + sign + lines[number][place:]
        found = problems_of("\n".join(lines))
        assert set(FOUND) <= set(found), lines[number]


def test_text_without_anything_to_save_is_one_problem() -> None:
    reading = read_yaml("a: &x [*x]\n")
    assert (reading.document, reading.is_document) == ({}, False)
    assert said(reading.problems) == [
        "line 1: the value that begins here refers to itself (*anchor)"
    ]
    assert not read_yaml("").is_document
    assert not read_yaml("[1").is_document


def test_an_entry_of_a_list_is_told_where_it_was_written() -> None:
    mine = read_yaml("labels:\n- x\n- 1\ndata:\n  files: [2]\n")
    theirs = read_yaml("labels:\n- 3\n- x\ndata:\n  files:\n  - 4\n  - 5\n")
    sources = Sources(
        document=mine.document,
        lines=mine.lines,
        template=theirs.document,
        template_lines=theirs.lines,
    )
    # Merged: labels [3, x, 1], files [4, 5, 2].
    problems = [
        Problem(f"{path}[{i}]", "?") for path in ("labels", "data.files") for i in range(3)
    ]
    own, inherited = sources.locate(problems)
    assert said(own) == [
        "line 2: labels[0]: ?",
        "line 3: labels[1]: ?",
        "line 5: data.files[0]: ?",
    ]
    assert said(inherited) == [
        "line 2: labels[0]: ?",
        "line 6: data.files[0]: ?",
        "line 7: data.files[1]: ?",
    ]


def test_an_entry_beyond_the_lists_is_left_as_it_is() -> None:
    documents: dict[str, Any] = {"document": {"labels": ["a"]}, "template": {"labels": ["b"]}}
    beyond = Problem("labels[7]", "?")
    (found,), inherited = Sources(**documents, lines={"labels": 3}).locate([beyond])
    assert (str(found), inherited) == ("line 3: labels[7]: ?", [])


@pytest.mark.parametrize("template", [{}, {"labels": "b"}, {"labels": None}])
def test_an_entry_is_where_it_was_written_if_the_template_has_no_list(
    template: dict[str, Any],
) -> None:
    document = {"labels": ["a", "c"]}
    second = Problem("labels[1]", "?")
    found = Sources(
        document=document, template=template, lines={"labels": 3, "labels[1]": 5}
    ).locate([second])
    assert [said(each) for each in found] == [["line 5: labels[1]: ?"], []]
