"""The cursor's position in incomplete YAML."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.front.notebook.complete.yaml_words import find_cursor


@pytest.mark.parametrize(
    ("text", "section", "key", "typed"),
    [
        ("", (), None, ""),
        ("sea", (), None, "sea"),
        ("searcher:\n  na", ("searcher",), None, "na"),
        ("searcher:\n  ", ("searcher",), None, ""),
        ("searcher:\n  name: ad", ("searcher",), "name", "ad"),
        ("searcher:\n  name: random\nhyper", (), None, "hyper"),
        ("searcher: # how\n  # which\n\n  na", ("searcher",), None, "na"),
        ("searcher: {name: random, ma", ("searcher",), None, "ma"),
        ("searcher: {name: ra", ("searcher",), "name", "ra"),
        ("searcher: {max_length: {epochs: 4}, na", ("searcher",), None, "na"),
        ("searcher:\n  max_length: {ep", ("searcher", "max_length"), None, "ep"),
        ("searcher:\n  {name: grid,\n   metr", ("searcher",), None, "metr"),
        ("searcher: {metric: 'a, b', na", ("searcher",), None, "na"),
        ("a:\n  b:\n    c: 1\n  d", ("a",), None, "d"),
        ("hyperparameters:\n  lr: {type: ", ("hyperparameters", "lr"), "type", ""),
        ("hyperparameters:\n  opt:\n    lr:\n      type: l", ("hyperparameters", "opt", "lr"),
         "type", "l"),
        ("labels:\n- a\n- b\nna", (), None, "na"),
        ("environment:\n  environment_variables:\n    - A=1\n  im", ("environment",), None, "im"),
        ("checkpoint_policy: ", (), "checkpoint_policy", ""),
        ('name: "a: b"\nsea', (), None, "sea"),
        ("searcher: {max_length: {epochs: 4,\n  bat", ("searcher", "max_length"), None, "bat"),
        ("searcher: {\n  name: random,\n  ma", ("searcher",), None, "ma"),
        ("searcher: {metric: 'a}, na", ("searcher",), "metric", "'a}, na"),
        ("searcher: {metric: '}', na", ("searcher",), None, "na"),
        ("labels: [a, b", (), "labels", "b"),
        ("a: {b: [c, d", ("a",), "b", "d"),
        ("a: {b: {c: 1}, d", ("a",), None, "d"),
        ("a: {b: 1}\nc: x:y", (), "c", "x:y"),
        ("a: {b:c", ("a",), None, "b:c"),
        ("a: [b: c", (), "a", "b: c"),
        ("- a\n- b", (), None, "b"),
        ("a:\n  b: 1\n\nc", (), None, "c"),
    ],
)  # fmt: skip
def test_the_section_and_what_is_typed_are_found(
    text: str, section: tuple[str, ...], key: str | None, typed: str
) -> None:
    cursor = find_cursor(text)
    assert (cursor.section, cursor.key, cursor.typed) == (section, key, typed)


def test_what_is_written_before_is_known() -> None:
    cursor = find_cursor(
        "entrypoint: Cat  # mine\nsearcher: {name: grid, max_length: {epochs: 2}}\n"
        "hyperparameters:\n  lr: {type: 'log', base: 10, "
    )
    assert cursor.document == {
        "entrypoint": "Cat",
        "searcher": {"name": "grid", "max_length": {"epochs": "2"}},
        "hyperparameters": {"lr": {"type": "log", "base": "10"}},
    }
    assert cursor.given.keys() == {"type", "base"}


@given(st.text(alphabet="ab: \n{}[],'\"#-&*|>!?%@\t", max_size=60))
def test_no_text_is_too_wrong(text: str) -> None:
    cursor = find_cursor(text)
    assert isinstance(cursor.given, dict)
