"""Hyperparameters: what can be wrong with them, and samples that are the same everywhere."""

from __future__ import annotations

import random
import struct
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.contract.schema.hyperparameters import find_problems, sample_hparams
from det_jupyter.contract.schema.seeds import (
    MAX_SEED,
    draw_below,
    draw_between,
    draw_trial_seed,
    make_generator,
)
from tests.problems import said

GOLDEN_SPACE = {
    "opt": {"type": "categorical", "vals": ["sgd", "adam", "rms"]},
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
    "hidden": {"type": "int", "minval": 16, "maxval": 64},
    "global_batch_size": {"type": "const", "val": 64},
    "dropout": {"type": "double", "minval": 0, "maxval": 0.5},
}
# seed: dropout, hidden, lr, opt, name that Determined gave the trial, trial seed; in their order
GOLDEN: dict[int, list[tuple[float, int, float, str, str, int]]] = {
    0: [
        (0.2744067519636624, 16, 0.0064311720501319895, "adam",
         "d3dea19f-1551-49a5-b2d6-666224b70570", 1277901399),
        (0.4458865003910399, 40, 0.0006576107192827539, "adam",
         "e67daeca-274a-4acf-97a8-6587aec8df7a", 292249176),
        (0.19639239805041486, 41, 0.00016334587611069497, "adam",
         "9497eea5-7308-4d05-9013-455ef39226d5", 1963466437),
    ],
    42: [
        (0.18727005942368125, 44, 0.000355062142707077, "sgd",
         "142ccb98-66d6-4027-b918-2272d241ef27", 429389014),
        (0.02904180608409973, 39, 0.0010025956902289567, "rms",
         "95064505-34fd-400e-8103-4cf857e9d4b8", 1427830251),
    ],
    2147483647: [
        (0.19669556577506936, 45, 0.008263867145767342, "sgd",
         "f0dae1f6-281d-4dea-af0e-029fb7734a46", 1052615313),
    ],
}  # fmt: skip


def name_of(words: list[int]) -> str:
    """Return the random UUID of these four words."""
    return str(UUID(bytes=struct.pack("<4I", *words), version=4))


@pytest.mark.parametrize("seed", GOLDEN)
def test_a_seed_gives_the_samples_that_it_gave_in_determined(seed: int) -> None:
    generator = make_generator(seed)
    for dropout, hidden, lr, opt, name, trial_seed in GOLDEN[seed]:
        hparams = sample_hparams(GOLDEN_SPACE, generator)
        assert hparams == {
            "opt": opt, "lr": pytest.approx(lr, rel=1e-15), "hidden": hidden,
            "global_batch_size": 64, "dropout": dropout,
        }  # fmt: skip
        words = random.Random()
        words.setstate(generator.getstate())
        assert name_of([words.getrandbits(32) for _ in range(4)]) == name
        assert draw_trial_seed(generator) == trial_seed


def test_without_hyperparameters_only_name_and_seed_are_drawn() -> None:
    generator = make_generator(0)
    words = make_generator(0)
    assert sample_hparams({}, generator) == {}
    assert name_of([words.getrandbits(32) for _ in range(4)]) == (
        "ac0a7f8c-2faa-4497-b5a6-16b7c0cc21d8"
    )
    assert draw_trial_seed(generator) == 441365315


@given(seed=st.integers(0, MAX_SEED), count=st.integers(1, 10))
def test_words_and_numbers_are_those_of_numpy(seed: int, count: int) -> None:
    theirs, ours = np.random.RandomState(seed), make_generator(seed)
    for _ in range(count):
        assert ours.random() == theirs.random_sample()
    words = theirs.randint(0, 2**32, size=700, dtype=np.uint32)
    assert [ours.getrandbits(32) for _ in range(700)] == words.tolist()


@given(seed=st.integers(0, MAX_SEED), limit=st.integers(2, 2**32 - 1))
def test_whole_numbers_are_masked_and_drawn_again_as_numpy_does(seed: int, limit: int) -> None:
    theirs, ours = np.random.RandomState(seed), make_generator(seed)
    expected = theirs.randint(0, limit, size=5, dtype=np.uint32)
    assert [draw_below(ours, limit) for _ in range(5)] == expected.tolist()


@given(seed=st.integers(0, MAX_SEED), limit=st.integers(2**32 + 1, 2**63 - 1))
def test_large_whole_numbers_take_two_words(seed: int, limit: int) -> None:
    words, ours = make_generator(seed), make_generator(seed)
    found = draw_below(ours, limit)
    mask = 2 ** (limit - 1).bit_length() - 1
    while True:
        expected = ((words.getrandbits(32) << 32) + words.getrandbits(32)) & mask
        if expected < limit:
            break
    assert found == expected
    assert ours.getstate() == words.getstate()


def test_one_possible_value_draws_nothing() -> None:
    generator = make_generator(3)
    before = generator.getstate()
    space = {
        "a": {"type": "categorical", "vals": ["only"]},
        "b": {"type": "const", "val": [1, {"type": "int"}]},
        "c": None,
        "d": {},
    }
    assert sample_hparams(space, generator) == {
        "a": "only", "b": [1, {"type": "int"}], "c": None, "d": {},
    }  # fmt: skip
    assert generator.getstate() == before


def test_nested_names_are_drawn_in_their_sorted_order_however_they_are_written() -> None:
    drawn = {"type": "double", "minval": 0, "maxval": 1}
    one = {"b": {"y": drawn, "x": drawn}, "a": drawn, "Z": drawn}
    other = {"Z": drawn, "a": drawn, "b": {"x": drawn, "y": drawn}}
    sample = sample_hparams(one, make_generator(0))
    assert sample == sample_hparams(other, make_generator(0))
    values = [make_generator(0).random()]
    assert sample["Z"] == values[0] == 0.5488135039273248
    assert sample["a"] == 0.7151893663724195
    assert sample["b"] == {"x": 0.6027633760716439, "y": 0.5448831829968969}
    assert list(sample) == ["b", "a", "Z"]


@given(
    seed=st.integers(0, MAX_SEED),
    low=st.integers(-(10**9), 10**9),
    width=st.integers(1, 10**6),
)
def test_samples_are_within_their_bounds(seed: int, low: int, width: int) -> None:
    bounds = {"minval": low, "maxval": low + width}
    space = {"i": {"type": "int", **bounds}, "d": {"type": "double", **bounds}}
    sample = sample_hparams(space, make_generator(seed))
    assert isinstance(sample["i"], int)
    assert low <= sample["i"] <= low + width
    assert isinstance(sample["d"], float)
    assert low <= sample["d"] <= low + width


def test_both_ends_of_an_int_are_drawn() -> None:
    generator = make_generator(0)
    space = {"i": {"type": "int", "minval": 1, "maxval": 3}}
    assert {sample_hparams(space, generator)["i"] for _ in range(100)} == {1, 2, 3}


def test_a_number_between_is_as_likely_everywhere() -> None:
    generator = make_generator(0)
    drawn = [draw_between(generator, -1.0, 3.0) for _ in range(10_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        ({"type": "integer"}, [".type: got 'integer', expected int"]),
        ({"type": "resnet"}, [".type: got 'resnet', expected one of const, int, double, log, "
                              "categorical; a value of yours needs another key than type"]),
        ({"type": "int", "minval": 1},
         [".maxval: missing; a hyperparameter of type int needs it"]),
        ({"type": "int", "minval": 2, "maxval": 2},
         [".minval: got 2, expected less than maxval (2)"]),
        ({"type": "int", "minval": 0.5, "maxval": "3", "count": 0},
         [".minval: got 0.5, expected a whole number", ".maxval: got '3', expected a number",
          ".count: got 0, expected at least 1"]),
        ({"type": "double", "minval": 0, "maxval": float("inf")},
         [".maxval: got inf, expected a number"]),
        ({"type": "double", "minval": -1e308, "maxval": 1e308},
         [".maxval: got 1e+308, expected a range that is less wide"]),
        ({"type": "int", "minval": 0, "maxval": 2**63},
         [".maxval: got 9223372036854775808, expected a range that is less wide"]),
        ({"type": "log", "base": 10, "minval": 0, "maxval": 10**400},
         [f".maxval: got {10**56}..., expected a number"]),
        ({"type": "int", "minval": 0, "maxval": True}, [".maxval: got true, expected a number"]),
        ({"type": "log", "minval": -4, "maxval": -1},
         [".base: missing; a hyperparameter of type log needs it"]),
        ({"type": "log", "base": 0, "minval": -4, "maxval": -1},
         [".base: got 0, expected a number above 0"]),
        ({"type": "log", "base": 10, "minval": -400, "maxval": 400},
         [".minval: got -400, an exponent too far from 0 for a number",
          ".maxval: got 400, an exponent too far from 0 for a number"]),
        ({"type": "categorical", "vals": []},
         [".vals: got [], expected a list of at least one value"]),
        ({"type": "categorical", "vals": "relu"},
         [".vals: got 'relu', expected a list of at least one value"]),
        ({"type": "const", "val": 1, "count": 2}, [".count: unknown key; type const has val"]),
        ({"inner": {"lr": {"type": "const"}}},
         [".inner.lr.val: missing; a hyperparameter of type const needs it"]),
    ],
)  # fmt: skip
def test_every_problem_is_told_with_its_place(spec: Any, problems: list[str]) -> None:
    expected = [f"hyperparameters.x{problem}" for problem in problems]
    assert said(find_problems({"x": spec})) == expected


@pytest.mark.parametrize(
    "spec",
    [
        None, 3, "a", [1, {"type": "int"}], {}, {"inner": {"deeper": 1}},
        {"type": "const", "val": {"any": ["thing"]}},
        {"type": "int", "minval": -5, "maxval": 2.0, "count": 3},
        {"type": "double", "minval": 0, "maxval": 1e-9},
        {"type": "log", "base": 2, "minval": -10, "maxval": 10},
        {"type": "categorical", "vals": [None]},
    ],
)  # fmt: skip
def test_what_is_right_has_no_problems(spec: Any) -> None:
    assert said(find_problems({"x": spec})) == []
