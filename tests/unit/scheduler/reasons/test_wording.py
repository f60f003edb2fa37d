"""Numbers, names, times and lists in the sentences of reasons."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC

import pytest

from det_jupyter.contract.messages import Estimate
from det_jupyter.scheduler.reasons.wording import (
    about,
    file_of,
    named,
    noun,
    numbers,
    verb,
)
from tests.unit.scheduler.reasons.reasons_world import NOON, end


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("work/eda.ipynb", "eda.ipynb"),
        ("eda.ipynb", "eda.ipynb"),
        ("C:\\work\\eda.ipynb", "eda.ipynb"),
        ("work/", "work"),
        ("/", "/"),
    ],
)
def test_of_a_path_the_file_is_named(path: str, name: str) -> None:
    assert file_of(path) == name


def test_experiments_are_named_by_number() -> None:
    assert named("experiment", [3]) == "experiment 3"
    assert named("experiment", [3, 4]) == "experiments 3 and 4"
    assert named("experiment", [3, 4, 5, 6, 7]) == "experiments 3, 4, 5 and 2 more"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, ["agents", "processes", "is", "has", "holds"]),
        (1, ["agent", "process", "is", "has", "holds"]),
        (2, ["agents", "processes", "are", "have", "hold"]),
    ],
)
def test_nouns_and_verbs_agree_with_their_number(number: int, words: Sequence[str]) -> None:
    nouns = [noun(number, word) for word in ("agent", "process")]
    assert [*nouns, *(verb(number, word) for word in ("is", "has", "holds"))] == words


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([], ""),
        ([1], "1"),
        ([1, 2], "1, 2"),
        ([1, 2, 3], "1 to 3"),
        ([1, 2, 3, 4, 8], "1 to 4, 8"),
        ([*range(1, 9), 16, 24, 32, 40, 48], "1 to 8, 16, 24, 32, 40, 48"),
        ([*range(1, 9), *range(16, 8001, 8)], "1 to 8, then 16 to 8000 in steps of 8"),
        ([1, 2, 3, 6, 8, 12, 14, 20, 21, 22, 30], "1 to 3, 6, 8, 12, … 30"),
    ],
)
def test_numbers_are_folded(values: Sequence[int], words: str) -> None:
    assert numbers(values) == words


@pytest.mark.parametrize(
    ("estimate", "words"),
    [
        (end(20, 10, 40), "about 12:20 (12:10 to 12:40)"),
        (end(20, 20, 20), "about 12:20"),
        (end(20, 10, None), "about 12:20 (12:10 or later)"),
        (end(20, 20, None), "about 12:20"),
        (end(0.5, 0.2, 1.0), "within a minute"),
        (end(0.5, 0.2, 3.0), "about 12:00 (12:00 to 12:03)"),
    ],
)
def test_an_estimate_says_how_sure_it_is(estimate: Estimate, words: str) -> None:
    assert about(estimate, NOON, UTC) == words
