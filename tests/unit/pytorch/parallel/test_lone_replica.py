"""One replica, whose exchange over gloo is with itself: what it does in the test's own process.

Several ranks are in tests/integration/test_parallel_replicas.py, whose functions run here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from det_jupyter.core import DistributedContext
from det_jupyter.pytorch import parallel
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.parallel import DistributedModel, ParallelOptions
from det_jupyter.pytorch.parallel.replicas import explain_backward
from tests.integration.parallel_samples import CPU, Blocks, Run, make, records, same_bits
from tests.integration.test_parallel_replicas import (
    Sometimes,
    buckets_changed,
    exchanged_low_rank,
    gradients_of_one_batch,
    paused,
    powersgd_rebucketed,
    refused_scalar,
    wrapped,
)


class OneOfTwo(DistributedContext):
    """The first of two ranks, as if the other had the same values: their mean is its own."""

    def __init__(self) -> None:
        super().__init__()
        self.size = self.local_size = 2

    def gather(self, value: Any) -> list[Any]:
        return [value, value]

    def allgather(self, value: Any) -> list[Any]:
        return [value, value]

    def allgather_local(self, value: Any) -> list[Any]:
        return [value, value]

    def reduce_(self, tensor: torch.Tensor, operation: str) -> torch.Tensor:
        return tensor.mul_(2) if operation == "sum" else tensor


@pytest.fixture(autouse=True)
def _group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def trained_alone(batches: int, *, window: int = 1, clip: float | None = None) -> dict[str, Any]:
    """Return the weights of a model that is not wrapped, after the same batches."""
    torch.manual_seed(0)
    model = Blocks()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for batch in range(batches):
        model(records(batch).chunk(2)[0]).square().mean().backward()
        if (batch + 1) % window == 0:
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
    return model.state_dict()


@pytest.mark.parametrize("options", [{}, {"window": 3}, {"clip": 0.5}])
@pytest.mark.parametrize("bucket_mb", [None, 0.0005])
def test_a_replica_trains_as_the_model_itself(
    options: dict[str, Any], bucket_mb: float | None
) -> None:
    run = Run(OneOfTwo(), bucket_mb=bucket_mb, **options)
    assert isinstance(run.model, DistributedModel)
    assert same_bits(run.train(6).weights(), trained_alone(6, **options))


def test_a_paused_run_ends_with_the_same_bits() -> None:
    kinds = [None, "fp16", "bf16", "powersgd"]
    assert paused(OneOfTwo(), [({"compression": kind}, 14, 17) for kind in kinds]) == [True] * 4
    assert paused(OneOfTwo(), [({"window": 2, "compression": "powersgd"}, 27, 32)]) == [True]


@pytest.mark.parametrize(("compression", "bits"), [("fp16", 10), ("bf16", 7)])
def test_compressed_gradients_are_the_gradients_to_so_many_bits(
    compression: str, bits: int
) -> None:
    exact, compressed = gradients_of_one_batch(OneOfTwo(), [None, compression])
    assert not same_bits(compressed, exact)
    for name, value in exact.items():
        assert (compressed[name] - value).abs().max() <= 2.0**-bits * value.abs().max()


def test_powersgd_exchanges_low_rank_and_remembers_what_it_left_out() -> None:
    rank, error = exchanged_low_rank(OneOfTwo())
    assert rank == 2
    assert error > 0
    assert powersgd_rebucketed(OneOfTwo())
    assert "scale has none" in refused_scalar(OneOfTwo())


def test_factors_are_of_the_layers_that_shrink() -> None:
    run = Run(OneOfTwo(), compression="powersgd").train(12)
    [kept] = parallel.rank_state([run.model]) or []
    assert kept is not None
    compressed = kept["compression"]
    assert sorted(compressed["errors"]) == sorted(name for name, _ in Blocks().named_parameters())
    assert {name: tuple(each.shape) for name, each in compressed["factors"].items()} == {
        "inward.weight": (12, 2),
        **{f"blocks.{i}.0.weight": (10, 2) for i in (0, 1)},
        **{f"blocks.{i}.2.weight": (15, 2) for i in (0, 1)},
    }
    assert compressed["iter"] == 12


def test_a_timer_is_put_around_the_waits_of_powersgd_alone() -> None:
    waits: list[int] = []

    def timed(wait: Any) -> Any:
        def measured(future: Any) -> Any:
            waits.append(1)
            return wait(future)

        return measured

    run = Run(OneOfTwo(), compression="powersgd").train(12)
    run.model.low_rank.set_timer(timed)
    run.train(1)
    assert waits
    del waits[:]
    run.model.low_rank.set_timer(None)
    run.train(1)
    assert waits == []


@pytest.mark.parametrize("window", [1, 5])
def test_new_bucket_sizes_change_nothing(window: int) -> None:
    assert buckets_changed(OneOfTwo(), window)


def test_a_wrapped_model_is_like_the_users_own() -> None:
    assert wrapped(OneOfTwo()) == ["the user's own", 1, 5.0, list(Blocks().state_dict())]
    model = make(OneOfTwo())
    with pytest.raises(AttributeError, match="'Blocks' object has no attribute 'other'"):
        _ = model.other
    assert parallel.unwrap(model) is model.module
    assert parallel.unwrap(model.module) is model.module


def test_parameters_may_be_unused_if_it_is_said() -> None:
    model = parallel.parallelize(
        Sometimes(), CPU, OneOfTwo(), ParallelOptions(), find_unused_parameters=True
    )
    found = []
    for batch in range(3):
        model(records(batch, torch.float64), batch > 0).square().mean().backward()
        found.append(sorted(parallel.gradients(model)))
        model.zero_grad()
    always = ["always.bias", "always.weight"]
    assert found == [always, *[[*always, "sometimes.bias", "sometimes.weight"]] * 2]


def test_unused_parameters_are_told_by_their_names() -> None:
    model: Any = parallel.parallelize(Sometimes(), CPU, OneOfTwo(), ParallelOptions())
    inputs = records(0, torch.float64)
    loss = model(inputs, False).square().mean()
    loss.backward()
    with pytest.raises(TrialMistake, match="of Sometimes got no gradient in a batch") as caught:
        model.check_exchanged()
    assert ": sometimes.weight and sometimes.bias. If they are" in str(caught.value)
    with pytest.raises(TrialMistake, match="of Sometimes got no gradient in a batch"):
        model(inputs, False)
    used: Any = parallel.parallelize(Sometimes(), CPU, OneOfTwo(), ParallelOptions())
    used(inputs, True).square().mean().backward()
    used.check_exchanged()


class Many(nn.Module):
    """Uses one of its many layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(12, 1, bias=False) for _ in range(12))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.layers[0](inputs)
        return outputs


def test_of_many_unused_parameters_the_first_are_named() -> None:
    model: Any = parallel.parallelize(Many(), CPU, OneOfTwo(), ParallelOptions())
    model(records(0)).sum().backward()
    with pytest.raises(TrialMistake) as caught:
        model.check_exchanged()
    names = ", ".join(f"layers.{number}.weight" for number in range(1, 9))
    assert f"in a batch: {names} and 3 more. If they" in str(caught.value)


def test_parameters_may_be_frozen_and_trained_again() -> None:
    model: Any = parallel.parallelize(Sometimes(), CPU, OneOfTwo(), ParallelOptions())
    for is_used in (True, False, True):
        for parameter in model.module.sometimes.parameters():
            parameter.requires_grad = is_used
        loss = model(records(0, torch.float64), is_used).square().mean()
        model.prepare_exchange(loss)
        loss.backward()
        model.check_exchanged()
        plain = Sometimes()
        plain(records(0, torch.float64), is_used).square().mean().backward()
        assert same_bits(parallel.gradients(model), parallel.gradients(plain))
        model.zero_grad()


def test_what_is_frozen_within_a_window_keeps_its_gradient() -> None:
    model: Any = parallel.parallelize(Sometimes(), CPU, OneOfTwo(), ParallelOptions())
    model.require_backward_grad_sync = False
    loss = model(records(0, torch.float64), True).square().mean()
    model.prepare_exchange(loss)
    loss.backward()
    kept = model.module.sometimes.weight.grad.clone()
    for parameter in model.module.sometimes.parameters():
        parameter.requires_grad = False
    model.require_backward_grad_sync = True
    loss = model(records(1, torch.float64), False).square().mean()
    model.prepare_exchange(loss)
    loss.backward()
    model.check_exchanged()
    assert torch.equal(model.module.sometimes.weight.grad, kept)
    assert model.module.always.weight.grad is not None


def test_an_exchange_that_no_pass_has_begun_is_not_made_within_the_next_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exchanged = list[torch.Tensor]()

    def exchange(buffer: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        exchanged.append(buffer)
        done = torch.futures.Future[torch.Tensor]()
        done.set_result(buffer)
        return done

    def register(model: DistributedModel) -> None:
        model.register_comm_hook(None, lambda _, bucket: exchange(bucket.buffer()))

    monkeypatch.setattr(DistributedModel, "_register_hook", register)
    model: Any = parallel.parallelize(Blocks(), CPU, OneOfTwo(), ParallelOptions())
    model.begin_batch(exchanges=True)
    model.prepare_exchange(torch.ones(()))  # a pass for another model, in which this is frozen
    for exchanges in (False, True):
        model.begin_batch(exchanges=exchanges)
        loss = model(records(0)).square().mean()
        model.prepare_exchange(loss)
        loss.backward()
        assert bool(exchanged) is exchanges


def test_a_model_without_trained_parameters_is_not_wrapped() -> None:
    teacher = nn.BatchNorm1d(3)
    teacher.requires_grad_(False)
    assert parallel.parallelize(teacher, CPU, OneOfTwo(), ParallelOptions()) is teacher
    alone = Blocks()
    assert parallel.parallelize(alone, CPU, DistributedContext(), ParallelOptions()) is alone


def test_only_the_error_about_two_passes_is_explained() -> None:
    assert explain_backward(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None
    model: Any = parallel.parallelize(Sometimes(), CPU, OneOfTwo(), ParallelOptions())
    inputs = records(0, torch.float64)
    loss = model(inputs, True).square().mean()
    loss.backward(retain_graph=True)
    model.prepare_exchange(loss)
    model.module.always(inputs).sum().backward()
    with pytest.raises(RuntimeError) as caught:
        model.module.always(inputs).sum().backward()
    told = explain_backward(caught.value)
    assert told is not None
    assert "context.wrap_model(model, find_unused_parameters=True)" in str(told)
