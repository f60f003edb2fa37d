"""Checks of functions and classes as entrypoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest

from det_jupyter.config import parse_config
from det_jupyter.contract.trial.rank_arguments import call, find_function_problem
from det_jupyter.front.notebook.submit.checks import find_batch_size_problems, find_class_problems
from det_jupyter.pytorch import PyTorchTrial
from tests.problems import said


def plain() -> None: ...
def with_defaults(size: int = 3, *more: int, **options: int) -> None: ...
def with_context(core_context: Any, hparams: Any, /, *, info: Any = 3) -> Any:
    return core_context, hparams, info


def needy(model: Any, *, rate: float) -> None: ...
async def asynchronous() -> None: ...
def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (plain, ""),
        (with_defaults, ""),
        (lambda: None, ""),
        (with_context, ""),
        (needy, "requires model, rate, and ranks give only hyperparameters (there is none), "
         "core_context, hparams and info; give the others a default"),
        (asynchronous, "is asynchronous, and ranks have no event loop for it; write it with plain "
         "`def`"),
        (generator, ""),
    ],
)  # fmt: skip
def test_a_function_is_called_with_what_ranks_have(
    function: Callable[..., Any], problem: str
) -> None:
    assert isinstance(function, FunctionType)
    assert find_function_problem(function) == problem


def test_a_function_gets_the_arguments_that_it_has() -> None:
    values = {"core_context": 1, "context": 1, "hparams": {"lr": 2}, "info": 4}
    assert isinstance(with_context, FunctionType)
    assert call(with_context, values) == (1, {"lr": 2}, 4)
    assert call(lambda context, **options: (context, options), values) == (1, {})
    assert call(lambda *context, lr=2: (context, lr), values) == ((), 2)
    assert call(lambda: 5, values) == 5


def test_a_function_of_the_notebook_is_an_entrypoint() -> None:
    assert find_class_problems("plain", {"plain": plain}) == []
    (problem,) = find_class_problems("needy", {"needy": needy})
    assert str(problem).startswith("entrypoint: needy requires model, rate, and ranks give only")
    assert find_class_problems("needy", {"needy": needy}, ["rate", "model"]) == []


def test_what_is_neither_class_nor_function_is_refused() -> None:
    assert said(find_class_problems("x", {"x": 1})) == [
        "entrypoint: 'x' is of type int, expected a class or a function"
    ]


def test_a_class_that_is_no_trial_is_told_of_functions_too() -> None:
    (problem,) = find_class_problems("Number", {"Number": int})
    assert str(problem) == (
        "entrypoint: Number does not derive from PyTorchTrial; write `class Number(PyTorchTrial)` "
        "(from det_jupyter.pytorch), or name a function, which every rank then calls"
    )


def test_an_unknown_name_is_answered_with_what_could_be_meant() -> None:
    here = {"__name__": __name__, "plain": plain, "needy": needy, "count": 3}
    (problem,) = find_class_problems("plane", here)
    assert str(problem) == (
        "entrypoint: 'plane' is not defined in this notebook; run the cell that defines it "
        "(classes and functions defined here: plain)"
    )


def test_only_a_trial_on_several_slots_needs_a_batch_size() -> None:
    missing = ["hyperparameters.global_batch_size: missing; give the batch size of all slots "
               "together (resources.slots_per_trial: 2)"]  # fmt: skip
    assert said(find_batch_size_problems({"resources": {"slots_per_trial": 2}})) == missing
    assert said(find_batch_size_problems({"resources": {"slots": 2}})) == missing
    assert find_batch_size_problems({"resources": {"slots_per_trial": 1}}) == []
    given = {"resources": {"slots_per_trial": 2}, "hyperparameters": {"global_batch_size": 8}}
    assert find_batch_size_problems(given) == []


EPOCHS = {"searcher": {"max_length": {"epochs": 2}}}


@pytest.mark.parametrize(
    ("document", "cause"),
    [
        (EPOCHS, ""),
        (EPOCHS | {"records_per_epoch": 0}, ""),
        (EPOCHS | {"records_per_epoch": 90, "hyperparameters": {"global_batch_size": 8}}, ""),
        ({"records_per_epoch": 90, "searcher": {"max_length": {"batches": 2}}}, ""),
        (EPOCHS | {"records_per_epoch": 90},
         "records_per_epoch (90) is divided by it; give it, or leave records_per_epoch out: an "
         "epoch is then a pass over the data"),
        ({"records_per_epoch": 90, "searcher": {"time_metric": "epochs"}},
         "records_per_epoch (90) is divided by it; give it, or leave records_per_epoch out: an "
         "epoch is then a pass over the data"),
        ({"searcher": {"max_length": {"records": 90}}},
         "searcher.max_length is in records, which are divided by it"),
        (EPOCHS | {"min_checkpoint_period": {"records": 90}},
         "min_checkpoint_period is in records, which are divided by it"),
    ],
)  # fmt: skip
def test_lengths_that_are_counted_in_batches_need_its_size_and_say_why(
    document: dict[str, Any], cause: str
) -> None:
    """A class needs it; for a function the same configuration is right."""
    where = "hyperparameters.global_batch_size: missing"
    assert said(find_batch_size_problems(document)) == ([f"{where}; {cause}"] if cause else [])
    searcher = {"name": "single", "metric": "loss", "max_length": 1}
    if "time_metric" not in document.get("searcher", {}):
        whole = document | {"searcher": searcher | document.get("searcher", {}), "entrypoint": "A"}
        parse_config(whole, default_seed=1)


def test_a_constructor_that_wants_more_than_the_context_is_told_at_submission() -> None:
    class Old(PyTorchTrial):
        def __init__(self, context: Any, hparams: Any) -> None: ...

        def build_training_data_loader(self) -> Any: ...

        def build_validation_data_loader(self) -> Any: ...

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any: ...

        def evaluate_batch(self, batch: Any, batch_idx: int) -> Any: ...

    (problem,) = find_class_problems("Old", {"Old": Old})
    assert str(problem).startswith(
        "entrypoint: Old.__init__ requires hparams, and ranks give it the"
    )
