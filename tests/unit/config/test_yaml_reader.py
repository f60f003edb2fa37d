"""YAML's traps: read as the user meant, or told with the line and what to write."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.config import lines_of_paths, parse_config, parse_yaml
from det_jupyter.config.yaml_text import with_lines
from det_jupyter.errors import ConfigError, Problem
from tests.problems import said


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text)
    return said(caught.value.problems)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001), ("1E5", 1e5), ("-1e-3", -0.001), ("1.5e3", 1500.0), (".5", 0.5),
        ("5.", 5.0), (".5e3", 500.0), ("1_000", 1000), ("-7", -7), ("+7", 7), ("0", 0),
        ("0x1F", 31), ("0o17", 15), ("0b101", 5), ("0.10", 0.1), ("00.5", 0.5),
        ("1:30", "1:30"), ("12:30:45", "12:30:45"), ("2024-01-31", "2024-01-31"),
        ("2024-01-31 10:00:00", "2024-01-31 10:00:00"), ("true", True), ("False", False),
        ("null", None), ("~", None), ("", None), ("1.2.3", "1.2.3"), ("=", "="), ("y", "y"),
        ("n", "n"), ('"off"', "off"), ("'010'", "010"), ('"None"', "None"), ("!!str 5", "5"),
        ("None", "None"), ("[None, 1]", ["None", 1]),
        ("!!float 5", 5.0), ("1e", "1e"), ("e5", "e5"), ("-", [None]), ("0x", "0x"),
    ],
)  # fmt: skip
def test_plain_words_and_numbers_are_read_as_they_look(text: str, value: Any) -> None:
    found = parse_yaml(f"data:\n  x: {text}" if text != "-" else "data:\n  x:\n  -")["data"]["x"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("perform_initial_validation: on", {"perform_initial_validation": True}),
        ("searcher: {smaller_is_better: No}", {"searcher": {"smaller_is_better": False}}),
        ("description: off", {"description": "off"}),
        ("labels: [on, 010, None]", {"labels": ["on", "010", "None"]}),
        ("max_restarts: yes", None),
        ("max_restarts: 010", None),
        ("max_restarts: None", None),
    ],
)
def test_the_field_decides_where_versions_of_yaml_differ(
    text: str, document: dict[str, Any] | None
) -> None:
    if document is not None:
        assert parse_yaml(text) == document
    else:
        assert problems_of(text)[0].startswith("line 1: max_restarts: ")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("off", 'off is false in one version of YAML and text in the next; write false, or "off" '
                "if it is text"),
        ("Yes", 'Yes is true in one version of YAML and text in the next; write true, or "Yes" '
                "if it is text"),
        ("010", "010 is 8 in one version of YAML (octal) and 10 in the next; write 10, or \"010\" "
                "if it is text"),
        ("-09", "-09 is no number in one version of YAML (octal) and -9 in the next; write -9, or "
                '"-09" if it is text'),
    ],
)  # fmt: skip
def test_where_nothing_decides_the_line_and_the_remedy_are_told(value: str, problem: str) -> None:
    assert problems_of(f"hyperparameters:\n  lr: 1\n  x: {value}") == [
        f"line 3: hyperparameters.x: {problem}"
    ]


def test_all_traps_are_told_at_once() -> None:
    text = "hyperparameters:\n  a: [1, on]\n  b: 1\n  b: 2\n  c: {vals: [off]}\n"
    assert [problem.split(" is ")[0] for problem in problems_of(text)] == [
        "line 2: hyperparameters.a[1]: on",
        "line 4: hyperparameters.b: given twice, in lines 3 and 4",
        "line 5: hyperparameters.c.vals[0]: off",
    ]


def test_keys_are_text_whatever_they_look_like() -> None:
    assert parse_yaml("data: {on: 1, 5: 2, true: 3, 1e3: 4, null: 5}") == {
        "data": {"on": 1, "5": 2, "true": 3, "1e3": 4, "null": 5}
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("? [a]\n: 1", "line 1: expected a name as key, got a sequence"),
        (
            "data: {{a: 1}: 2}",
            "line 1: data: expected a name as key, got a mapping; no template fills {{ }} in here",
        ),
        ("a: 1\n? \n: 2", "line 2: expected a name as key, got nothing"),
        ("a: !!int x", "line 1: a: got 'x', expected a value of type int"),
        ("a: !!bool maybe", "line 1: a: got 'maybe', expected a value of type bool"),
        ("a: !!set {b}", "line 1: a: the tag tag:yaml.org,2002:set is not allowed"),
        ("a: !mine 1", "line 1: a: the tag !mine is not allowed"),
        ("a: " + "9" * 500, "line 1: a: got a number of 500 digits"),
        ("a: 1\n\x00", "line 2: this is not YAML: the character #x0000 is not allowed"),
        (
            "a: 1\n---\nb: 2",
            "line 2: a second document begins here; expected one",
        ),
        ("a: *b", "line 1: a: this is not YAML: found undefined alias 'b'"),
    ],
)
def test_what_no_configuration_can_be_is_refused_with_its_line(text: str, problem: str) -> None:
    assert problems_of(text) == [problem]


@pytest.mark.parametrize("first", ["a0: &a0 [1, 1]", "a0: &a0 {x: 1, y: 1}"])
def test_anchors_are_no_bomb(first: str) -> None:
    lines = [first, *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30))]
    (problem,) = problems_of("\n".join(lines))
    assert "is too large, with all its *anchors" in problem
    assert lines_of_paths("\n".join(lines)) == {}


def test_merged_keys_are_no_bomb() -> None:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 30)]
    (problem,) = problems_of("\n".join(lines))
    assert "is too large" in problem


def test_problems_get_the_lines_that_they_are_about() -> None:
    text = "name: a\nsearcher:\n  name: single\nbind_mounts:\n- host_path: /a\n- {}\n"
    problems = [
        Problem("searcher.metric", "missing"), Problem("bind_mounts[1].host_path", "missing"),
        Problem("name", "got a"), Problem("entrypoint", "missing"),
        Problem("bind_mounts[0].zzz", "unknown"),
    ]  # fmt: skip
    assert said(with_lines(problems, lines_of_paths(text))) == [
        "line 1: name: got a",
        "line 2: searcher.metric: missing",
        "line 5: bind_mounts[0].zzz: unknown",
        "line 6: bind_mounts[1].host_path: missing",
        "entrypoint: missing",
    ]


@pytest.mark.parametrize("text", ["0o_", "0x_", "0b__", "-0x_"])
def test_a_prefix_without_digits_is_text(text: str) -> None:
    assert parse_yaml(f"name: {text}") == {"name": text}


def test_prefixed_numbers_may_have_underscores() -> None:
    assert parse_yaml("a: 0x_ff\nb: 0o1_7\nc: 0b_1_0") == {"a": 255, "b": 15, "c": 2}


def test_an_entry_itself_counts_before_what_is_merged_and_the_first_source_before_others() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\ndata:\n  z: 3\n  <<: [*a, *b]\n"
    assert parse_yaml(text)["data"] == {"x": 1, "y": 1, "z": 3}
    assert lines_of_paths(text)["data.y"] == 1
    assert lines_of_paths(text)["data.z"] == 4


def test_what_cannot_be_merged_is_told_with_all_else() -> None:
    assert problems_of("data: {<<: 5, x: off}") == [
        "line 1: data.<<: got 5, expected a mapping",
        "line 1: data.x: off is false in one version of YAML and text in the next; write false, "
        'or "off" if it is text',
    ]


def test_the_place_of_an_anchor_decides_what_its_words_mean() -> None:
    text = "description: &word off\nperform_initial_validation: *word\n"
    assert parse_yaml(text) == {"description": "off", "perform_initial_validation": False}


def test_paths_and_values_that_look_like_sentences_stay_whole() -> None:
    """A path was read out of its sentence once, up to the first colon."""
    strange = parse_problems({"hyperparameters": {"a: missing": {"type": "nope"}}})
    assert [problem.path for problem in strange][:1] == ["hyperparameters.a: missing.type"]


def test_a_key_that_is_there_under_a_like_name_is_not_missing_too() -> None:
    near = {"searcher": {"name": "single", "metrc": "loss", "max_length": {"epochs": 1}}}
    (problem,) = [each for each in parse_problems(near) if each.path.startswith("searcher")]
    assert (problem.path, problem.meant) == ("searcher.metrc", "searcher.metric")
    older = {"entrypoint": "A", "searcher": {"name": "single", "metric": "l", "max_steps": "x"}}
    (problem,) = parse_problems(older)
    assert (problem.path, problem.meant) == ("searcher.max_steps", "searcher.max_length")


def parse_problems(document: dict[str, Any]) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        parse_config(document, default_seed=1)
    return caught.value.problems
