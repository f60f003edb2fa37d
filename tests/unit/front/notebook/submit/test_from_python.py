"""`det_jupyter.submit`: all problems of a call are raised together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from det_jupyter.errors import ConfigError
from det_jupyter.front.notebook.submit import from_python
from det_jupyter.front.notebook.submit.caller import Caller
from det_jupyter.front.notebook.submit.from_python import submit
from tests.problems import said

ENTRYPOINT = "entrypoint: got 3, expected a class or a function with a name, or text"
SLOTS = "slots: got an object of type object, expected a number, text, a list or a dict of these"


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (4, "config: got 4, expected a dict, YAML, or the path of a file with YAML"),
        ("none.yaml", "none.yaml: No such file or directory; give a file with YAML"),
    ],
)
def test_what_is_wrong_with_a_call_comes_together(config: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        submit(3, config, slots=object())  # type: ignore[arg-type]  # what a user may give
    assert said(caught.value.problems) == [ENTRYPOINT, SLOTS, problem]


def test_what_is_included_may_come_from_an_iterator(monkeypatch: pytest.MonkeyPatch) -> None:
    callers: list[Caller] = []
    monkeypatch.setattr(from_python, "submit_draft", lambda draft, caller: callers.append(caller))
    paths: Any = (Path(name) for name in ("data", "nets"))  # as of Path.glob
    submit(None, {"name": "x"}, include=paths)
    assert callers[0].include == (Path("data"), Path("nets"))
