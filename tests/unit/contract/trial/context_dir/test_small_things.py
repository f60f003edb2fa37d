"""Small parts of contexts: where Python stopped, which modules are whose, a folder as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.contract.trial.context_dir.python_modules import (
    describe_syntax_error,
    find_syntax_error,
    is_builtin_or_frozen,
    modules_among,
)
from det_jupyter.contract.trial.context_dir.walking import LiveEntries


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


def test_a_folder_is_looked_up_as_it_is(tmp_path: Path) -> None:
    entries = LiveEntries(tmp_path)
    assert list(entries) == []
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "run.sh").touch(mode=0o755)
    (tmp_path / "a.py").touch(mode=0o644)
    assert list(entries) == ["a.py", "package", "package/__init__.py", "run.sh"]
    assert len(entries) == 4
    assert (entries["package"].kind, entries["package"].source) == (
        "folder", str(tmp_path / "package"),
    )  # fmt: skip
    assert [(entries[name].kind, entries[name].is_executable) for name in ("a.py", "run.sh")] == [
        ("file", False), ("file", True),
    ]  # fmt: skip
    with pytest.raises(KeyError):
        entries["nothing"]
