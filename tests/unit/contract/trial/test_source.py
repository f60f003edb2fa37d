"""Definitions in sources, some of which Python cannot parse, and the metrics that they report."""

from __future__ import annotations

import ast
import functools
from textwrap import dedent
from typing import Any

import pytest

from det_jupyter.contract.trial.source import (
    Returned,
    classes_of,
    definitions,
    method_in,
    method_of,
    metrics_reported,
    reached,
    returned_metrics,
    returns_of,
    texts,
)


def test_the_newest_definition_of_a_name_counts() -> None:
    made = definitions(["def f(): return 1", "x = 3\nclass f: pass", "async def g(): ..."])
    assert {name: type(node) for name, node in made.items()} == {
        "f": ast.ClassDef,
        "g": ast.AsyncFunctionDef,
    }


def test_magics_and_the_shell_are_left_out_and_what_is_no_python_has_no_definitions() -> None:
    assert list(definitions(["%pip install x\n!ls\n?f\ndef f(): ...\n  %time y", "def ("])) == [
        "f"
    ]


def test_a_method_is_found_in_the_class_and_then_in_its_bases() -> None:
    sources = [
        "class Base:\n    def a(self): return 1\n    def b(self): return 1",
        "class Other:\n    def c(self): return 2",
        "class Trial(Base, Other, lib.More):\n    def a(self): return 3",
    ]
    find = method_in(sources, "Trial")
    assert [ast.unparse(found.body[0]) if (found := find(n)) else None for n in "abcd"] == [
        "return 3",
        "return 1",
        "return 2",
        None,
    ]
    assert method_in(sources, "Missing")("a") is None


def test_nearer_bases_come_first_and_a_circle_ends() -> None:
    made = definitions(
        ["class A(B, C): ...", "class B(D): ...", "class C: ...", "class D(A): ..."]
    )
    assert [each.name for each in classes_of(made, "A")] == ["A", "B", "C", "D"]


def test_what_a_definition_names_is_reached_and_nothing_else() -> None:
    made = definitions(
        ["def a(): return b()", "def b(): return a() + c", "class c: ...", "def d(): ..."]
    )
    assert [getattr(each, "name", "") for each in reached(made, "a")] == ["a", "b", "c"]
    assert [getattr(each, "name", "") for each in reached(made, "d")] == ["d"]


def test_only_constant_texts_are_texts() -> None:
    nodes = ast.parse("['a', b, 3, 'c' + 'd', 'e']", mode="eval").body
    assert isinstance(nodes, ast.List)
    assert texts(nodes.elts) == ["a", "e"]


def test_returns_of_inner_functions_are_not_those_of_the_outer_one() -> None:
    source = """
        def f():
            if x:
                return 1
            def g():
                return 2
            class C:
                def h(self):
                    return 3
            return 4
    """
    values = [each.value for each in returns_of(ast.parse(dedent(source)).body[0])]
    assert [ast.unparse(value) for value in values if value] == ["1", "4"]


def logged(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


class Loaded:
    attribute = 3

    @logged
    def method(self) -> int:
        return 5

    made = eval("lambda self: 1")  # it has no source


def test_a_method_of_a_loaded_class_is_parsed_from_its_file_also_below_decorators() -> None:
    found = method_of(Loaded, "method")
    assert found is not None
    assert ast.unparse(found.body[0]) == "return 5"
    assert [method_of(Loaded, name) for name in ("attribute", "made", "missing")] == [None] * 3
    assert method_of(dict, "get") is None


def returned(body: str, decorator: str = "") -> Returned:
    lines = [decorator, "def evaluate_batch(self, batch):", *dedent(body).splitlines()]
    source = "\n".join([*lines[:2], *(f"    {line}" for line in lines[2:])]).strip()
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    return returned_metrics(function)


@pytest.mark.parametrize(
    ("body", "names", "is_all"),
    [
        ("return {'loss': 1, 'error': 2}", ["loss", "error"], True),
        ("if x:\n    return {'loss': 1}\nreturn {'loss': 1, 'acc': 2}", ["loss", "acc"], True),
        ("return dict(loss=1)", ["loss"], False),
        ("return dict(loss=1, **others)", ["loss"], False),
        ("return {'loss': 1, **others}", ["loss"], False),
        ("return {'loss': 1, name: 2}", ["loss"], False),
        ("metrics = {'loss': 1}\nreturn metrics", ["loss"], False),
        ("metrics: dict = {'loss': 1}\nreturn metrics", ["loss"], False),
        ("m = {}\nm['loss'] = 1\nm.update({'a': 1}, b=2)\nreturn m", ["loss", "a", "b"], False),
        ("m = n = {'loss': 1}\nreturn m", ["loss"], False),
        ("m = other\nreturn m", [], False),
        ("other.update({'a': 1})\nm = {'loss': 1}\nreturn m", ["loss"], False),
        ("return compute()", [], False),
        ("return", [], False),
        ("pass", [], False),
        ("def inner():\n    return {'no': 1}\nreturn {'loss': 1}", ["loss"], True),
        ("f = lambda: {'no': 1}\nreturn {'loss': 1}", ["loss"], True),
    ],
)
def test_the_metrics_that_a_method_returns(body: str, names: list[str], is_all: bool) -> None:
    assert returned(body) == Returned(names, is_all)


def test_a_decorator_may_add_others() -> None:
    assert returned("return {'loss': 1}", "@logged") == Returned(["loss"], False)


def test_the_metrics_that_a_whole_source_reports_each_once() -> None:
    source = """
        class Trial:
            def train_batch(self): return {"batch": 1}
            def evaluate_batch(self): return {"loss": 1, "acc": 2}
            def evaluate_full_dataset(self): return {"loss": 1, "auc": 2}
        def main():
            core.train.report_validation_metrics(10, {"f1": 1})
            core.train.report_validation_metrics(steps_completed=10, metrics={"mAP": 1})
            core.train.report_training_metrics(10, {"no": 1})
            found = {"named": 1}
            core.train.report_validation_metrics(10, found)
            core.train.report_validation_metrics(10)
    """
    found = metrics_reported([ast.parse(dedent(source))])
    assert sorted(found) == ["acc", "auc", "f1", "loss", "mAP", "named"]
    assert len(found) == len(set(found))
