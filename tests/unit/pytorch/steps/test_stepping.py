"""Optimizer steps on one rank: windows of batches, clipping, zeroing, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from det_jupyter.core import DistributedContext
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.data import Share
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.steps.position import Position
from det_jupyter.pytorch.steps.precision import Precision
from det_jupyter.pytorch.steps.stepping import Stepping

CPU = torch.device("cpu")


class Training:
    """A weight of 0, whose gradient in each batch is that batch's value; the rate is 1."""

    def __init__(
        self,
        *,
        window: int = 1,
        end: int = 100,
        averages: bool = True,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.optimizer = torch.optim.SGD([self.weight], lr=1.0)
        position = Position(aggregation_frequency=window, end=end)
        self.precision = Precision(CPU, dtype)
        self.stepping = Stepping(position, self.precision, DistributedContext())
        self.stepping.add(self.optimizer, averages=averages)

    def backward(self, batch_idx: int, value: float) -> None:
        self.stepping.begin_batch(batch_idx, Share(1, 1))
        self.stepping.backward((self.weight * value).sum(), None, False, False)

    def step(self, clip: Any = None, *, zeroes: bool = True) -> None:
        self.stepping.step(self.optimizer, clip, zeroes, None)

    def train(self, values: Sequence[float]) -> list[float]:
        """Return the weight after each batch."""
        found = []
        for batch_idx, value in enumerate(values):
            self.backward(batch_idx, value)
            self.step()
            self.stepping.after_step()
            found.append(self.weight.item())
        return found


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({}, [-2.0, -6.0, -14.0, -16.0]),
        ({"window": 2}, [0.0, -3.0, -3.0, -8.0]),
        ({"window": 2, "averages": False}, [0.0, -6.0, -6.0, -16.0]),
        ({"window": 3, "end": 4}, [0.0, 0.0, -14 / 3, -14 / 3 - 2.0]),  # the last is shorter
    ],
)
def test_gradients_of_a_window_are_summed_or_averaged(
    options: dict[str, Any], weights: list[float]
) -> None:
    assert Training(**options).train([2.0, 4.0, 8.0, 2.0]) == pytest.approx(weights)


def test_clipping_sees_the_gradients_with_which_the_optimizer_steps() -> None:
    training = Training(window=2, dtype=torch.float16)
    seen = []

    def clip(parameters: Any) -> None:
        seen.append(parameters[0].grad.item())
        parameters[0].grad.fill_(0.5)

    for batch_idx, value in enumerate([2.0, 4.0]):
        training.backward(batch_idx, value)
        training.step(clip)
    assert seen == [3.0]  # averaged, and without the scale of fp16
    assert training.weight.item() == -0.5


def test_gradients_are_zeroed_after_a_step_unless_the_trial_keeps_them() -> None:
    training = Training()
    training.backward(0, 1.0)
    training.step(zeroes=False)
    training.backward(1, 1.0)
    training.step()
    assert training.weight.item() == -3.0
    assert training.weight.grad is None


def test_the_scale_of_fp16_is_updated_once_in_a_batch_with_a_step() -> None:
    training = Training(window=2, dtype=torch.float16)
    updates: list[int] = []
    scaler: Any = training.precision.scaler
    update = scaler.update

    def count() -> None:
        updates.append(training.stepping.position.batch_idx)
        update()

    scaler.update = count
    training.train([1.0, 1.0, 1.0, 1.0, 1.0])
    assert updates == [1, 3]


def test_a_step_of_an_optimizer_that_is_not_wrapped_is_refused() -> None:
    training = Training()
    other = torch.optim.SGD([training.weight], lr=1.0)
    with pytest.raises(ConfigError, match="this SGD is not wrapped"):
        training.stepping.step(other, None, True, None)


def test_gradients_cannot_be_kept_where_windows_have_several_batches() -> None:
    training = Training(window=2)
    training.backward(0, 1.0)
    with pytest.raises(ConfigError, match="auto_zero_grads=False does not go with"):
        training.step(zeroes=False)


def test_a_clipping_that_is_no_function_is_refused() -> None:
    training = Training()
    training.backward(0, 1.0)
    with pytest.raises(ConfigError, match="got a float as clip_grads, expected a function"):
        training.step(1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 2}, "aggregation_frequency is 2: it would step too often"),
        ({"dtype": torch.float16}, "fp16 scales the loss"),
    ],
)
def test_the_trials_own_step_is_refused_where_it_would_differ(
    options: dict[str, Any], message: str
) -> None:
    training = Training(**options)
    training.backward(0, 1.0)
    with pytest.raises(TrialMistake, match=message):
        training.optimizer.step()


def test_the_trials_own_step_is_allowed_where_it_is_the_same() -> None:
    training = Training()
    training.backward(0, 1.0)
    training.optimizer.step()
    assert training.weight.item() == -1.0
