"""Which names a trial needs, how large they are, and which objects cannot be sent."""

from __future__ import annotations

import functools
import threading
from types import FunctionType
from typing import Any

import pytest

from det_jupyter.front.notebook.capture.survey import find_culprits, parts_of, survey_trial


def notebook(source: str) -> dict[str, Any]:
    """Return the globals of a notebook that has run `source`."""
    names: dict[str, Any] = {"__name__": "__main__", "threading": threading}
    exec(source, names)
    return names


def test_names_are_found_through_functions_and_each_has_its_own_size() -> None:
    names = notebook(
        "table = b'0' * 5000\nunused = 1\ndef scale(): return len(table)\ndef train(): scale()"
    )
    survey = survey_trial("train", names["train"], names, [])
    assert list(survey.sizes) == ["train", "scale", "table"]
    assert survey.users == {"train": "", "scale": "train", "table": "scale"}
    assert survey.sizes["table"] > 5000 > survey.sizes["scale"]
    assert [f.__name__ for f in survey.functions] == ["train", "scale"]
    assert not survey.failures


def test_all_objects_that_cannot_be_sent_are_found_with_their_paths() -> None:
    names = notebook(
        "class Model:\n  def __init__(self): self.state = {'lock': threading.Lock()}\n"
        "model = Model()\nevents = [1, threading.Event()]\n"
        "def train(): return model, events"
    )
    survey = survey_trial("train", names["train"], names, [])
    assert list(survey.failures) == ["model", "events"]
    found = {name: find_culprits(survey, name) for name in survey.failures}
    paths = {name: [culprit.path for culprit in culprits] for name, culprits in found.items()}
    assert paths == {"model": ["model.state['lock']"], "events": ["events[1]"]}
    [culprit] = found["model"]
    assert culprit.type_name == "lock"
    assert culprit.refusal.reason == "a lock works only among the threads of this process"


def test_objects_that_others_hold_are_found_by_their_names_in_the_notebook() -> None:
    names = notebook("class Box: pass\n_first = shells = box = Box()\nbox.data = b'0' * 5000\n"
                     "outer = Box()\nouter.inner = box\ndef train(): return outer")  # fmt: skip
    survey = survey_trial("train", names["train"], names, ["shells"])
    assert list(survey.sizes) == ["train", "outer", "Box", "box"]
    assert survey.sizes["box"] > 5000 > survey.sizes["outer"]


def test_parts_have_the_expressions_that_reach_them() -> None:
    def outer(value: int) -> FunctionType:
        def inner(scale: int = 2) -> int:
            return value * scale

        assert isinstance(inner, FunctionType)
        return inner

    assert list(parts_of({"a": 1})) == [("['a']", 1)]
    assert list(parts_of((1, 2))) == [("[0]", 1), ("[1]", 2)]
    assert list(parts_of(outer(3))) == [(".<locals>.value", 3), ("(scale=...)", 2)]


class Reduced:
    """An object with slots and a state, or with what its `__reduce_ex__` returns."""

    __slots__ = ("one",)

    def __init__(self, reduced: Any = None) -> None:
        self.one = reduced

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.one or super().__reduce_ex__(protocol)


@pytest.mark.parametrize(
    ("reduced", "parts"),
    [
        ((dict, ()), []),
        ((dict, (1, int), None), [("", 1)]),
        ((dict, (), 3), [("", 3)]),
        ((dict, (), {"a": 1}), [(".a", 1)]),
        ((dict, (), (None, {"s": 2})), [(".s", 2)]),
        ((dict, (), ({"a": 1}, {"s": 2})), [(".a", 1), (".s", 2)]),
        ((dict, (), (1, 2)), [("", (1, 2))]),
        ((dict, (), None, [5]), [("[0]", 5)]),
        ((dict, (), None, None, [("k", 6)]), [("['k']", 6)]),
        ("a name", []),
    ],
)
def test_what_an_object_is_reduced_to_are_its_parts(
    reduced: Any, parts: list[tuple[str, Any]]
) -> None:
    assert list(parts_of(Reduced(reduced))) == parts


def test_parts_of_other_kinds_of_objects() -> None:
    made = functools.partial(max, 1, key=abs)
    assert list(parts_of({7})) == [("{...}", 7)]
    assert list(parts_of(made)) == [
        (".func", max), (".args", (1,)), (".keywords", {"key": abs}),
    ]  # fmt: skip
    assert list(parts_of(staticmethod(max))) == [("", max)]
    assert list(parts_of(property(abs))) == [("", abs), ("", None), ("", None)]
    kind = type("Kind", (dict,), {"a": 1})
    assert (".a", 1) in (found := list(parts_of(kind)))
    assert ("<dict>", dict) in found
    assert not {".__dict__", ".__weakref__"} & {name for name, _ in found}
    method = Reduced().__reduce_ex__
    assert [step for step, _ in parts_of(method)] == ["", ""]


def test_an_object_that_cannot_be_reduced_has_no_parts() -> None:
    assert list(parts_of(threading.Lock())) == []
