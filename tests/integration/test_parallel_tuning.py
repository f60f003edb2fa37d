"""The size of buckets, tried in the first batches and agreed by all ranks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from det_jupyter.core import DistributedContext
from det_jupyter.pytorch.parallel import BucketTuner, tuning
from tests.integration.parallel_ranks import RankRunner
from tests.integration.parallel_samples import CPU, Run, same_bits

SIZES = [0.0002, 0.0008, 0.4]  # MiB; the model's gradients are 0.004, so the last holds them all
TRIED = 1 + 3 * 2 * 6  # batches with an exchange, after which a size is chosen


@pytest.fixture(scope="module")
def run(shared_ranks: RankRunner) -> RankRunner:
    return shared_ranks


def tuned(distributed: DistributedContext, compression: str | None, window: int) -> Any:
    """Train with a tuner whose clock says that batches take long at all but the second size."""
    now = 0.0
    batches = (TRIED + 2) * window
    plain = Run(distributed, compression=compression, window=window).train(batches)
    run = Run(distributed, compression=compression, window=window)
    sizes: list[float] = []
    use = run.model.set_bucket_size

    def note(size: float) -> None:
        sizes.append(size)
        use(size)

    run.model.set_bucket_size = note
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "time", SimpleNamespace(perf_counter=lambda: now))
        tuner = BucketTuner([run.model], distributed, CPU, sizes_mb=[*SIZES, 0.8])
        for batch in range(batches):
            run.train(1)
            if tuner.decision is None and sizes and sizes[-1] != SIZES[1]:
                now += 0.02
            now += 0.001
            tuner.after_batch(exchanged=(batch + 1) % window == 0)
    return [tuner.decision, sizes, same_bits(plain.weights(), run.weights())]


@pytest.mark.parametrize(("compression", "window"), [(None, 1), ("fp16", 2)])
def test_the_fastest_size_is_chosen_for_all_ranks_and_changes_no_bit(
    run: RankRunner, compression: str | None, window: int
) -> None:
    answers = run(tuned, 2, compression, window)
    assert answers[0] == answers[1]
    decision, sizes, is_same = answers[0]
    assert is_same  # two ranks add in only one order
    assert decision["sizes_mb"] == SIZES
    assert decision["chosen_mb"] == SIZES[1]
    assert decision["batches"] == 8
    assert min(decision["median_ms"]) == decision["median_ms"][1]
    assert sizes == [*SIZES, *SIZES, SIZES[1]]


def resumed(distributed: DistributedContext) -> Any:
    run = Run(distributed)
    tuner = BucketTuner([run.model], distributed, CPU, sizes_mb=SIZES)
    given = {"sizes_mb": SIZES, "median_ms": [3.0, 1.0, 2.0], "chosen_mb": SIZES[1], "batches": 8}
    tuner.restore(given)
    sizes: list[float] = []
    run.model.set_bucket_size = sizes.append
    for _ in range(8):
        run.train(1)
        tuner.after_batch(exchanged=True)
    return [tuner.decision == given, tuner.state() == given, sizes]


def test_a_decision_is_kept_after_a_pause(run: RankRunner) -> None:
    assert run(resumed, 2) == [[True, True, []]] * 2


def tuned_powersgd(distributed: DistributedContext) -> Any:
    run = Run(distributed, compression="powersgd")
    tuner = BucketTuner([run.model], distributed, CPU, sizes_mb=SIZES)
    for _ in range(TRIED):
        run.train(1)
        tuner.after_batch(exchanged=True)
    return [tuner.decision is not None, run.weights()]


def test_buckets_of_compressed_gradients_are_tuned(run: RankRunner) -> None:
    (is_decided, one), (_, other) = run(tuned_powersgd, 2)
    assert is_decided
    assert same_bits(one, other)
    assert all(torch.isfinite(value).all() for value in one.values())


def small(distributed: DistributedContext) -> Any:
    run = Run(distributed)
    tuner = BucketTuner([run.model], distributed, CPU)
    run.train(1)
    tuner.after_batch(exchanged=True)
    return tuner.decision


def test_gradients_that_fit_any_bucket_need_no_trial(run: RankRunner) -> None:
    decision = {"sizes_mb": [5], "median_ms": [0.0], "chosen_mb": 5, "batches": 0}
    assert run(small, 2) == [decision, decision]
