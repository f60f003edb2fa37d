"""A rank of a gang whose exchange over gloo is with itself trains as by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from det_jupyter.contract.run.journal import StepTimes
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.checkpoints.restore import read_state
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.parallel import DistributedModel
from tests.unit.pytorch.parallel.test_lone_replica import OneOfTwo
from tests.unit.pytorch.training.planned_samples import Line, Planned


class Half(Line):
    """Trains by itself what the first of two ranks trains: the first half of each batch."""

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        return super().train_batch([part[: len(part) // 2] for part in batch], 0, 0)


@pytest.fixture(autouse=True)
def _group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def trained(home: Path, trial: type[Line] = Line, **given: Any) -> Planned:
    run = Planned(home, trial, distributed=OneOfTwo(), **given)
    run.train()
    return run


def same(one: Planned, other: Planned) -> bool:
    return all(map(torch.equal, one.weights(), other.weights()))


@pytest.mark.parametrize(
    "optimizations",
    [{}, {"aggregation_frequency": 2}, {"tensor_fusion_threshold": 1},
     {"aggregation_frequency": 2, "average_aggregated_gradients": False}],
)  # fmt: skip
def test_it_trains_its_half_of_each_batch(tmp_path: Path, optimizations: dict[str, Any]) -> None:
    configuration = {"optimizations": optimizations}
    run = trained(tmp_path / "a", configuration=configuration)
    assert isinstance(run.run.context.models[0], DistributedModel)
    alone = Planned(tmp_path / "b", Half, configuration=configuration)
    alone.train()
    for one, other in zip(run.weights(), alone.weights(), strict=True):
        torch.testing.assert_close(one, other)


def test_its_exchanges_are_timed_unless_nothing_is(tmp_path: Path) -> None:
    timed = trained(tmp_path / "a")
    plain = trained(tmp_path / "b", configuration={"profiling": {"enabled": False}})
    assert same(timed, plain), "timers change nothing"
    parts = {part for record in timed.records(StepTimes) for part in record.parts}
    assert {"exchange", "backward", "forward"} <= parts
    assert plain.records(StepTimes) == []


class Taught(Line):
    """Has a model beside it that is not trained."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.teacher = context.wrap_model(nn.Linear(2, 1).requires_grad_(False))


def test_buckets_that_are_tuned_change_nothing(tmp_path: Path) -> None:
    tuned = {"optimizations": {"auto_tune_tensor_fusion": True}}
    run = trained(tmp_path / "a", Taught, configuration=tuned)
    assert same(run, trained(tmp_path / "b"))
    state = read_state(Path(run.last_checkpoint(tmp_path / "a").path))
    assert "bucket_tuner" in state["parts"], "so a pause changes nothing either"


def test_the_scale_of_gradients_follows_the_steps(tmp_path: Path) -> None:
    run = trained(tmp_path, configuration={"optimizations": {"mixed_precision": "fp16"}})
    scaler = run.run.context.scaler.state_dict()
    skipped = math.log2(65536 / scaler["scale"])  # steps: the first ones, which overflow
    assert skipped + scaler["_growth_tracker"] == 10


class Raw(Line):
    """Computes its gradients without the context."""

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
        loss.backward()
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}


class Mixed(Line):
    """Adds to gradients that it has computed without the context."""

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx == 0:
            self.model(batch[0]).sum().backward()
        return super().train_batch(batch, epoch_idx, batch_idx)


class Twice(Line):
    """Steps again with gradients of the batch before."""

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx == 0:
            loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
            self.context.backward(loss)
        self.context.step_optimizer(self.optimizer, auto_zero_grads=False)
        return {"loss": 1.0}


class Graph(Line):
    """Asks for a graph of the gradients."""

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
        self.context.backward(loss, create_graph=True)
        return {"loss": loss}


class Thawed(Line):
    """Trains a model that had no trained parameters when it was wrapped."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        frozen = nn.Linear(2, 1)
        frozen.requires_grad_(False)
        self.frozen = context.wrap_model(frozen)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.frozen.bias.requires_grad = True
        return super().train_batch(batch, epoch_idx, batch_idx)


class Within(Line):
    """Steps from a hook, while gradients are computed."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        last = next(iter(self.model.parameters()))
        last.register_post_accumulate_grad_hook(lambda _: self.optimizer.step())


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (Raw, "SGD steps with gradients that context.backward has not computed"),
        (Mixed, "SGD steps with gradients that context.backward has not computed"),
        (Twice, "SGD steps with gradients that context.backward has not computed"),
        (Graph, "create_graph"),
        (Thawed, "bias of Linear is trained now, but no parameter of the model was when it was"),
        (Within, "SGD steps while gradients are computed, as from a hook of a parameter"),
    ],
)
def test_gradients_that_are_not_those_of_all_records_are_refused(
    trial: type[Line], words: str, tmp_path: Path
) -> None:
    with pytest.raises(TrialMistake, match=words):
        trained(tmp_path, trial)


class Discarding(Mixed):
    """Computes gradients without the context, as for an adversarial input, and drops them."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.model.register_forward_pre_hook(lambda *_: self.optimizer.zero_grad())


def test_gradients_that_are_discarded_may_be_computed_in_any_way(tmp_path: Path) -> None:
    assert same(trained(tmp_path / "a", Discarding), trained(tmp_path / "b"))


class Repeating(Line):
    """Steps twice with the gradients of a batch."""

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer, auto_zero_grads=False)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}


def test_an_optimizer_may_step_twice_in_a_batch(tmp_path: Path) -> None:
    trained(tmp_path, Repeating)


class Direct(Line):
    """Steps without the context."""

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
        self.context.backward(loss)
        self.optimizer.step()
        return {"loss": loss}


def test_an_optimizer_may_be_stepped_by_the_trial_if_that_is_the_same(tmp_path: Path) -> None:
    assert same(trained(tmp_path / "a", Direct), trained(tmp_path / "b"))
    with pytest.raises(
        TrialMistake, match=r"SGD\.step\(\) was called directly, but optimizations.agg"
    ):
        trained(
            tmp_path / "c", Direct, configuration={"optimizations": {"aggregation_frequency": 2}}
        )


class Closing(Line):
    """Computes its gradients in a closure."""

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        losses: list[torch.Tensor] = []

        def closure() -> torch.Tensor:
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
            self.context.backward(loss)
            losses.append(loss)
            return loss

        returned = self.optimizer.step(closure)
        assert isinstance(returned, torch.Tensor)
        self.returned = float(returned), float(losses[0].detach())
        return {"loss": losses[0]}


def test_a_closure_returns_the_mean_over_the_ranks(tmp_path: Path) -> None:
    run = trained(tmp_path / "a", Closing)
    assert isinstance(run.run.trial, Closing)
    mean, own = run.run.trial.returned
    assert mean == pytest.approx(own)
    assert same(run, trained(tmp_path / "b"))


class Normed(Line):
    """Has buffers, which the chief sends before each window."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.normed = context.wrap_model(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)))
        context.wrap_optimizer(torch.optim.SGD(self.normed.parameters(), lr=0.1))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.context.backward(self.normed(batch[0]).square().mean())
        self.context.step_optimizer(self.context.optimizers[1])
        return super().train_batch(batch, epoch_idx, batch_idx)


@pytest.mark.parametrize("enabled", [True, False])
def test_buffers_go_their_way(tmp_path: Path, enabled: bool) -> None:
    run = trained(tmp_path, Normed, configuration={"profiling": {"enabled": enabled}})
    model = run.run.context.models[1]
    assert int(model.get_buffer("module.0.num_batches_tracked")) == 10


def test_too_few_records_for_all_ranks_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"got 1, expected at least .* \(2\)"):
        trained(tmp_path, hparams={"global_batch_size": 1})


class Unlike(OneOfTwo):
    """The first of two ranks, of which the other has wrapped another optimizer."""

    def allgather(self, value: Any) -> list[Any]:
        match value:
            case ({"wrap_optimizer": _} as wrapped, digests):
                return [value, (wrapped | {"wrap_optimizer": ["Adam"]}, digests)]
        return super().allgather(value)


def test_ranks_that_train_other_things_are_told_before_the_first_batch(tmp_path: Path) -> None:
    run = Planned(tmp_path, distributed=Unlike())
    with pytest.raises(ConfigError, match="wrap_optimizer: rank 0 has wrapped SGD, rank 1 Adam"):
        run.train()
    assert run.run.steps_completed == 0
