"""Ranks that each hold the whole model: what they exchange, and that a paused run is the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from det_jupyter.core import DistributedContext
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import parallel
from det_jupyter.pytorch.parallel import ParallelOptions
from det_jupyter.pytorch.parallel.wrapping import is_everywhere
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


@pytest.fixture(scope="module")
def run(shared_ranks: RankRunner) -> RankRunner:
    return shared_ranks


def weights_after(distributed: DistributedContext, options: dict[str, Any]) -> Any:
    return Run(distributed, **options).train(6).weights()


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_together_train_what_one_rank_trains(run: RankRunner, ranks: int) -> None:
    options: dict[str, Any] = {"dtype": torch.float64, "window": 2, "clip": 0.5}
    one = Run(alone(), **options).train(6).weights()
    for many in run(weights_after, ranks, options):
        for name, value in one.items():
            torch.testing.assert_close(many[name], value, rtol=1e-12, atol=1e-12)


def paused(
    distributed: DistributedContext, cases: list[tuple[dict[str, Any], int, int]]
) -> list[bool]:
    """Train straight to a batch, and with a pause at another; return whether it is the same."""
    same = []
    for options, at, end in cases:
        straight = Run(distributed, **options).train(end).weights()
        state = Run(distributed, **options).train(at).state()
        resumed = Run(distributed, **options).load(state, state["gradients"]).train(end - at)
        same.append(same_bits(straight, resumed.weights()))
    return same


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_paused_run_ends_with_the_same_bits(run: RankRunner, ranks: int) -> None:
    cases: list[tuple[dict[str, Any], int, int]] = [
        ({"compression": kind}, 4, 6) for kind in (None, "fp16", "bf16")
    ]
    cases.append(({"compression": "powersgd"}, 12, 14))  # it compresses from the tenth batch on
    assert run(paused, ranks, cases) == [[True] * 4] * ranks


def test_a_run_paused_inside_a_window_ends_with_the_same_bits(run: RankRunner) -> None:
    # With 3 ranks x / 3 and x * (1 / 3) differ, and gradients that were zeroed, not deleted, lie
    # in their buckets already, while restored ones do not: see DistributedModel._register_hook.
    cases: list[tuple[dict[str, Any], int, int]] = [
        ({"window": 3, "set_to_none": kind}, 8, 12) for kind in (True, False)
    ]
    cases.append(({"window": 2, "compression": "powersgd"}, 27, 32))
    assert run(paused, 3, cases) == [[True] * 3] * 3


def paused_with_buffers(
    distributed: DistributedContext, pauses: list[tuple[int, int]]
) -> list[bool]:
    return [
        resumes_exactly(distributed, {"window": window, "kind": Centered}, at, 9)
        for window, at in pauses
    ]


def test_each_rank_goes_on_with_its_own_buffers(run: RankRunner) -> None:
    pauses = [(1, 4), (3, 4), (3, 5), (3, 6)]  # without windows; in one; at its end
    assert run(paused_with_buffers, 2, pauses) == [[True] * 4] * 2


def kept_by_ranks(distributed: DistributedContext) -> list[Any]:
    trained = Run(distributed, window=2, kind=Centered)
    found: list[Any] = []
    for _ in range(2):
        (kept,) = parallel.rank_state([trained.train(1).model]) or [None]
        found.append(kept and list(kept["buffers"]))
    parallel.share_buffers([trained.model])
    return [*found, parallel.rank_state([trained.model])]


def test_buffers_are_kept_by_rank_only_if_they_are_not_the_chiefs(run: RankRunner) -> None:
    chief, other = run(kept_by_ranks, 2)
    assert chief == [None, None, None]
    assert other == [["center"], ["center"], None]


def untrained_buffers(distributed: DistributedContext) -> float:
    models = []
    for _ in range(2):
        teacher = nn.BatchNorm1d(1)
        teacher.requires_grad_(False)
        models.append(parallel.parallelize(teacher, CPU, distributed, ParallelOptions()))
    models[0](torch.tensor([[0.0], [20.0 * distributed.rank]]))
    parallel.load_rank_state(models[1:], parallel.rank_state(models[:1]))
    return float(models[1].get_buffer("running_mean"))


def test_each_rank_keeps_the_buffers_of_a_model_that_is_not_trained(run: RankRunner) -> None:
    assert run(untrained_buffers, 2) == [0.0, 1.0]


def gradients_of_one_batch(
    distributed: DistributedContext, compressions: list[str | None]
) -> list[dict[str, torch.Tensor]]:
    models = [make(distributed, compression=compression) for compression in compressions]
    mine = records(0).chunk(distributed.size)[distributed.rank]
    for model in models:
        model(mine).square().mean().backward()
    return [parallel.gradients(model) for model in models]


@pytest.mark.parametrize(("compression", "bits"), [("fp16", 10), ("bf16", 7)])
def test_compressed_gradients_are_the_gradients_to_so_many_bits(
    run: RankRunner, compression: str, bits: int
) -> None:
    (exact, compressed), (_, other) = run(gradients_of_one_batch, 2, [None, compression])
    assert same_bits(compressed, other)
    assert not same_bits(compressed, exact)
    for name, value in exact.items():
        error = (compressed[name] - value).abs().max()
        assert error <= 2.0**-bits * value.abs().max()


def exchanged_low_rank(distributed: DistributedContext) -> tuple[int, float]:
    """Return how many singular values of a layer's gradient are not 0, and what was left out."""
    trained = Run(distributed, compression="powersgd").train(12)
    mine = records(99).chunk(distributed.size)[distributed.rank]
    trained.model(mine).square().mean().backward()
    weight = trained.model.blocks[0][0].weight
    (state,) = parallel.rank_state([trained.model]) or []
    assert state is not None
    error = state["compression"]["errors"]["blocks.0.0.weight"]
    return int(torch.linalg.matrix_rank(weight.grad)), float(error.norm())


def test_powersgd_exchanges_low_rank_and_remembers_what_it_left_out(run: RankRunner) -> None:
    (rank_0, error_0), (rank_1, error_1) = run(exchanged_low_rank, 2)
    assert rank_0 == rank_1 == 2
    assert error_0 > 0
    assert error_0 != error_1  # each rank keeps its own


def refused_scalar(distributed: DistributedContext) -> str:
    model = nn.Linear(2, 2)
    model.scale = nn.Parameter(torch.ones(()))
    options = ParallelOptions(compression="powersgd")
    with pytest.raises(ConfigError) as caught:
        parallel.parallelize(model, CPU, distributed, options)
    return str(caught.value)


def test_powersgd_refuses_a_parameter_without_dimensions(run: RankRunner) -> None:
    (message, _) = run(refused_scalar, 2)
    assert "scale has none" in message
    assert "use fp16 or bf16" in message


def buckets_changed(distributed: DistributedContext, window: int) -> bool:
    straight = Run(distributed, window=window).train(16).weights()
    changed = Run(distributed, window=window).train(13)
    hooked: list[int] = []
    changed.model.register_forward_hook(lambda *_: hooked.append(1))
    changed.model.set_bucket_size(0.0005)
    changed.train(3)
    assert len(hooked) == 3
    return same_bits(straight, changed.weights())


@pytest.mark.parametrize("window", [1, 5])
def test_new_bucket_sizes_change_nothing_for_two_ranks(run: RankRunner, window: int) -> None:
    assert run(buckets_changed, 2, window) == [True, True]


def powersgd_rebucketed(distributed: DistributedContext) -> bool:
    run = Run(distributed, compression="powersgd").train(13)
    before = parallel.rank_state([run.model])
    run.model.set_bucket_size(0.0005)
    after = parallel.rank_state([run.model])
    assert before is not None
    assert after is not None
    assert before[0] is not None
    assert after[0] is not None
    kept, carried = before[0]["compression"], after[0]["compression"]
    assert len(kept["errors"]) == 11
    same = [same_bits(kept[kind], carried[kind]) for kind in ("errors", "factors")]
    run.train(2)
    return all(same)


def test_powersgd_keeps_its_memory_when_buckets_change(run: RankRunner) -> None:
    assert run(powersgd_rebucketed, 2) == [True, True]


def wrapped(distributed: DistributedContext) -> list[Any]:
    model = make(distributed)
    calls: list[bool] = []
    parallel.unwrap(model).register_forward_hook(lambda *_: calls.append(True))
    with torch.no_grad():
        for _ in range(distributed.rank + 1):  # nothing is exchanged, so ranks may differ
            model(records(0))
    model.norm.running_mean.fill_(distributed.rank + 5)
    parallel.share_buffers([model])
    names = list(parallel.model_state(model))
    return [model.note, len(calls), float(model.norm.running_mean[0]), names]


def test_a_wrapped_model_is_like_the_users_own(run: RankRunner) -> None:
    names = list(Blocks().state_dict())
    assert run(wrapped, 2) == [
        ["the user's own", 1, 5.0, names],
        ["the user's own", 2, 5.0, names],
    ]


def found_everywhere(distributed: DistributedContext) -> list[bool]:
    found = []
    for seed in (0, distributed.rank):
        torch.manual_seed(seed)
        found.append(is_everywhere(Blocks()))
    torch.manual_seed(0)
    frozen = Blocks()
    next(frozen.parameters()).requires_grad_(distributed.is_chief)
    turned = nn.BatchNorm1d(3)
    turned.register_buffer("turned", torch.ones(3, dtype=torch.complex64).conj())
    lazy = nn.LazyLinear(3) if distributed.is_chief else nn.Linear(3, 3)
    torch.manual_seed(0)
    laid_out = nn.Conv2d(2, 2, 3)
    if distributed.is_chief:
        laid_out.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # its stub
    return [*found, *map(is_everywhere, (frozen, turned, lazy, laid_out))]


def test_ranks_notice_that_they_have_built_the_same_model(run: RankRunner) -> None:
    assert run(found_everywhere, 2) == [[True, False, False, False, False, False]] * 2


def untrained(distributed: DistributedContext) -> list[float]:
    model = nn.BatchNorm1d(3, dtype=torch.float64)
    model.requires_grad_(False)
    model.register_buffer("flag", torch.tensor([distributed.is_chief]))
    with torch.no_grad():
        for value in (model.weight, model.running_mean):
            assert value is not None
            value.fill_(distributed.rank + 1)
    parallel.parallelize(model, CPU, distributed, ParallelOptions())
    return [float(value.reshape(-1)[0]) for value in model.state_dict().values()]


def test_a_model_without_trained_parameters_becomes_the_chiefs(run: RankRunner) -> None:
    chief = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    assert run(untrained, 2) == [chief, chief]


def rescaled(distributed: DistributedContext, saved: list[Any]) -> Any:
    gradients = parallel.rescaled_gradients([one["gradients"] for one in saved], distributed.size)
    state = {**saved[0], "exchange": None}
    run = Run(distributed, dtype=torch.float64, window=4)
    return run.load(state, gradients[distributed.rank]).train(2).weights()


def saved_inside_a_window(distributed: DistributedContext) -> Any:
    return Run(distributed, dtype=torch.float64, window=4).train(6).state()


def test_a_window_goes_on_with_another_number_of_ranks(run: RankRunner) -> None:
    straight = Run(alone(), dtype=torch.float64, window=4).train(8).weights()
    saved = run(saved_inside_a_window, 3)
    for ranks in (1, 2):
        for weights in run(rescaled, ranks, saved):
            for name, value in straight.items():
                torch.testing.assert_close(weights[name], value, rtol=1e-12, atol=1e-12)


def many_buckets(distributed: DistributedContext) -> Any:
    trained = Run(distributed, compression="powersgd", bucket_mb=0.0002).train(25)
    return trained.weights()


def test_powersgd_exchanges_many_buckets_in_the_same_order_on_all_ranks(run: RankRunner) -> None:
    one, other = run(many_buckets, 2)
    assert same_bits(one, other)


class Sometimes(nn.Module):
    """Uses one of its layers only for some records."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.always, self.sometimes = (nn.Linear(12, 2, dtype=torch.float64) for _ in range(2))

    def forward(self, inputs: torch.Tensor, is_used: bool) -> torch.Tensor:
        outputs: torch.Tensor = self.always(inputs)
        return outputs + self.sometimes(inputs) if is_used else outputs


def with_unused(distributed: DistributedContext) -> Any:
    """Train batches in which no rank, one rank or each uses the layer; return the gradients."""
    model = parallel.parallelize(
        Sometimes(), CPU, distributed, ParallelOptions(), find_unused_parameters=True
    )
    found = []
    for batch in range(3):
        mine = records(batch, torch.float64).chunk(distributed.size)[distributed.rank]
        model(mine, distributed.rank < batch).square().mean().backward()
        found.append(parallel.gradients(model))
        model.zero_grad()
    return found


def test_parameters_may_be_unused_by_some_ranks_or_all(run: RankRunner) -> None:
    one, other = run(with_unused, 2)
    assert [sorted(gradients) for gradients in one] == [
        ["always.bias", "always.weight"],
        *[["always.bias", "always.weight", "sometimes.bias", "sometimes.weight"]] * 2,
    ]
    assert all(same_bits(mine, theirs) for mine, theirs in zip(one, other, strict=True))
    expected = Sometimes()
    (used, unused) = records(1, torch.float64).chunk(2)
    (
        (expected(used, True).square().mean() + expected(unused, False).square().mean()) / 2
    ).backward()
    for name, value in parallel.gradients(expected).items():
        torch.testing.assert_close(one[1][name], value, rtol=1e-12, atol=1e-12)
