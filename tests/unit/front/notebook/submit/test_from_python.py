"""`det_jupyter.submit`: all problems of a call are raised together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from det_jupyter.client.submitting.drafts import Draft
from det_jupyter.errors import ConfigError, Problem
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


def refuse(draft: Draft, caller: Caller) -> Any:
    raise ConfigError(draft.parse(default_seed=0)[1])


def test_what_is_wrong_with_a_text_and_with_the_call_comes_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(from_python, "submit_draft", refuse)
    with pytest.raises(ConfigError) as caught:
        submit(3, "a: [1\nsearcher: {name: single}\n", slots=object())  # type: ignore[arg-type]
    found = said(caught.value.problems)
    assert ENTRYPOINT in found
    assert SLOTS in found
    assert any("this is not YAML" in each for each in found)
    assert not any("entrypoint: missing" in each for each in found)


def test_an_entrypoint_is_text_words_or_an_object_with_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[Any, Any]] = []
    monkeypatch.setattr(
        from_python,
        "submit_draft",
        lambda draft, caller: seen.append((draft.document.get("entrypoint"), caller.given)),
    )
    for trial in ("model:Net", ["python3", "a.py"], ("make", "it"), Caller, None):
        submit(trial, {"entrypoint": "own"})
    submit("model:Net", "entrypoint: own\n", include="data")
    assert seen == [
        ("model:Net", {}),
        (["python3", "a.py"], {}),
        (["make", "it"], {}),
        ("Caller", {"Caller": Caller}),
        ("own", {}),
        ("model:Net", {}),
    ]
    monkeypatch.setattr(from_python, "submit_draft", refuse)
    with pytest.raises(ConfigError, match="expected a class or a function with a name"):
        submit(lambda: None, {"name": "x"})  # type: ignore[arg-type]


def test_problems_name_the_file_that_the_configuration_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(draft: Draft, caller: Caller) -> Any:
        assert draft.document["name"] == "nets"
        raise ConfigError([Problem("name", "is taken")])

    monkeypatch.setattr(from_python, "submit_draft", taken)
    file = tmp_path / "c.yml"
    file.write_text("name: nets\n")
    for config in (file, str(file)):
        with pytest.raises(ConfigError) as caught:
            submit(None, config)
        assert said(caught.value.problems)[0].endswith("c.yml: name: is taken")
    with pytest.raises(ConfigError) as caught:
        submit(None, "name: nets\nentrypoint: python3 a.py b.yaml\n")
    assert said(caught.value.problems) == ["name: is taken"], "it is no file"
