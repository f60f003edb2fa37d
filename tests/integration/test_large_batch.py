"""Learning rates that are scaled with the batch, in real gangs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.rank_support import Gang, Lab

# The loss is minus the weight: its gradient is -1, and a step adds the learning rate.
SCALED = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from det_jupyter.pytorch import DataLoader, LRScheduler, PyTorchTrial

data = TensorDataset(torch.zeros(32, 1))


class Weight(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return x.mean() + self.weight


class ScaledTrial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(Weight().double())
        optimizer = torch.optim.SGD(self.model.parameters(), lr=1.0)
        self.optimizer = context.wrap_optimizer(optimizer)
        if context.get_hparams().get("halve"):
            context.wrap_lr_scheduler(
                torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5),
                LRScheduler.StepMode.STEP_EVERY_BATCH,
            )

    def build_training_data_loader(self):
        return DataLoader(data, self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self):
        return DataLoader(data, 8)

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = -self.model(batch[0].double())
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx):
        return {"error": self.model(batch[0].double())}
"""


def scaled(batches: int, *, halve: bool = False, **optimizations: Any) -> dict[str, Any]:
    return {
        "entrypoint": "ScaledTrial",
        "hyperparameters": {"global_batch_size": 8, "halve": halve},
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": batches}},
        "optimizations": {
            "large_batch": {"base_batch_size": 2, "warmup": {"batches": 6}},
            **optimizations,
        },
    }


def weight_of(gang: Gang) -> float:
    """Return the weight in the last checkpoint: the learning rates of all steps together."""
    return float(gang.weights()["weight"])


@pytest.mark.parametrize("ranks", [1, 2])
def test_steps_are_scaled_with_a_warmup_whatever_the_number_of_ranks(lab: Lab, ranks: int) -> None:
    gang = lab.start(SCALED, scaled(8), ranks=ranks)
    gang.ended()
    assert weight_of(gang) == 1.0 + 1.5 + 2.0 + 2.5 + 3.0 + 3.5 + 4.0 + 4.0


def test_a_resumed_run_takes_the_same_steps(lab: Lab) -> None:
    straight = lab.start(SCALED, scaled(8, halve=True), ranks=1)
    straight.ended()
    first = lab.start(SCALED, scaled(3, halve=True), ranks=1)
    first.ended()
    resumed = lab.start(SCALED, scaled(8, halve=True), ranks=1, checkpoint=first.last_checkpoint())
    resumed.ended()
    expected = 1.0 + 1.5 + 2.0 + 2.5 + (3.0 + 3.5 + 4.0 + 4.0) / 2  # StepLR halves after four
    assert (weight_of(straight), weight_of(resumed)) == (expected, expected)


def test_batches_that_are_averaged_into_a_step_count(lab: Lab) -> None:
    gang = lab.start(SCALED, scaled(16, aggregation_frequency=2), ranks=1)
    gang.ended()
    # k is 8: 1 + 7 * batch / 6 at batches 1, 3 and 5, and 8 at 7, 9, 11, 13 and 15
    assert weight_of(gang) == pytest.approx(3 + 7 * 9 / 6 + 8 * 5)
