"""Changes and profiles of a trial that trains: real ranks take orders from their folder."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import torch

from det_jupyter.contract.messages import (
    Change,
    ChangeOrder,
    CheckpointRef,
    Order,
    PassOrders,
    Profile,
    ProfileOrder,
)
from det_jupyter.contract.run.journal import ChangeMade, CheckpointSaved, Notice, TraceSaved
from det_jupyter.contract.values.lengths import Length
from det_jupyter.contract.values.text import size
from tests.integration.rank_support import Gang, Lab
from tests.trials import Gate

SOURCE = """
import time, torch
from torch import nn
from det_jupyter.pytorch import DataLoader, LRScheduler, PyTorchTrial

class Steered(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.pause_s = context.get_hparam("pause_s")
        if context.get_hparam("own_profiler"):
            context.set_profiler(
                schedule=torch.profiler.schedule(wait=99, warmup=1, active=1)
            )
        self.model = context.wrap_model(nn.Linear(4, 1).double())
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        )
        context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 0.99 ** step),
            LRScheduler.StepMode.STEP_EVERY_BATCH,
        )

    def build_training_data_loader(self):
        data = torch.randn(400, 4, generator=torch.Generator().manual_seed(0)).double()
        return DataLoader(data, batch_size=self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self):
        data = torch.randn(20, 4, generator=torch.Generator().manual_seed(1)).double()
        return DataLoader(data, batch_size=self.context.get_per_slot_batch_size())

    def train_batch(self, batch, epoch_idx, batch_idx):
        time.sleep(self.pause_s)
        loss = ((self.model(batch) - batch.sum(1, keepdim=True)) ** 2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss, "lr": self.optimizer.param_groups[0]["lr"]}

    def evaluate_batch(self, batch):
        return {"error": self.model(batch).abs().mean()}
"""


def config(*, pause_s: float = 0.0, own_profiler: bool = False, batches: int = 40) -> Any:
    return {
        "name": "steered",
        "entrypoint": "Steered",
        "hyperparameters": {
            "global_batch_size": 8,
            "pause_s": pause_s,
            "own_profiler": own_profiler,
        },
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": batches}},
        "min_checkpoint_period": {"batches": 5},
        "min_validation_period": {"batches": 10},
        "checkpoint_storage": {"save_trial_latest": 100},
        "scheduling_unit": 10,
    }


def pass_orders(gang: Gang, *orders: Order) -> None:
    """Order something, as the agent does."""
    passed = PassOrders(allocation_id=gang.plan.allocation_id, orders=list(orders))
    gang.folder.orders.write_text(passed.model_dump_json())
    gang.page.announce_orders(max(order.id for order in orders))


def start(
    lab: Lab,
    document: Any,
    orders: list[Order],
    *,
    ranks: int = 2,
    checkpoint: CheckpointRef | None = None,
) -> Gang:
    """Start a gang whose plan has these orders."""
    plan, folder = lab.prepare(SOURCE, document, ranks, checkpoint=checkpoint)
    return lab.start_plan(plan.model_copy(update={"orders": orders}), folder)


def assert_equal(one: Gang, other: Gang) -> None:
    for name, weights in one.weights().items():
        assert torch.equal(weights, other.weights()[name]), name


def test_a_change_is_made_at_one_batch_and_repeated_there_to_the_last_bit(
    lab: Lab, tmp_path: Path
) -> None:
    gate = Gate(tmp_path, 7)
    live = lab.start(gate.source(SOURCE), config())
    live.wait_until(gate.is_reached, "it trains")
    change = Change(lr_factor=0.5, min_validation_period=Length("batches", 4))
    profile = Profile(steps=3, ranks=[0, 1])
    pass_orders(live, ProfileOrder(id=8, profile=profile), ChangeOrder(id=9, change=change))
    gate.open()
    live.ended()
    (made,) = live.of(ChangeMade)
    at = made.steps_completed
    assert made.order_id == 9
    assert not live.of(ChangeMade, rank=1)
    assert made.text.startswith("lr ")
    assert made.text.endswith(", min_validation_period 10 batches → 4 batches")
    validated = [r.steps_completed for r in live.validations()]
    assert all(steps % 10 == 0 for steps in validated if steps <= at)
    assert [s for s in validated if s > at] == list(range(at // 4 * 4 + 4, 41, 4))

    same: list[Order] = [ChangeOrder(id=9, change=change, steps_completed=at)]
    saved = {c.steps_completed: c for c in live.of(CheckpointSaved)}
    before = max(steps for steps in saved if steps < at)
    after = min(steps for steps in saved if at < steps < 40)
    for steps in (before, after):
        ref = CheckpointRef(uuid=saved[steps].uuid, path=saved[steps].path, steps_completed=steps)
        resumed = start(lab, config(), same, checkpoint=ref)
        resumed.ended()
        assert_equal(live, resumed)
        assert not resumed.of(ChangeMade)  # it is known where
        assert resumed.validations()[-1].metrics == live.validations()[-1].metrics
        # A checkpoint is saved before the validation of its batch, which is then made again.
        later = [r.steps_completed for r in resumed.validations() if r.steps_completed > steps]
        assert later == [s for s in validated if s > steps]

    alone = start(lab, config(), same, ranks=1)
    alone.ended()
    for name, weights in alone.weights().items():
        torch.testing.assert_close(weights, live.weights()[name])

    traces = [live.of(TraceSaved, rank)[0] for rank in (0, 1)]
    assert [(t.order_id, t.steps, t.error, t.note) for t in traces] == [(8, 3, "", "")] * 2
    assert traces[0].first == traces[1].first  # the same batches
    for trace in traces:
        path = Path(trace.path)
        assert path.parent == lab.data_dir / "traces" / "1" / "1"
        assert path.stat().st_size == trace.size_bytes
        names = [event["name"] for event in read_trace(path)]
        assert sum(name.startswith("ProfilerStep#") for name in names) == 3
        assert any("all_reduce" in name or "allreduce" in name for name in names)


def read_trace(path: Path) -> list[dict[str, Any]]:
    """Return the complete events of a Chrome trace, which is what Perfetto reads."""
    trace = json.loads(gzip.decompress(path.read_bytes()))
    return [event for event in trace["traceEvents"] if event.get("ph") == "X"]


def test_what_cannot_be_done_is_reported_and_training_goes_on(lab: Lab, tmp_path: Path) -> None:
    gate = Gate(tmp_path, 3)
    gang = lab.start(gate.source(SOURCE), config(own_profiler=True, batches=30))
    gang.wait_until(gate.is_reached, "it trains")
    pass_orders(
        gang,
        ProfileOrder(id=3, profile=Profile(ranks=[1])),
        ChangeOrder(id=4, change=Change(lr=0.5, optimizer=1)),
        ChangeOrder(id=5, change=Change(min_validation_period=Length("batches", 0))),
    )
    gate.open()
    assert gang.ended().reason == "completed"
    (trace,) = gang.of(TraceSaved, rank=1)
    assert "context.set_profiler" in trace.error
    assert not trace.path
    refused, made = gang.of(ChangeMade)
    assert refused.error == "optimizer: got 1, expected a number from 0 to 0"
    assert made.text == "min_validation_period 10 batches → none"
    assert not gang.of(Notice)
    later = [
        r.steps_completed for r in gang.validations() if r.steps_completed > made.steps_completed
    ]
    assert later == [30]


def test_a_trace_has_as_many_batches_as_fit_and_says_when_it_was_cut(lab: Lab) -> None:
    document = config(pause_s=0.05, batches=100_000)
    del document["min_validation_period"]  # a batch with a validation has a larger trace
    gang = lab.start(SOURCE, document, ranks=1)
    gang.wait_until(lambda: gang.steps_completed() >= 2, "it trains")
    pass_orders(gang, ProfileOrder(id=1, profile=Profile(steps=5, max_bytes=1024)))
    gang.wait_until(lambda: gang.of(TraceSaved), "the first is over")
    pass_orders(gang, ProfileOrder(id=2, profile=Profile(steps=1)))
    gang.wait_until(lambda: len(gang.of(TraceSaved)) > 1, "the second is over")
    whole = gang.of(TraceSaved)[1]
    limit = 4 * whole.size_bytes  # how large one batch's is depends on the machine
    pass_orders(gang, ProfileOrder(id=3, profile=Profile(steps=500, max_bytes=limit)))
    gang.wait_until(lambda: len(gang.of(TraceSaved)) > 2, "the third is over")
    pass_orders(gang, ProfileOrder(id=4, profile=Profile(steps=1000)))
    enough = gang.steps_completed() + 20
    gang.wait_until(lambda: gang.steps_completed() > enough, "the fourth has begun")
    gang.page.raise_signal("preempt")
    gang.ended()
    refused, whole, cut, ended = gang.of(TraceSaved)
    assert "and the limit is 1.0 kB; give a larger max_bytes" in refused.error
    assert (whole.steps, whole.note) == (1, "")
    assert 1 <= cut.steps < 500
    assert cut.size_bytes <= limit
    assert cut.note == f"500 batches would exceed the limit of {size(limit)}"
    assert ended.steps > 1
    assert ended.note == "the run ended before 1000 batches were recorded"
    assert all(Path(trace.path).exists() for trace in (whole, cut, ended))
