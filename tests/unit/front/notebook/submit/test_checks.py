"""What the source of a class or function shows before it is submitted."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.config import parse_config
from det_jupyter.front.notebook.submit.checks import (
    find_batch_size_problems,
    find_class_problems,
    find_hparam_problems,
    find_metric_problems,
    find_plain,
)
from det_jupyter.pytorch import PyTorchTrial
from tests.problems import said


class Trainer:
    """Stands for the one of transformers."""

    def __init__(self, model: int, callbacks: Any = ()) -> None: ...
    def train(self) -> None: ...


Trainer.__module__ = "transformers"


def training_arguments(hparams: dict[str, Any], **fixed: Any) -> None: ...


def finetune(hparams: dict[str, Any]) -> None:
    hparams.pop("width")
    training_arguments(hparams, seed=1)
    trainer = Trainer(3)
    trainer.train()


def with_callback(hparams: dict[str, Any]) -> None:
    trainer = Trainer(3, callbacks=[enclosed])
    trainer.train()


def enclosed(hparams: dict[str, Any]) -> None:
    if hparams:
        training_arguments(hparams)


def makes() -> Callable[..., None]:
    def training_arguments(given: Any) -> None: ...

    Trainer = dict

    def own(hparams: dict[str, Any]) -> None:
        training_arguments(hparams)
        trainer = Trainer(a=3)
        trainer.train()  # type: ignore[attr-defined]

    return own


def shadowed(hparams: dict[str, Any]) -> None:
    training_arguments = print
    training_arguments(hparams)


@functools.wraps(finetune)
def wrapped(hparams: dict[str, Any]) -> None:
    finetune(hparams)


@functools.lru_cache
def decorated(hparams: Any) -> None:
    training_arguments(hparams)


def same(function: Callable[..., None]) -> Callable[..., None]:
    return function


@same
def passed_through(hparams: Any) -> None:
    training_arguments(hparams)
    trainer = Trainer(3)
    trainer.train()


CONFIG: dict[str, Any] = {
    "entrypoint": "it",
    "hyperparameters": {"global_batch_size": 8, "width": 3, "rate": 0.5},
    "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 10}},
}


@pytest.mark.parametrize(
    ("function", "asked"),
    [
        (finetune, [(["global_batch_size", "rate"], ["seed"])]),
        (with_callback, []),
        (enclosed, []),
        (makes(), []),
        (shadowed, []),
        (wrapped, []),
        (decorated, []),
        (passed_through, []),
        (Trainer, []),
        (3, []),
    ],
)
def test_only_hyperparameters_that_certainly_go_to_a_library_are_checked(
    function: Any, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[Any] = []

    def check(given: Any, fixed: Any) -> list[str]:
        checked.append((sorted(given), sorted(fixed)))
        return ["a problem"]

    config, name = parse_config(CONFIG, default_seed=0), "det_jupyter.integrations"
    monkeypatch.delitem(sys.modules, f"{name}.training_arguments", raising=False)
    assert not find_hparam_problems(config, {"it": function}), "the library is not loaded"
    library: Any = SimpleNamespace(training_arguments=training_arguments, find_name_problems=check)
    monkeypatch.setitem(sys.modules, f"{name}.training_arguments", library)
    found = find_hparam_problems(config, {"it": function})
    assert checked == asked
    assert bool(found) is bool(asked)


@pytest.mark.parametrize(
    ("function", "trainer"),
    [
        (finetune, "transformers.Trainer"),
        (with_callback, ""),
        (makes(), ""),
        (wrapped, ""),
        (passed_through, ""),
        (Trainer, ""),
        (3, ""),
    ],
)
def test_a_trainer_without_our_callback_is_found_where_that_is_sure(
    function: Any, trainer: str
) -> None:
    assert find_plain("it", {"it": function}) == trainer
    assert find_plain("other", {"it": function}) == ""


class Net(PyTorchTrial):
    """A whole trial."""

    def __init__(self, context: Any) -> None:
        self.context = context

    def build_training_data_loader(self) -> Any:
        return self.context.get_per_slot_batch_size()

    def build_validation_data_loader(self) -> Any: ...
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any: ...
    def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
        return {"accuracy": 1.0}


class Unsized(Net):
    """Needs no batch size."""

    def build_training_data_loader(self) -> Any: ...


def test_the_metric_of_the_search_is_one_that_the_class_reports() -> None:
    config = parse_config(CONFIG, default_seed=0)
    [problem] = said(find_metric_problems(config, {"it": Net}))
    assert problem == "searcher.metric: the trial reports accuracy; got 'error'"
    assert find_metric_problems(config, {"it": finetune}) == []


@pytest.mark.parametrize(
    ("kind", "hparams", "cause"),
    [
        (Net, {}, "Net.build_training_data_loader reads it"),
        (Net, {"global_batch_size": 8}, ""),
        (Unsized, {}, ""),
        (PyTorchTrial, {}, ""),
    ],
)
def test_a_class_that_reads_the_batch_size_needs_one(
    kind: type, hparams: dict[str, Any], cause: str
) -> None:
    problems = said(find_batch_size_problems({"hyperparameters": hparams}, kind))
    assert bool(problems) is bool(cause)
    assert all(cause.split(" ")[0] in problem for problem in problems)


def test_before_the_library_is_loaded_a_class_is_told_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "det_jupyter.pytorch")
    [problem] = said(find_class_problems("Net", {"Net": object}))
    assert problem.startswith("entrypoint: Net does not derive from PyTorchTrial")
    [problem] = said(
        find_class_problems("N", {"__name__": __name__, "Net": Net, "Trainer": Trainer})
    )
    assert problem.endswith("(classes and functions defined here: Net)")
    monkeypatch.undo()
    [problem] = said(find_class_problems("N", {"__name__": __name__, "Net": Net, "T": TwoRanks}))
    assert problem.endswith("(classes and functions defined here: Net)"), "those that are trials"


class TwoRanks:
    """No trial."""
