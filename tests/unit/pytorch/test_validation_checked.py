"""What would end a validation is found before the training that would be lost with it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import DataLoader, PyTorchTrial, Reducer
from det_jupyter.pytorch.metrics.evaluation import check_validation

SOME = DataLoader(torch.utils.data.TensorDataset(torch.zeros(3)), 2)
NONE = DataLoader(torch.utils.data.TensorDataset(torch.zeros(0)), 2)


def trial_with(**methods: Any) -> Any:
    """Return a trial with these methods, which nobody has initialised."""
    made = {name: lambda self, *_, value=value: value for name, value in methods.items()}
    return object.__new__(type("Trial", (PyTorchTrial,), made))


@pytest.mark.parametrize(
    ("reducer", "problem"),
    [
        ("mean", "evaluation_reducer: got 'mean', expected a Reducer, or a dict of them"),
        (Reducer, "evaluation_reducer: got <enum 'Reducer'>, expected a Reducer, or a dict of"),
        ({"a": max}, "for 'a', expected a Reducer, such as Reducer.AVG"),
    ],
)
def test_what_is_no_reducer_is_refused(reducer: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_validation(trial_with(evaluate_batch={}, evaluation_reducer=reducer), SOME)
    assert problem in str(caught.value)


@pytest.mark.parametrize("reducer", [Reducer.MAX, {"a": Reducer.AVG}])
def test_reducers_are_accepted_whatever_their_metrics_will_be(reducer: Any) -> None:
    check_validation(trial_with(evaluate_batch={}, evaluation_reducer=reducer), SOME)


def test_data_that_is_known_to_be_empty_is_refused() -> None:
    with pytest.raises(ConfigError, match="the validation data has no batches"):
        check_validation(trial_with(evaluate_batch={}), NONE)
    check_validation(trial_with(evaluate_batch={}), iter([]))  # nobody knows yet
    check_validation(trial_with(evaluate_full_dataset={}), NONE)  # it may have data of its own
