"""Changes of a configuration that a line gives: `--config KEY=VALUE`."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.errors import ConfigError
from det_jupyter.front.verbs.yaml_input import read_overrides
from tests.problems import said


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=1", {"a": {"b": 1}}),
        ("a=x=y", {"a": "x=y"}),
        ("a=1,2", {"a": [1, 2]}),
        ("a=[1, {b: 2}]", {"a": [1, {"b": 2}]}),
        ("a={b: 1, c: 2}", {"a": {"b": 1, "c": 2}}),
        ("a='x,y'", {"a": "x,y"}),
    ],
)
def test_changes_are_read_from_a_line(text: str, value: dict[str, Any]) -> None:
    assert read_overrides([text], None) == value


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("searcher.max_length.batches=10", "searcher.max_length.epochs=2"),
        ("data.a=1", "data.a=2"),
        ("data.a=1", "data.a.b=2"),
        ("data.a.b=2", "data.a=1"),
        ("data.a={b: 1}", "data.a.b=2"),
        ("data.a=1", "data.a=null"),
    ],
)
def test_changes_that_undo_one_another_are_refused(first: str, second: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_overrides([first, "data.c=3", second], "data: {a: 5}\n")
    assert said(caught.value.problems) == [
        f"--config: got {first} and {second}, expected only one of them"
    ]


def test_changes_of_the_same_section_go_together() -> None:
    cell = "data: {b: 0, c: 1}\nlabels: [x]\n"
    assert read_overrides(["data.b=2", "data={d: 3}", "data.b=2", "labels=y", "name=n"], cell) == {
        "data": {"b": 2, "c": 1, "d": 3}, "labels": "y", "name": "n",
    }  # fmt: skip


def test_changes_that_cannot_be_read_are_told_together() -> None:
    with pytest.raises(ConfigError) as caught:
        read_overrides(["a", "b.=1", "c=[1"], None)
    assert said(caught.value.problems) == [
        "--config: got 'a', expected KEY=VALUE, such as searcher.max_length.epochs=12",
        "--config: got 'b.=1', expected KEY=VALUE, such as searcher.max_length.epochs=12",
        "--config: got 'c=[1', expected YAML after the =",
    ]


@pytest.mark.parametrize("value", ["{host_path: /a}", "[{host_path: /a}]"])
def test_one_value_of_a_list_is_a_list_of_one(value: str) -> None:
    found = read_overrides([f"bind_mounts={value}", "name=[a]"], None)
    assert found == {"bind_mounts": [{"host_path": "/a"}], "name": ["a"]}
