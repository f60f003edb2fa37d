"""What several ranks do together: the same gradients as one, the same decisions, the same end."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from det_jupyter.contract.run.journal import CheckpointSaved, MetricsReported
from tests.integration.rank_support import Lab

EXACT = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from det_jupyter.pytorch import DataLoader, PyTorchTrial, PyTorchCallback, Reducer

generator = torch.Generator().manual_seed(3)
x = torch.randn(96, 6, generator=generator, dtype=torch.float64)
y = x.sum(dim=1, keepdim=True)


class ExactTrial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)).double()
        self.model = context.wrap_model(net)
        self.optimizer = context.wrap_optimizer(
            torch.optim.Adam(self.model.parameters(), lr=0.01)
        )

    def build_training_data_loader(self):
        return DataLoader(
            TensorDataset(x, y), self.context.get_per_slot_batch_size(), shuffle=True
        )

    def build_validation_data_loader(self):
        records = self.context.get_data_config().get("validation_records", 96)
        return DataLoader(TensorDataset(x[:records], y[:records]), 8)

    def train_batch(self, batch, epoch_idx, batch_idx):
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.model(inputs), targets)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer, clip_grads=self.clip)
        self.context.set_stop_requested(batch_idx == 6 and self.stops_here())
        return {"loss": loss, "rank": self.context.distributed.rank, "vector": inputs}

    def clip(self, parameters):
        torch.nn.utils.clip_grad_norm_(parameters, 0.5)

    def stops_here(self):
        return self.context.distributed.rank == self.context.get_data_config().get("stops_on")

    def evaluation_reducer(self):
        return {"error": Reducer.AVG, "records": Reducer.SUM, "largest": Reducer.MAX}

    def evaluate_batch(self, batch):
        inputs, targets = batch
        error = nn.functional.mse_loss(self.model(inputs), targets)
        return {"error": error, "records": len(inputs), "largest": inputs.max()}
"""


def exact(batches: int = 20, **changes: Any) -> dict[str, Any]:
    return {
        "entrypoint": "ExactTrial",
        "hyperparameters": {"global_batch_size": 24},
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": batches}},
        **changes,
    }


@pytest.mark.parametrize(("ranks", "aggregation_frequency"), [(2, 1), (3, 3)])
def test_many_ranks_compute_what_one_rank_does(
    lab: Lab, ranks: int, aggregation_frequency: int
) -> None:
    config = exact(12, optimizations={"aggregation_frequency": aggregation_frequency})
    alone, together = lab.start(EXACT, config, ranks=1), lab.start(EXACT, config, ranks=ranks)
    alone.ended()
    together.ended()
    expected, got = alone.weights(), together.weights()
    for name, tensor in expected.items():
        torch.testing.assert_close(got[name], tensor, rtol=0, atol=1e-6)
    one, many = alone.validations()[-1].metrics, together.validations()[-1].metrics
    assert many["error"] == pytest.approx(one["error"], abs=1e-6)
    assert (many["records"], many["largest"]) == (one["records"], one["largest"])
    assert one["records"] == 96


def test_training_metrics_are_averaged_over_ranks_and_batches(lab: Lab) -> None:
    gang = lab.start(EXACT, exact(3), ranks=2)
    gang.ended()
    (training,) = [r for r in gang.of(MetricsReported) if r.group == "training"]
    assert training.metrics["rank"] == 0.5
    assert isinstance(training.metrics["vector"], float)  # not a scalar: its mean


def test_without_averaging_the_chief_reports_its_own(lab: Lab) -> None:
    gang = lab.start(EXACT, exact(3, optimizations={"average_training_metrics": False}))
    gang.ended()
    (training,) = [r for r in gang.of(MetricsReported) if r.group == "training"]
    assert training.metrics["rank"] == 0.0


@pytest.mark.parametrize(("ranks", "records"), [(2, 8), (3, 12), (3, 33)])
def test_ranks_may_have_few_validation_batches_or_none(lab: Lab, ranks: int, records: int) -> None:
    config = exact(4, data={"validation_records": records}, min_validation_period={"batches": 2})
    gang = lab.start(EXACT, config, ranks=ranks)
    gang.ended()
    alone = lab.start(EXACT, config, ranks=1)
    alone.ended()
    assert [v.metrics["records"] for v in gang.validations()] == [records] * 2
    for mine, theirs in zip(gang.validations(), alone.validations(), strict=True):
        assert mine.metrics["error"] == pytest.approx(theirs.metrics["error"], abs=1e-6)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_stop_that_one_rank_asks_for_is_everyones(lab: Lab, rank: int) -> None:
    # Asked for while the eighth batch trains, it takes effect at the next report.
    source = EXACT.replace("batch_idx == 6 and", "batch_idx >= 7 and")
    gang = lab.start(source, exact(data={"stops_on": rank}, scheduling_unit=6))
    ended = gang.ended()
    assert (ended.reason, ended.steps_completed) == ("stopped", 12)
    assert [c.steps_completed for c in gang.of(CheckpointSaved)] == [12]


def test_a_stop_that_was_taken_back_in_time_is_none(lab: Lab) -> None:
    gang = lab.start(EXACT, exact(data={"stops_on": 1}, scheduling_unit=10))
    assert gang.ended().reason == "completed"


def test_evaluate_full_dataset_runs_on_the_chief_alone(lab: Lab) -> None:
    source = EXACT.replace(
        "    def evaluate_batch(self, batch):\n        inputs, targets = batch\n",
        "    def evaluate_full_dataset(self, data_loader):\n"
        "        assert self.context.distributed.rank == 0\n"
        "        inputs = torch.cat([inputs for inputs, targets in data_loader])\n"
        "        targets = inputs.sum(dim=1, keepdim=True)\n",
    )
    gang = lab.start(source, exact(2))
    gang.ended()
    assert gang.validations()[-1].metrics["records"] == 96


def test_the_checkpoint_policy_decides_what_is_saved_after_validations(lab: Lab) -> None:
    saved = {}
    for policy, ranks in (("best", 2), ("all", 1), ("none", 1)):
        config = exact(12, checkpoint_policy=policy, min_validation_period={"batches": 4})
        gang = lab.start(EXACT, config, ranks=ranks)
        gang.ended()
        saved[policy] = [c.steps_completed for c in gang.of(CheckpointSaved)]
        errors = [v.metrics["error"] for v in gang.validations()]
    best = [
        4 * (i + 1) for i, error in enumerate(errors) if error < min([*errors[:i], float("inf")])
    ]
    assert saved["all"] == [4, 8, 12]
    assert saved["none"] == [12]
    assert saved["best"] == sorted({*best, 12})


def test_nothing_is_best_that_does_not_beat_the_experiments_best(lab: Lab) -> None:
    config = exact(8, min_validation_period={"batches": 4})
    gang = lab.start(EXACT, config, best_metric=0.0)
    gang.ended()
    assert [c.steps_completed for c in gang.of(CheckpointSaved)] == [8]


def test_an_initial_validation_comes_before_the_first_batch(lab: Lab) -> None:
    gang = lab.start(EXACT, exact(2, perform_initial_validation=True))
    gang.ended()
    assert [v.steps_completed for v in gang.validations()] == [0, 2]
    assert [c.steps_completed for c in gang.of(CheckpointSaved)] == [0, 2]
