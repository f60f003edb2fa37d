"""Ranks that each hold a part of the model: the same numbers, and states that load anywhere."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from det_jupyter.core import DistributedContext
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import parallel
from det_jupyter.pytorch.parallel import ParallelOptions
from det_jupyter.pytorch.steps.precision import Precision
from tests.integration.parallel_ranks import RankRunner
from tests.integration.parallel_samples import (
    CPU,
    Blocks,
    Centered,
    Run,
    alone,
    make,
    records,
    resumes_exactly,
    same_bits,
)

FLOAT64: dict[str, Any] = {"dtype": torch.float64, "clip": 0.5}
SHARDED: dict[str, Any] = {**FLOAT64, "sharding": "fsdp"}


@pytest.fixture(scope="module")
def run(shared_ranks: RankRunner) -> RankRunner:
    return shared_ranks


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in other.items():
        torch.testing.assert_close(one[name], value, rtol=1e-12, atol=1e-12)


def weights_after(distributed: DistributedContext, window: int) -> Any:
    return Run(distributed, window=window, **SHARDED).train(4).weights()


@pytest.mark.parametrize(("ranks", "window"), [(2, 1), (3, 2)])
def test_sharded_ranks_train_what_one_rank_trains(
    run: RankRunner, ranks: int, window: int
) -> None:
    chief, *others = run(weights_after, ranks, window)
    assert_same(chief, Run(alone(), window=window, **FLOAT64).train(4).weights())
    assert others == [{}] * (ranks - 1)


def divided(distributed: DistributedContext) -> list[Any]:
    model = make(distributed, sharding="fsdp")
    assert parallel.is_sharded(model)
    own: Any = parallel.unwrap(model)
    weight = own.blocks[0][0].weight
    sharded = [name for name, part in own.named_modules() if parallel.is_sharded(part)]
    return [tuple(weight.to_local().shape), sharded, own.note]


def test_each_rank_holds_its_part_of_each_block(run: RankRunner) -> None:
    parts = ["", *(f"blocks.{block}.{layer}" for block in (0, 1) for layer in (0, 2))]
    note = "the user's own"
    assert run(divided, 2) == [[(8, 10), parts, note], [(7, 10), parts, note]]


def paused(distributed: DistributedContext, window: int, at: int, end: int) -> bool:
    straight = Run(distributed, window=window, **SHARDED).train(end).weights()
    state = distributed.broadcast(Run(distributed, window=window, **SHARDED).train(at).state())
    resumed = Run(distributed, window=window, **SHARDED)
    gradients = state["gradients"] if distributed.is_chief else {}
    return same_bits(straight, resumed.load(state, gradients).train(end - at).weights())


@pytest.mark.parametrize(("window", "at", "end"), [(1, 2, 4), (3, 5, 6)])
def test_a_paused_sharded_run_ends_with_the_same_bits(
    run: RankRunner, window: int, at: int, end: int
) -> None:
    assert run(paused, 3, window, at, end) == [True] * 3


def paused_with_buffers(distributed: DistributedContext) -> bool:
    return resumes_exactly(distributed, {"kind": Centered, **SHARDED}, 2, 4)


def test_each_rank_of_a_sharded_run_goes_on_with_its_own_buffers(run: RankRunner) -> None:
    assert run(paused_with_buffers, 2) == [True, True]


def saved(distributed: DistributedContext, options: dict[str, Any]) -> Any:
    return Run(distributed, window=4, **options).train(6).state()


def continued(distributed: DistributedContext, options: dict[str, Any], given: list[Any]) -> Any:
    size = distributed.size
    gradients = parallel.rescaled_gradients([one["gradients"] for one in given], size)
    run = Run(distributed, window=4, **options)
    return run.load(given[0], gradients[distributed.rank]).train(2).weights()


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_sharded_run_goes_on_unsharded_inside_a_window(run: RankRunner, ranks: int) -> None:
    given = run(saved, 3, SHARDED)
    straight = Run(alone(), window=4, **FLOAT64).train(8).weights()
    for weights in run(continued, ranks, FLOAT64, given):
        assert_same(weights, straight)


def test_an_unsharded_run_goes_on_sharded_inside_a_window(run: RankRunner) -> None:
    straight = Run(alone(), window=4, **FLOAT64).train(8).weights()
    for ranks in (1, 3):
        chief, _ = run(continued, 2, SHARDED, run(saved, ranks, FLOAT64))
        assert_same(chief, straight)


def evaluated(distributed: DistributedContext) -> list[float]:
    """Evaluate before, between and after training, each rank as many batches as its number."""
    sharded = Run(distributed, **SHARDED)
    losses = []
    for _ in range(3):
        sharded.model.norm.running_mean.fill_(distributed.rank)
        parallel.share_buffers([sharded.model])
        with torch.no_grad(), parallel.gathered([sharded.model]):
            for _ in range(distributed.rank):
                sharded.model(records(50, torch.float64))
            losses.append(float(sharded.model(records(51, torch.float64)).square().mean()))
        assert sharded.model.norm.running_mean.sum() == 0
        sharded.train(2)
    return losses


def test_ranks_evaluate_different_numbers_of_batches(run: RankRunner) -> None:
    one = Run(alone(), **FLOAT64)
    expected = []
    for _ in range(3):
        with torch.no_grad():
            expected.append(float(one.model(records(51, torch.float64)).square().mean()))
        one.train(2)
    for losses in run(evaluated, 2):
        assert losses == pytest.approx(expected, rel=1e-12)


def refused_scalar(distributed: DistributedContext) -> str:
    model = nn.Linear(2, 2)
    model.scale = nn.Parameter(torch.ones(()))
    with pytest.raises(ConfigError) as caught:
        parallel.parallelize(model, CPU, distributed, ParallelOptions(sharding="fsdp"))
    return str(caught.value)


def test_a_parameter_without_dimensions_is_refused(run: RankRunner) -> None:
    for message in run(refused_scalar, 2):
        assert "optimizations.sharding" in message
        assert "scale has none: make it a vector of length 1" in message


def compiled(distributed: DistributedContext, sharding: str | None) -> Any:
    # The backends that change code as well take 1 s CPU to load ([m]).
    options: dict[str, Any] = {"compile": "eager", "sharding": sharding}
    before = Counter(counters["frames"])
    weights = Run(distributed, **options).train(3).weights()
    return weights, counters["frames"]["ok"] - before["ok"]


@pytest.mark.parametrize(("sharding", "parts"), [(None, 1), ("fsdp", 2)])
def test_a_compiled_model_is_trained_by_ranks_together(
    run: RankRunner, sharding: str | None, parts: int
) -> None:
    (weights, num_compiled), (_, num_other) = run(compiled, 2, sharding)
    assert (num_compiled, num_other) == (parts, parts)
    expected = Run(alone()).train(3).weights()
    assert list(weights) == list(Blocks().state_dict())
    for name, value in expected.items():
        torch.testing.assert_close(weights[name], value, rtol=1e-4, atol=1e-5)


def test_one_rank_ignores_sharding_and_says_so() -> None:
    with pytest.warns(UserWarning, match=r"optimizations.sharding: fsdp is ignored with one rank"):
        model = make(alone(), sharding="fsdp")
    assert not parallel.is_sharded(model)


def overflowed(distributed: DistributedContext) -> Any:
    """Step with a gradient that overflowed in the last rank's part alone."""
    precision = Precision(CPU, torch.float16)
    trained = Run(distributed, sharding="fsdp")
    before = trained.weights()
    precision.scale(trained.model(records(0)).square().mean()).backward()
    own: Any = parallel.unwrap(trained.model)
    if distributed.rank == distributed.size - 1:
        own.blocks[0][0].weight.grad.to_local().fill_(torch.inf)
    precision.unscale(trained.optimizer)
    precision.step(trained.optimizer)
    precision.update()
    return [same_bits(before, trained.weights()), float(precision.scale(torch.ones(())))]


def test_all_ranks_skip_a_step_that_overflowed_on_one(run: RankRunner) -> None:
    assert run(overflowed, 2) == [[True, 32768.0]] * 2
