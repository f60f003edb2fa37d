"""Ranks that no longer hold the same parameters: found, named, and nothing else taken for it."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from typing import Any

import torch
from torch import nn

from det_jupyter.contract.run.journal import Notice
from det_jupyter.core import DistributedContext, init
from det_jupyter.pytorch import parallel
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.parallel import ParallelOptions
from det_jupyter.pytorch.training.rank_watch import RankWatch
from tests.integration.parallel_ranks import RankRunner
from tests.integration.parallel_samples import CPU
from tests.integration.rank_support import Lab

SEARCH = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from det_jupyter.pytorch import DataLoader, PyTorchTrial

generator = torch.Generator().manual_seed(3)
x = torch.randn(50, 6, generator=generator, dtype=torch.float64)
y = x.sum(dim=1, keepdim=True)


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Linear(6, 1)
        self.right = nn.Linear(6, 1)
        self.alphas = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        left, right = self.alphas.softmax(dim=0)
        return left * self.left(x) + right * self.right(x).tanh()

    def _loss(self, x, y):
        return nn.functional.mse_loss(self(x), y)


class SearchTrial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(Cells().double())
        weights = [*self.model.left.parameters(), *self.model.right.parameters()]
        self.w_opt = context.wrap_optimizer(torch.optim.SGD(weights, lr=0.05))
        self.a_opt = context.wrap_optimizer(torch.optim.Adam([self.model.alphas], lr=0.05))

    def build_training_data_loader(self):
        return DataLoader(TensorDataset(x, y), self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self):
        return DataLoader(TensorDataset(x, y), 8)

    def train_batch(self, batch, epoch_idx, batch_idx):
        self.context.backward(self.model._loss(*batch))
        self.context.step_optimizer(self.a_opt)
        self.w_opt.zero_grad()
        loss = self.model._loss(*batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.w_opt)
        if batch_idx == 3 and self.context.get_data_config().get("diverges"):
            self.model.right.weight.data.add_(self.context.distributed.rank)
        self.a_opt.zero_grad()
        return {"loss": loss}

    def evaluate_batch(self, batch):
        inputs, targets = batch
        return {"error": nn.functional.mse_loss(self.model(inputs), targets)}
"""


def search(**changes: Any) -> dict[str, Any]:
    return {
        "entrypoint": "SearchTrial",
        "hyperparameters": {"global_batch_size": 12},
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 20}},
        **changes,
    }


def test_two_slots_search_an_architecture_as_one_does(lab: Lab) -> None:
    gangs = [
        lab.start(SEARCH, search(optimizations={"check_ranks": "stop"}), ranks=ranks)
        for ranks in (1, 2)
    ]
    for gang in gangs:
        assert gang.ended().reason == "completed"
    one, two = (gang.weights() for gang in gangs)
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=0, atol=1e-12)


def test_ranks_that_diverge_are_reported_and_go_on(lab: Lab) -> None:
    gang = lab.start(SEARCH, search(data={"diverges": True}))
    assert gang.ended().reason == "completed"
    told = [notice.text for notice in gang.of(Notice)]
    assert len(told) == 1
    assert told[0] in gang.output()
    assert "models.0.right.weight is not the same on rank 1 as on rank 0" in told[0]
    assert "(steps_completed 20; " in told[0]
    assert "optimizations.check_ranks: stop" in told[0]


def test_ranks_that_diverge_end_the_trial_where_that_is_wanted(lab: Lab) -> None:
    config = search(data={"diverges": True}, optimizations={"check_ranks": "stop"})
    gang = lab.start(SEARCH, config)
    assert any(gang.wait())
    failure = gang.failures()[0]
    assert "models.0.right.weight is not the same on rank 1" in failure.error
    assert "context.backward(loss)" in failure.error


class Strange(nn.Module):
    """Parameters of many types, one of them empty, one misaligned, one of each rank's own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(3, 5))
        self.short = nn.Parameter(torch.zeros(7, dtype=torch.bfloat16)[1:])
        self.none = nn.Parameter(torch.zeros(0))
        self.scalar = nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.flags = nn.Parameter(torch.zeros(3, dtype=torch.bool), requires_grad=False)
        self.large = nn.Parameter(torch.zeros(600_000))
        self.own = nn.Parameter(torch.zeros(2))
        self.register_buffer("statistics", torch.zeros(1))
        self._ddp_params_and_buffers_to_ignore = ["own"]


def looked(distributed: DistributedContext) -> list[str]:
    """Return what is said of each change that was made on this rank."""

    def swap(model: Any) -> None:
        model.first.data[0, 1 if distributed.rank else 2] = 1.0

    def set_to(name: str, index: int, value: float) -> Any:
        def change(model: Any) -> None:
            model.get_parameter(name).data.view(-1)[index] = value

        return change

    def many_kinds_of_nan(model: Any) -> None:
        kind = 0x7FC00000 + distributed.rank
        model.first.data.view(torch.int32)[0, 0] = kind

    rank = distributed.rank
    changes = [
        swap,
        set_to("short", 5, rank),
        set_to("scalar", 0, rank * 1e-300),
        set_to("flags", 2, rank),
        set_to("large", 599_999, rank),
        many_kinds_of_nan,
        set_to("short", 0, torch.nan),
        set_to("own", 0, rank),
        lambda model: model.get_buffer("statistics").fill_(rank),
    ]
    told = []
    for change in changes:
        model = parallel.parallelize(Strange(), CPU, distributed, ParallelOptions())
        change(parallel.unwrap(model))
        try:
            RankWatch("stop", init(distributed=distributed), [model]).compare(5)
            told.append("")
        except TrialMistake as mistake:
            told.append(str(mistake).split(": ")[2].split(";")[0])
    return told


def test_every_bit_of_what_ranks_share_is_compared_and_nothing_else(run: RankRunner) -> None:
    two = run(looked, 2)
    three = run(looked_by_three, 3)
    at = "(steps_completed 5"
    assert two == 2 * [
        [
            f"models.0.first is not the same on rank 1 as on rank 0 {at}",
            f"models.0.short is not the same on rank 1 as on rank 0 {at}",
            f"models.0.scalar is not the same on rank 1 as on rank 0 {at}",
            f"models.0.flags is not the same on rank 1 as on rank 0 {at}",
            f"models.0.large is not the same on rank 1 as on rank 0 {at}",
            *[""] * 4,
        ]
    ]
    assert "not the same on ranks 1, 2 as on rank 0" in three[0]
    assert three[1:] == ["", ""]


def looked_by_three(distributed: DistributedContext) -> str:
    """Return what is printed of models that differ on the chief, looked at twice."""
    model = parallel.parallelize(nn.Linear(2, 2), CPU, distributed, ParallelOptions())
    parallel.unwrap(model).get_parameter("bias").data.fill_(distributed.is_chief)
    watch = RankWatch("report", init(distributed=distributed), [model])
    with redirect_stderr(io.StringIO()) as printed:
        watch.compare(1)
    assert not watch.is_due(1000, is_report=True, is_last=True)  # told once
    return printed.getvalue()
