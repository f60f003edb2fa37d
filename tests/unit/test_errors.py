"""Errors carry what is wrong as data; the sentence is made of it where it is shown."""

from __future__ import annotations

import pytest

from det_jupyter.errors import (
    CaptureError,
    ConfigError,
    Conflict,
    DetError,
    InvalidTransition,
    MasterUnreachable,
    NotFound,
    Problem,
    RankFailed,
    http_status,
    problems_in,
)


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


def test_a_failed_rank_is_told_with_what_it_printed() -> None:
    error = RankFailed("no", rank=1, exit_code=-9, remote_traceback="Traceback: ...")
    assert (error.rank, error.exit_code, error.remote_traceback) == (1, -9, "Traceback: ...")
    assert str(error) == "no\n\nTraceback: ..."
    plain = RankFailed("no")
    assert (plain.rank, plain.exit_code, plain.remote_traceback) == (None, None, "")


def test_errors_have_their_facts_apart_from_the_message() -> None:
    found = NotFound("there is none", what="trial", number=3)
    assert (found.what, found.number, str(found)) == ("trial", 3, "there is none")
    assert (NotFound("none").what, NotFound("none").number) == ("", 0)
    assert InvalidTransition("no", ["one", "two"]).story == ["one", "two"]
    assert InvalidTransition("no").story == []
    assert CaptureError("x cannot be pickled").problems == ["x cannot be pickled"]
    assert str(CaptureError(["a", "b"])) == "a\nb"
    assert DetError("stopped", command="kill -CONT 7").command == "kill -CONT 7"
    assert DetError("stopped").command == ""


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFound("x"), 404),
        (Conflict("x"), 409),
        (InvalidTransition("x"), 409),
        (ConfigError("x"), 422),
        (CaptureError(["x"]), 422),
        (MasterUnreachable("x"), 503),
        (DetError("x"), 400),
        (ValueError("x"), 400),
    ],
)
def test_each_error_has_the_status_of_its_kind(error: Exception, status: int) -> None:
    assert http_status(error) == status


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b'{"problems": [{"path": "a", "text": "b"}, {"path": "", "text": "c"}]}', "a: b; c"),
        (b'{"problems": [{"other": 1}]}', '{"problems": [{"other": 1}]}'),
        (b"<html>\xff" + b"x" * 300, "<html>\ufffd" + "x" * 193),
        (b"[]", "[]"),
        (b"", ""),
    ],
)
def test_a_refusal_is_told_in_its_sentences_or_as_it_is(content: bytes, text: str) -> None:
    assert problems_in(content) == text
