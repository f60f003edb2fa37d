"""Whatever is written, the answer is a configuration that survives, or a list of problems."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from det_jupyter.config import (
    check_sanity,
    merge,
    notices,
    origins,
    parse_config,
    parse_yaml,
    read_yaml,
    to_yaml,
)
from det_jupyter.config.tree import all_paths
from det_jupyter.config.yaml_text import with_lines
from det_jupyter.errors import ConfigError
from tests.problems import said
from tests.unit.config.test_config_foreign import EVERYTHING

SEARCHERS: list[dict[str, Any]] = [
    {"name": "single", "metric": "a", "max_length": 5},
    {"name": "random", "metric": "a", "max_length": {"epochs": 5}, "max_trials": 3},
    {"name": "grid", "metric": "a", "max_length": 5},
    {"name": "async_halving", "metric": "a", "max_length": 64, "max_trials": 3, "num_rungs": 2},
    {"name": "adaptive_asha", "metric": "a", "max_trials": 3, "time_metric": "batches",
     "max_time": 9},
    {"name": "optuna", "metric": "a", "max_trials": 3, "max_length": 9,
     "sampler_args": {"n": None}},
    {"name": "adaptive", "metric": "a", "max_length": 5, "budget": 50},
    {"name": "pbt", "metric": "a"},
]  # fmt: skip
WORDS = sorted({key for path in all_paths() for key in path.split(".")})
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6),
    st.sampled_from([*WORDS, "single", "random", "s3", "int", "log", "/a", "/a:/b", "A=1"]),
    st.sampled_from([0, 1, 2, 10**30, 1e308, 5.0, 2**63]),
    st.sampled_from([b"x", {1}, object(), 1j, "\ud800"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=2).map(tuple),
        st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner, max_size=3),
        st.dictionaries(st.integers() | st.none() | st.sampled_from(["a"]), inner, max_size=2),
    ),
    max_leaves=8,
)


def places_of(value: Any) -> list[tuple[Any, Any]]:
    """Return every place in a document where a value can be put, as container and key."""
    if isinstance(value, dict):
        below = [place for item in value.values() for place in places_of(item)]
        return [(value, key) for key in value] + below
    if isinstance(value, list):
        below = [place for item in value for place in places_of(item)]
        return [(value, index) for index in range(len(value))] + below
    return []


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    document = copy.deepcopy(parse_yaml(EVERYTHING))
    document["searcher"] = copy.deepcopy(draw(st.sampled_from(SEARCHERS)))
    for _ in range(draw(st.integers(0, 4))):
        container, key = draw(st.sampled_from(places_of(document)))
        match draw(st.sampled_from(["put", "remove", "add"])):
            case "put":
                container[key] = draw(VALUES)
            case "remove":
                del container[key]
            case _ if isinstance(container, dict):
                container[draw(st.sampled_from(WORDS))] = draw(VALUES)
            case _:
                container.append(draw(VALUES))
    return document


def assert_answered(document: Any) -> None:
    """Assert that the document is refused with problems, or taken and kept as it is."""
    for problem in said(check_sanity(document)):
        assert_is_problem(problem)
    try:
        config = parse_config(document, default_seed=1)
    except ConfigError as error:
        assert_are_problems(error)
        return
    effective = config.to_document()
    assert json.loads(json.dumps(effective, allow_nan=False)) == effective
    assert parse_config(effective) == config
    assert config.to_document() == parse_config(effective).to_document()
    found = origins(document, {}, effective)
    notices(effective)
    if "secrets" not in to_yaml(effective) and "registry_auth" not in to_yaml(effective):
        assert parse_config(parse_yaml(to_yaml(effective, found))) == config


def assert_are_problems(error: ConfigError) -> None:
    assert error.problems
    for problem in said(error.problems):
        assert_is_problem(problem)


def assert_is_problem(problem: str) -> None:
    assert problem.isprintable(), problem
    assert "\n" not in problem


@settings(max_examples=60)
@given(mutated())
def test_a_valid_document_may_change_in_any_way(document: dict[str, Any]) -> None:
    assert_answered(document)


WHOLE = parse_yaml(EVERYTHING)


@settings(max_examples=50)
@given(mutated(), mutated())
@example(WHOLE, WHOLE | {"labels": ()})
@example(WHOLE, WHOLE | {"resources": {"devices": ()}})
@example(WHOLE | {"labels": [10**5000]}, WHOLE | {"labels": [10**5000]})
@example(WHOLE | {"version": 0}, {"entrypoint": "T", "version": None})
def test_any_template_may_lie_below_any_document(
    template: dict[str, Any], document: dict[str, Any]
) -> None:
    try:
        config = parse_config(document, default_seed=1, template=template)
    except ConfigError as error:
        assert_are_problems(error)
        return
    assert parse_config(config.to_document()) == config
    assert parse_config(merge(template, document), default_seed=1) == config
    origins(document, template, config.to_document())


@given(st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=5), VALUES, max_size=5) | VALUES)
def test_any_document_is_answered(document: Any) -> None:
    assert_answered(document)


@settings(max_examples=100)
@given(st.text(st.sampled_from("ab:-[]{}&*!|>'\"%@`#?,\n\t 01.e~<=yesnofFalrchi_\x00é😀\ufeff")))
@example("a: !!timestamp x")
@example("a: !!binary x")
@example("a: !!float x")
@example("!!python/none")
@example("a: &a\n- *a")
@example("{<<: 5}")
@example("{<<: {a: 1}, a: 2}")
@example("a: <<")
@example("? ")
@example("a: " + "[" * 900)
@example("\ufeffa: 1")
@example('a: "\\ud800"')
@example("a: 0x" + "f" * 300)
@example("searcher: 1_\nresources: -_")
def test_any_text_is_answered(text: str) -> None:
    reading = read_yaml(text)
    assert_answered(reading.document)
    with_lines(reading.problems + check_sanity(reading.document), reading.lines)
    try:
        assert parse_yaml(text) == reading.document
    except ConfigError as error:
        assert_are_problems(error)
        assert reading.problems


@settings(max_examples=40)
@given(mutated(), st.data())
def test_a_file_may_be_damaged_anywhere(document: dict[str, Any], data: st.DataObject) -> None:
    try:
        text = yaml.safe_dump(document)
    except (yaml.YAMLError, ValueError):
        return
    start = data.draw(st.integers(0, len(text)))
    text = text[:start] + data.draw(st.text(max_size=3)) + text[start + 1 :]
    try:
        assert_answered(parse_yaml(text))
    except ConfigError as error:
        assert_are_problems(error)


HUGE = -(10**5000)


@pytest.mark.parametrize(
    "part",
    [{"max_restarts": HUGE}, {"data": {"x": [HUGE]}}, {"zzz": HUGE}, {"name": HUGE},
     {"hyperparameters": {"x": {"type": "int", "minval": HUGE, "maxval": 1}}},
     {"hyperparameters": {"x": {"type": HUGE}}}, {"searcher": {"name": HUGE}},
     {"searcher": {"name": "pbt", "num_rounds": HUGE}}, {"resources": {"slots_per_trial": HUGE}},
     {"min_validation_period": {"epochs": HUGE}}],
)  # fmt: skip
def test_a_number_of_thousands_of_digits_is_a_problem_like_any_other(part: dict[str, Any]) -> None:
    assert_answered({"entrypoint": "A", "searcher": SEARCHERS[0]} | part)
    assert any("a number that 64 bits can hold" in problem for problem in said(check_sanity(part)))


def test_a_list_that_holds_itself_is_refused() -> None:
    bottomless: list[Any] = []
    bottomless.append(bottomless)
    assert said(check_sanity({"data": {"x": bottomless}})) == [
        "data: nested too deeply; expected at most 50 levels"
    ]
