"""Modules at the top of a context, and files that Python cannot parse."""

from __future__ import annotations

import pytest

from det_jupyter.contract.trial.context_dir.python_modules import (
    describe_syntax_error,
    find_syntax_error,
    is_builtin_or_frozen,
    modules_among,
)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SyntaxError("no", ("f", 3, 5, "    x y\n")), "t.py, line 3: no\n    x y\n    ^"),
        (SyntaxError("no", ("f", 3, 7, "    x y\n")), "t.py, line 3: no\n    x y\n      ^"),
        (SyntaxError("no", ("f", 3, 1, "    x y\n")), "t.py, line 3: no\n    x y\n    ^"),
        (SyntaxError("no", ("f", 3, 0, "x y")), "t.py, line 3: no\n    x y"),
        (SyntaxError("no", ("f", 3, None, "x y")), "t.py, line 3: no\n    x y"),
        (SyntaxError("no", ("f", 3, 2, None)), "t.py, line 3: no"),
    ],
)
def test_where_python_stopped_is_marked(error: SyntaxError, text: str) -> None:
    assert describe_syntax_error(error, "t.py") == text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = 1", ""),
        ("x = '\\d'", ""),
        ("x =", "t.py, line 1: invalid syntax\n    x =\n       ^"),
    ],
)
def test_a_file_that_python_cannot_read_is_told(text: str, found: str) -> None:
    assert find_syntax_error(text, "t.py") == found


def test_modules_at_the_top_of_a_context() -> None:
    names = [
        "a.py", "a/__init__.py", "b/__init__.py", "b.py", "c/d.py", "no-name.py", "__main__.py",
        "__init__.py", "folder", "f.txt", "1.py", "d/e/__init__.py",
    ]  # fmt: skip
    assert modules_among(names) == {"a": "a/", "b": "b/"}
    assert modules_among(["a.py"]) == {"a": "a.py"}


@pytest.mark.parametrize(
    ("module", "expected"),
    [("sys", True), ("zipimport", True), ("random", False), ("nope", False)],
)
def test_modules_that_no_folder_can_replace(module: str, expected: bool) -> None:
    assert is_builtin_or_frozen(module) is expected


def test_a_program_that_is_too_deep_cannot_be_read() -> None:
    assert find_syntax_error("-" * 100_000 + "1", "t.py").startswith("t.py cannot be read: ")
