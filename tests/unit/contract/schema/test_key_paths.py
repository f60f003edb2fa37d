"""Paths of values in a configuration, and how values and problems are written."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.schema.key_paths import (
    enclosing_paths,
    format_value,
    join,
    join_all,
    look_up,
    section,
    sort_problems,
)
from det_jupyter.errors import Problem

DOCUMENT: dict[str, Any] = {"a": {"b": {"c": 0}, "list": [1]}, "text": "x", "none": None}


def test_a_path_has_keys_with_dots_and_indices_in_brackets() -> None:
    assert join_all(["a", 0, 1, "b"]) == "a[0][1].b"
    assert join_all([]) == ""
    assert list(enclosing_paths("a[0][1].b")) == ["a[0][1].b", "a[0][1]", "a[0]", "a"]


@pytest.mark.parametrize(
    ("key", "written"),
    [("plain", "plain"), ("two\nlines", "'two\\nlines'"), ("k" * 60, "k" * 60),
     ("k" * 61, "'" + "k" * 56 + "...")],
)  # fmt: skip
def test_a_key_that_is_no_name_is_quoted_and_cut(key: str, written: str) -> None:
    assert join("", key) == written


@pytest.mark.parametrize(
    ("path", "value"),
    [("a.b.c", 0), ("a.b", {"c": 0}), ("a.missing.c", None), ("text.x", None), ("none", None),
     ("a.list.x", None)],
)  # fmt: skip
def test_looking_up_a_path_that_leads_nowhere_gives_none(path: str, value: Any) -> None:
    assert look_up(DOCUMENT, path) == value


def test_a_section_that_is_no_mapping_is_empty() -> None:
    assert section(DOCUMENT, "a") is DOCUMENT["a"]
    assert [section(DOCUMENT, name) for name in ("text", "none", "missing")] == [{}, {}, {}]


def test_problems_are_sorted_by_number_in_lists_and_each_is_there_once() -> None:
    paths = ["b[10]", "b[9]", "a", "b[9]", "b"]
    found = sort_problems([*(Problem(path, "x") for path in paths), Problem("a", "w")])
    assert [(each.path, each.text) for each in found] == [
        ("a", "w"), ("a", "x"), ("b", "x"), ("b[9]", "x"), ("b[10]", "x"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "null"), (True, "true"), (False, "false"), (1.5, "1.5"), ("a", "'a'"),
     ((1, 2), "a tuple"), ({1}, "a set"), ([1] * 99, "[" + "1, " * 18 + "1,...")],
)  # fmt: skip
def test_values_are_written_as_in_yaml_and_cut(value: Any, text: str) -> None:
    assert format_value(value) == text


def test_what_python_refuses_to_write_is_named_by_its_type() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert (format_value(10**5000), format_value(deep)) == ("a int", "a list")
