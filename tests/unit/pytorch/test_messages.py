"""What of the stack a user sees: their own code, and libraries; not ours."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import det_jupyter
from det_jupyter.pytorch.messages import warn_user, without_own_frames

_OURS = Path(det_jupyter.__file__).parent


def ours(source: str) -> Callable[..., Any]:
    """Return the function `f` of this source, as if it lay in the package."""
    found: dict[str, Any] = {"warn_user": warn_user, "contextmanager": contextmanager}
    exec(compile(source, str(_OURS / "loop.py"), "exec"), found)
    function: Callable[..., Any] = found["f"]
    return function


def frames_of(run: Callable[[], Any]) -> list[str]:
    """Return the names of the functions in the traceback of what `run` raises."""

    @contextmanager
    def context() -> Iterator[None]:
        with without_own_frames():
            yield

    try:
        with context():
            run()
    except ValueError as error:
        return [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    raise AssertionError("it raised nothing")


def fails() -> None:
    """Be the user's code that fails."""
    raise ValueError


def test_ours_are_left_out_between_the_users_frames() -> None:
    f = ours("def f(call):\n    g(call)\ndef g(call):\n    call()")
    assert frames_of(lambda: f(fails)) == ["frames_of", "<lambda>", "fails"]
    assert frames_of(lambda: f(lambda: f(fails))) == ["frames_of", "<lambda>", "<lambda>", "fails"]


def test_ours_stay_where_nobody_else_comes_after_them() -> None:
    f = ours("def f():\n    g()\ndef g():\n    raise ValueError")
    assert frames_of(f) == ["frames_of", "f", "g"]
    assert frames_of(lambda: ours("def f(c):\n    c()")(f)) == [
        "frames_of",
        "<lambda>",
        "f",
        "f",
        "g",
    ]


def test_a_warning_points_at_the_users_line() -> None:
    f = ours(
        "def f(call):\n    with g():\n        call()\n"
        "@contextmanager\ndef g():\n    warn_user('beware')\n    yield"
    )
    with pytest.warns(UserWarning, match="beware") as told:
        f(lambda: None)
    assert [warning.filename for warning in told] == [__file__]
