"""Which hyperparameters a source is seen to read, by all the ways in which code reads them."""

from __future__ import annotations

import ast
from textwrap import dedent, indent
from typing import Any

import pytest

from det_jupyter.contract.trial.source import method_in
from det_jupyter.contract.trial.source_needs import (
    UNKNOWN,
    PassedOn,
    find_batch_size_reader,
    find_passed_on,
    hparams_read,
)


def read(source: str) -> dict[str, Any]:
    return hparams_read([ast.parse(dedent(source))])


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("context.get_hparam('lr')", {"lr": UNKNOWN}),
        ("context.get_hparams()['lr']", {"lr": UNKNOWN}),
        ("hparams['lr']", {"lr": UNKNOWN}),
        ("self.hparams.lr", {"lr": UNKNOWN}),
        ("hparams.get('lr')", {"lr": UNKNOWN}),
        ("hparams.get('lr', 0.1)", {"lr": 0.1}),
        ("hparams.pop('depth', None)", {"depth": None}),
        ("hparams.setdefault('depth', [1, 2])", {"depth": [1, 2]}),
        ("getattr(hparams, 'depth', 3)", {"depth": 3}),
        ("getattr(hparams, 'depth')", {"depth": UNKNOWN}),
        ("hparams.get('depth', compute())", {"depth": UNKNOWN}),
        ("hparams.get('depth', float('nan'))", {"depth": UNKNOWN}),
        ("hparams['kind'] == 'adam'", {"kind": "adam"}),
        ("hparams['kind'] != 'adam'", {"kind": UNKNOWN}),
        ("context.get_per_slot_batch_size()", {"global_batch_size": UNKNOWN}),
        ("context.get_global_batch_size()", {"global_batch_size": UNKNOWN}),
        # What is no reading of one.
        ("hparams['lr'] = 3", {}),
        ("hparams.items()", {}),
        ("hparams[name]", {}),
        ("hparams.get(name)", {}),
        ("other['lr']", {}),
        ("getattr(other, 'lr', 1)", {}),
        ("context.get_hparam(name)", {}),
    ],
)
def test_a_reading_and_its_default(source: str, found: dict[str, Any]) -> None:
    assert read(source) == found


@pytest.mark.parametrize(
    "made",
    [
        "h = hparams",
        "h = context.get_hparams()",
        "h: dict = context.get_hparams()",
        "h = AttrDict(context.get_hparams())",
        "h = dict(**hparams)",
        "h = copy.deepcopy(self.context.get_hparams())",
        "if h := context.get_hparams(): pass",
        "g = hparams\nh = g",
    ],
)
def test_another_name_for_all_of_them(made: str) -> None:
    assert read(f"{made}\nh['lr']") == {"lr": UNKNOWN}


def test_a_name_may_be_made_below_its_use() -> None:
    source = """
        class A:
            def use(self):
                return self.h['lr'], self.optimizer['momentum']
            def make(self):
                self.h = self.context.get_hparams()
                self.optimizer = self.h['optimizer']
    """
    assert read(source) == {"lr": UNKNOWN, "optimizer": {"momentum": UNKNOWN}}


def test_sections_are_nested_and_a_section_is_no_value_itself() -> None:
    source = """
        optimizer = context.get_hparam('optimizer')
        optimizer['lr']
        optimizer.get('betas', [0.9, 0.99])
        hparams['model']['depth']['encoder']
        context.get_hparam('seed')
    """
    assert read(source) == {
        "optimizer": {"lr": UNKNOWN, "betas": [0.9, 0.99]},
        "model": {"depth": {"encoder": UNKNOWN}},
        "seed": UNKNOWN,
    }
    assert list(read(source)) == ["optimizer", "model", "seed"]  # as they are first read


def test_the_first_default_that_is_known_counts() -> None:
    source = "hparams['lr']\nhparams.get('lr', 0.5)\nhparams.get('lr', 0.1)"
    assert read(source) == {"lr": 0.5}


def trial(**methods: str) -> str:
    lines = ["class Trial(Base):"]
    for name, body in methods.items():
        lines += [f"    def {name}(self):", f"        {body}"]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("source", "method"),
    [
        (trial(train_batch="self.context.get_per_slot_batch_size()"), "train_batch"),
        (trial(__init__="context.get_hparam('global_batch_size')"), "__init__"),
        (trial(__init__="context.get_hparam('lr')"), ""),
        (trial(evaluate_batch="self.context.get_global_batch_size()"), ""),  # not in every run
        (trial(helper="context.get_global_batch_size()"), ""),
        (
            trial(__init__="self.helper()", helper="context.get_global_batch_size()"),
            "helper",
        ),
        (trial(__init__="self.a()", a="self.b()", b="self.a()"), ""),  # calls in a circle
        (
            trial(__init__="'global_batch_size' in hparams and context.get_global_batch_size()"),
            "",
        ),
        (
            trial(__init__="context.has_batch_size and context.get_global_batch_size()"),
            "",
        ),
        (
            trial(build_training_data_loader="return DataLoader(d, get_batch_size())"),
            "",
        ),
        (
            "class Base:\n    def __init__(self):\n        c.get_global_batch_size()\n"
            + trial(train_batch="pass"),
            "__init__",
        ),
    ],
)
def test_what_needs_the_batch_size_in_every_run(source: str, method: str) -> None:
    assert find_batch_size_reader(method_in([source], "Trial")) == method


def test_a_try_means_that_the_code_does_without_it() -> None:
    source = """
        class Trial:
            def __init__(self):
                try:
                    self.size = context.get_global_batch_size()
                except KeyError:
                    self.size = 1
    """
    assert find_batch_size_reader(method_in([dedent(source)], "Trial")) == ""


def passed_on(body: str, parameter: str = "hparams") -> PassedOn | None:
    source = f"def main(core_context, {parameter}):\n" + indent(dedent(body), "    ")
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    return find_passed_on(function, "arguments".__eq__)


@pytest.mark.parametrize(
    ("body", "without", "fixed"),
    [
        ("arguments(hparams)", set(), set()),
        ("Trainer(model(), arguments(hparams, steps=3, **more), [det])", set(), {"steps"}),
        ("width = hparams.pop('width')\narguments(hparams)", {"width"}, set()),
        ("del hparams['width']\nmade: int = arguments(hparams)", {"width"}, set()),
        ("if small:\n    hparams.pop('width', 0)\narguments(hparams)", {"width"}, set()),
        ("model(hparams['lr'], **hparams)\nreturn arguments(hparams)", set(), set()),
        ("hparams['lr'] = 2 * hparams.get('lr')\narguments(hparams)", set(), set()),
        ("def init():\n    return hparams.pop('width')\narguments(hparams)", {"width"}, set()),
    ],
)
def test_what_a_function_passes_on_is_what_it_does_not_take_out(
    body: str, without: set[str], fixed: set[str]
) -> None:
    assert passed_on(body) == PassedOn(without=without, fixed=fixed)


@pytest.mark.parametrize(
    "body",
    [
        "other(hparams)",
        "arguments(hparams['inner'])",
        "if hparams['kind'] == 'a':\n    arguments(hparams)",
        "fast or arguments(hparams)",
        "make = lambda: arguments(hparams)",
        "def make():\n    return arguments(hparams)",
        "if hparams.get('dry'):\n    return\narguments(hparams)",
        "with it:\n    if dry:\n        return\n    arguments(hparams)",
        # What may take something out.
        "model(hparams)\narguments(hparams)",
        "model(given=hparams)\narguments(hparams)",
        "own = hparams\narguments(hparams)",
        "hparams = dict(hparams)\narguments(hparams)",
        "hparams.clear()\narguments(hparams)",
        "take = hparams.pop\narguments(hparams)",
        "for name in mine:\n    hparams.pop(name)\narguments(hparams)",
        "for name in mine:\n    del hparams[name]\narguments(hparams)",
    ],
)
def test_what_a_function_may_not_pass_on_is_not_guessed(body: str) -> None:
    assert passed_on(body) is None


def test_only_the_parameter_has_the_hyperparameters() -> None:
    assert passed_on("arguments(hparams)", parameter="info") is None
