"""Errors carry what is wrong as data; the sentence is made of it where it is shown."""

from __future__ import annotations

import pytest

from det_jupyter.errors import ConfigError, NotFound, Problem, RankFailed


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (Problem("", "it is empty"), "it is empty"),
        (Problem("searcher.divisor", "got 1"), "searcher.divisor: got 1"),
        (Problem("a", "b", line=3), "line 3: a: b"),
        (Problem("a", "b", line=3, source="t.yaml"), "t.yaml: line 3: a: b"),
        (Problem.missing("a", "; give it"), "a: missing; give it"),
        (Problem("a: b", "c: d", meant="e"), "a: b: c: d"),
    ],
)
def test_the_sentence_of_a_problem_says_where_it_is(problem: Problem, sentence: str) -> None:
    assert str(problem) == sentence


def test_an_error_has_a_line_for_each_problem_and_takes_a_text_for_one_of_the_whole() -> None:
    error = ConfigError([Problem("a", "b"), "c: d"])
    assert str(error) == "a: b\nc: d"
    assert [problem.path for problem in error.problems] == ["a", ""]
    assert (
        ConfigError("c").problems == [Problem("", "c")] == ConfigError(Problem("", "c")).problems
    )


def test_a_failed_rank_has_its_reason_apart_from_the_run() -> None:
    error = RankFailed("it broke", run="experiment 3")
    assert (str(error), error.reason) == ("experiment 3 ended with an error: it broke", "it broke")
    assert str(RankFailed("it broke")) == "it broke"


def test_ipython_shows_an_error_of_ours_as_a_line() -> None:
    assert NotFound("there is no trial 3")._render_traceback_() == [
        "NotFound: there is no trial 3"
    ]
