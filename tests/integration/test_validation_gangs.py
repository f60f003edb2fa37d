"""Metrics of whole runs: each record counts once, whatever the number of ranks."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.run.journal import MetricsReported, Notice
from tests.integration.rank_support import Gang, Lab

COUNTING = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from det_jupyter.pytorch import DataLoader, PyTorchTrial

data = torch.arange(9, dtype=torch.float64)


class CountingTrial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(nn.Linear(1, 1).double())
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=0.0)
        )
        self.seen = context.wrap_reducer(lambda values: torch.cat(values), "seen")

    def build_training_data_loader(self):
        return DataLoader(TensorDataset(data), self.context.get_per_slot_batch_size())

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch, epoch_idx, batch_idx):
        (x,) = batch
        self.seen.update(x)
        loss = self.model(x[:, None]).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        nan = self.context.get_data_config().get("nan_on") == self.context.distributed.rank
        return {"loss": loss * float("nan") if nan and batch_idx == 1 else loss, "x": x}

    def evaluate_batch(self, batch):
        (x,) = batch
        self.seen.update(x)
        return {"x": x.mean()}
"""


def counting(**changes: Any) -> dict[str, Any]:
    return {
        "entrypoint": "CountingTrial",
        "hyperparameters": {"global_batch_size": 4},
        "searcher": {"name": "single", "metric": "x", "max_length": {"batches": 6}},
        "scheduling_unit": 3,
        **changes,
    }


def reports(gang: Gang, group: str) -> list[dict[str, Any]]:
    return [r.metrics for r in gang.of(MetricsReported) if r.group == group]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_pass_over_the_data_reports_every_record_once(lab: Lab, ranks: int) -> None:
    # Batches of 4, 4 and 1: of the last one, all ranks but the first train on a stand-in.
    gang = lab.start(COUNTING, counting(), ranks=ranks)
    gang.ended()
    everything = [float(record) for record in range(9)]
    assert [report["seen"] for report in reports(gang, "training")] == [everything] * 2
    assert [report["x"] for report in reports(gang, "training")] == [4.0, 4.0]
    assert reports(gang, "validation") == [{"x": 4.0, "seen": everything}]


def test_a_loss_that_is_not_a_number_is_told_with_its_rank(lab: Lab) -> None:
    gang = lab.start(COUNTING, counting(data={"nan_on": 1}))
    gang.ended()
    (notice,) = gang.of(Notice)
    assert notice.text.startswith("Loss became NaN at batch 1 on rank 1. ")
    assert gang.output().count(notice.text) == 1
    assert str(reports(gang, "training")[0]["loss"]) == "NaN"


def test_on_request_a_loss_that_is_not_a_number_ends_the_trial_for_good(lab: Lab) -> None:
    gang = lab.start(COUNTING, counting(data={"nan_on": 1}, on_nan_loss="stop"))
    assert any(gang.wait())
    failure = gang.failures()[0]
    assert "loss became NaN at batch 1 on rank 1" in failure.error
    assert failure.final is True
