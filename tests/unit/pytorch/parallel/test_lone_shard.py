"""One rank that holds all of a sharded model: what it does in the test's own process.

Several ranks are in tests/integration/test_parallel_sharding.py, whose functions run here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from det_jupyter.pytorch import parallel
from det_jupyter.pytorch.parallel import ParallelOptions
from det_jupyter.pytorch.parallel.sharding import explain_sharding_error
from tests.integration.parallel_samples import CPU, Centered, Run, make, records
from tests.integration.test_parallel_sharding import (
    FLOAT64,
    SHARDED,
    assert_same,
    divided,
    evaluated,
    overflowed,
    paused,
    paused_with_buffers,
    refused_scalar,
    saved,
)
from tests.unit.pytorch.checkpoints.test_unsaved import Holding
from tests.unit.pytorch.parallel.test_lone_replica import OneOfTwo


@pytest.fixture(autouse=True, scope="module")
def _group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    store = tmp_path_factory.mktemp("group") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_it_trains_as_a_replica() -> None:
    sharded = Run(OneOfTwo(), window=2, **SHARDED).train(4).weights()
    assert_same(sharded, Run(OneOfTwo(), window=2, **FLOAT64).train(4).weights())


def test_blocks_and_the_model_are_divided_and_what_is_not_a_parameter_stays() -> None:
    parts = ["", *(f"blocks.{block}.{layer}" for block in (0, 1) for layer in (0, 2))]
    assert divided(OneOfTwo()) == [(15, 10), parts, "the user's own"]
    assert "scale has none: make it a vector of length 1" in refused_scalar(OneOfTwo())


def test_a_paused_run_ends_with_the_same_bits() -> None:
    assert paused(OneOfTwo(), 2, 3, 4)
    assert paused_with_buffers(OneOfTwo())


def test_no_part_of_it_is_named_as_unsaved() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    sharded = parallel.parallelize(model, CPU, OneOfTwo(), ParallelOptions(sharding="fsdp"))
    assert Holding(sharded).train() == []


def test_a_window_goes_on_sharded_or_not() -> None:
    straight = Run(OneOfTwo(), window=4, **FLOAT64).train(8).weights()
    for before, after in ((SHARDED, FLOAT64), (FLOAT64, SHARDED)):
        state = saved(OneOfTwo(), before)
        run = Run(OneOfTwo(), window=4, **after).load(state, state["gradients"])
        assert_same(run.train(2).weights(), straight)


def test_evaluation_holds_all_parameters_and_training_goes_on_as_before() -> None:
    one, losses = Run(OneOfTwo(), **FLOAT64), evaluated(OneOfTwo())
    for loss in losses:
        with torch.no_grad():
            expected = float(one.model(records(51, torch.float64)).square().mean())
        assert loss == pytest.approx(expected, rel=1e-12)
        one.train(2)


def test_a_step_that_overflowed_is_skipped() -> None:
    run = OneOfTwo()
    run.rank = 1
    assert overflowed(run) == [True, 32768.0]


def test_using_parameters_outside_of_forward_is_explained() -> None:
    model: Any = make(OneOfTwo(), sharding="fsdp", kind=Centered)
    with pytest.raises(RuntimeError) as caught:
        _ = model.inward.weight @ torch.ones(12)
    explain_sharding_error(caught.value)
    assert "optimizations.sharding: fsdp holds parameters whole only" in caught.value.__notes__[0]
    other = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    explain_sharding_error(other)
    assert not hasattr(other, "__notes__")
    assert parallel.gradients(model) == {}


@pytest.mark.parametrize("options", [{}, {"sharding": "fsdp"}])
def test_buffers_that_differ_from_the_chiefs_are_saved_and_loaded(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = make(OneOfTwo(), kind=Centered, **options)
    own: Any = parallel.unwrap(model)
    own.register_buffer("table", torch.ones(2), persistent=False)
    assert parallel.rank_state([model]) is None, "the chief's are those that are saved"
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)  # this one is the other rank
    monkeypatch.setattr(dist, "broadcast", lambda tensor, src: tensor.add_(1))
    own.center.fill_(3.0)
    [state] = parallel.rank_state([model]) or []
    monkeypatch.undo()
    assert state is not None
    assert sorted(state["buffers"]) == [
        "center", "norm.num_batches_tracked", "norm.running_mean", "norm.running_var",
    ]  # fmt: skip
    other: Any = make(OneOfTwo(), kind=Centered, **options)
    parallel.load_rank_state([other], [state])
    restored: Any = parallel.unwrap(other)
    assert restored.center.tolist() == [3.0] * 12


@pytest.mark.parametrize("options", [{}, {"sharding": "fsdp"}])
def test_the_chiefs_buffers_are_evaluated_but_for_models_that_are_not_trained_together(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = make(OneOfTwo(), kind=Centered, **options)
    trained: Any = parallel.unwrap(model)
    monkeypatch.setattr(dist, "broadcast", lambda tensor, src: tensor.zero_())
    teacher = Centered()
    for each in (trained, teacher):
        each.center.fill_(3.0)
    parallel.share_buffers([model, teacher])
    assert [float(each.center.sum()) for each in (trained, teacher)] == [0.0, 36.0]
