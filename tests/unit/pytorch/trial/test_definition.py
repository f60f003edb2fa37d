"""What can be said of a trial class without running it; records that a trial counts itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from det_jupyter.pytorch import (
    PyTorchTrial,
    PyTorchTrialContext,
    check_constructor,
    check_searcher_metric,
    check_trial_class,
)
from det_jupyter.pytorch.data import Share
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.trial.definition import length_function
from tests.problems import said


class Whole(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        raise AssertionError("it must not be run")

    def build_training_data_loader(self) -> Any: ...

    def build_validation_data_loader(self) -> Any: ...

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any: ...

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        def inner() -> int:
            return 3

        if batch_idx:
            return {"accuracy": inner()}
        return {"accuracy": 1, "loss": 2}


class Child(Whole):
    pass


class Both(Whole):
    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        return {}


class Bare(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None: ...


class Computed(Whole):
    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        metrics = {"loss": 1}
        return metrics


@pytest.mark.parametrize(
    ("trial_class", "problems"),
    [
        (Whole, []),
        (Child, []),
        (Both, ["Both defines both evaluate_batch and evaluate_full_dataset; keep one of them"]),
        (
            Bare,
            [
                "Bare lacks train_batch, build_training_data_loader and "
                "build_validation_data_loader; define them in the class",
                "Bare lacks evaluate_batch; define it (or evaluate_full_dataset)",
            ],
        ),
        (
            nn.Linear,
            ["Linear does not derive from PyTorchTrial; write `class Linear(PyTorchTrial)`"],
        ),
        (len, ["got a builtin_function_or_method, expected a class derived from PyTorchTrial"]),
    ],
)
def test_everything_a_class_lacks_is_named_at_once(trial_class: Any, problems: list[str]) -> None:
    assert check_trial_class(trial_class) == problems


def test_a_metric_is_only_called_missing_when_the_source_is_certain() -> None:
    assert check_searcher_metric(Whole, "accuracy") == []
    assert said(check_searcher_metric(Whole, "acuracy")) == [
        "searcher.metric: the trial reports accuracy, loss; "
        "got 'acuracy' (did you mean 'accuracy'?)"
    ]
    assert check_searcher_metric(Computed, "anything") == []


NO_CONTEXT = "does not take the context alone; write `def __init__(self, context)`"


def made_by(init: Any) -> type:
    return type("Made", (Whole,), {"__init__": init} if init else {})


@pytest.mark.parametrize(
    ("init", "problem"),
    [
        (None, ""),
        (lambda self, context: None, ""),
        (lambda self, *args: None, ""),
        (lambda self, context, **kwargs: None, ""),
        (lambda self, context, hparams=None, *, size=3: None, ""),
        (lambda self: None, NO_CONTEXT),
        (lambda self, *, context: None, NO_CONTEXT),
        (lambda self, context, hparams: None,
         "requires hparams, and ranks give it the context alone; read hyperparameters from "
         "context.get_hparams(), and give other parameters a default"),
        (lambda self, context, hparams, *, size: None,
         "requires hparams and size, and ranks give it the context alone; read hyperparameters "
         "from context.get_hparams(), and give other parameters a default"),
    ],
)  # fmt: skip
def test_a_constructor_gets_the_context_alone(init: Any, problem: str) -> None:
    expected = [f"Made.__init__ {problem}"] if problem else []
    assert check_constructor(made_by(init)) == expected


class Rows(PyTorchTrial):
    def __init__(self) -> None:
        pass


class Tokens(Rows):
    """Counts what is not padding."""

    def get_batch_length(self, batch: torch.Tensor) -> int:
        return int(batch.count_nonzero())


def test_by_default_the_loader_knows() -> None:
    assert length_function(Rows(), "training") is None


def test_a_trial_counts_its_own_records_but_not_those_of_a_stand_in() -> None:
    length = length_function(Tokens(), "training")
    assert length is not None
    batch = torch.tensor([[1, 2, 0], [3, 0, 0]])
    assert length(batch, Share(2, 4), 0) == 3
    assert length(batch, Share(0, 2), 1) == 0


@pytest.mark.parametrize("given", [-1, 2.5, True, None])
def test_what_is_no_number_of_records_is_refused(given: Any) -> None:
    class Wrong(Rows):
        def get_batch_length(self, batch: Any) -> int:
            return given  # type: ignore[no-any-return]  # the mistake

    length = length_function(Wrong(), "training")
    assert length is not None
    with pytest.raises(TrialMistake, match=f"returned {given} for training batch 7, expected a n"):
        length([], Share(1, 1), 7)
