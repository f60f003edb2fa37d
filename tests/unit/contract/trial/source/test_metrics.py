"""Which metrics a source is seen to report, and when that is certain to be all of them."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from det_jupyter.contract.trial.source.metrics import Returned, metrics_reported, returned_metrics


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
