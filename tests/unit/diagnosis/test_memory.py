"""Memory that creeps is named while there is time; caches, loading and steps are not."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.diagnosis.memory import MIN_S, WARM_UP_S, Creep, find_creep
from det_jupyter.diagnosis.run_facts import MemoryGrowth

FREE = 40e9  # at the start
BASE = 3e9
LATEST_S = WARM_UP_S + MIN_S  # what grows for longer is named, however slow it is

Used = Callable[[float], float]  # bytes at a time


def found_at(
    used: Used, until_s: float, *, ranks: int = 1, every_s: float = 5.0, is_taken: bool = True
) -> tuple[float, Creep | None]:
    """Return when the memory of ranks, all of which use the same, is named first.

    Args:
        used: Of one rank, without what it has at the start.
        is_taken: What they use becomes less of what is free.
    """
    times = tuple(every_s * i for i in range(int(until_s / every_s) + 1))
    taken = [used(at) for at in times]
    num_bytes = tuple(BASE + each for each in taken)
    free = tuple(FREE - (ranks * each if is_taken else 0.0) for each in taken)
    for num in range(2, len(times) + 1):
        growths = [
            grown(times[:num], num_bytes[:num], free[:num], rank=rank) for rank in range(ranks)
        ]
        if creep := find_creep(growths):
            return times[num - 1], creep
    return inf, None


def grown(
    at: tuple[float, ...],
    num_bytes: tuple[float, ...],
    free: tuple[float | None, ...],
    *,
    rank: int = 0,
    name: str = "memory_rss",
) -> MemoryGrowth:
    return MemoryGrowth(
        rank=rank, of="rank", name=name, memory="local host", at=at, num_bytes=num_bytes, free=free
    )


def leak(end_s: float, ranks: int = 1) -> Used:
    return lambda at: FREE / ranks * at / end_s


def test_a_leak_that_ends_in_two_and_a_half_minutes_is_named_a_minute_before() -> None:
    at, creep = found_at(leak(156.0), 156.0)
    assert at == 95.0
    assert creep is not None
    assert creep.full_in_s == pytest.approx(61.0)


@given(
    end_s=st.floats(90, 2000),
    every_s=st.sampled_from([5.0, 10.0]),
    ranks=st.integers(1, 8),
    seed=st.integers(0, 99),
)
def test_a_leak_is_named_before_its_end_however_fast_it_is(
    end_s: float, every_s: float, ranks: int, seed: int
) -> None:
    if every_s > 5:  # eight samples are needed at least
        end_s += 45
    steady, random = leak(end_s, ranks), Random(seed)
    noise = [random.uniform(-0.01, 0.01) * FREE / ranks for _ in range(500)]
    at, creep = found_at(
        lambda at: steady(at) + noise[int(at / 5)] * at / end_s,
        min(end_s, 1200.0),
        ranks=ranks,
        every_s=every_s,
    )
    assert at < min(0.85 * end_s, LATEST_S + every_s)
    assert creep is not None
    assert creep.full_in_s == pytest.approx(end_s - at, rel=0.35), "of all ranks together"


@given(part=st.floats(0.05, 0.95), settles_s=st.floats(3, 3000), ranks=st.integers(1, 4))
def test_a_cache_that_fills_slower_and_slower_and_fits_is_not_named_early(
    part: float, settles_s: float, ranks: int
) -> None:
    """It takes this part of what is free, and 63 % of it in `settles_s`."""
    size = part * FREE / ranks

    def used(at: float) -> float:
        return size * (1 - exp(-at / settles_s))

    at, _ = found_at(used, LATEST_S - 5, ranks=ranks)
    assert at == inf
    if settles_s < 100:
        assert found_at(used, 600.0, ranks=ranks)[0] == inf


@given(part=st.floats(0.05, 0.5), seconds=st.floats(5, 150))
def test_data_that_are_loaded_into_half_of_the_memory_are_not_named(
    part: float, seconds: float
) -> None:
    assert found_at(lambda at: part * FREE * min(1.0, at / seconds), 300.0)[0] == inf


@given(
    part=st.floats(0.1, 0.42),
    steps=st.lists(st.tuples(st.floats(0, 235), st.floats(0.1, 10)), min_size=1, max_size=30),
)
def test_whatever_takes_less_than_three_sevenths_is_not_named_early(
    part: float, steps: list[tuple[float, float]]
) -> None:
    """Steps of an allocator, for example, as it takes more or twice as much."""
    whole = sum(size for _, size in steps)

    def used(at: float) -> float:
        return part * FREE * sum(size for step, size in steps if step <= at) / whole

    assert found_at(used, LATEST_S - 5)[0] == inf


@given(part=st.floats(0.1, 0.95), steps=st.lists(st.floats(0, 235), min_size=1, max_size=2))
def test_few_large_steps_are_not_named_early(part: float, steps: list[float]) -> None:
    def used(at: float) -> float:
        return part * FREE * sum(step <= at for step in steps) / len(steps)

    assert found_at(used, LATEST_S - 5)[0] == inf


@given(part=st.floats(0.05, 0.5), epoch_s=st.floats(10, 300))
def test_loader_workers_that_come_and_go_with_each_epoch_are_not_named_early(
    part: float, epoch_s: float
) -> None:
    assert found_at(lambda at: part * FREE * (at % epoch_s) / epoch_s, LATEST_S - 5)[0] == inf


def test_pages_of_a_file_that_are_mapped_are_not_named_early() -> None:
    assert found_at(leak(120.0), LATEST_S - 5, is_taken=False)[0] == inf
    assert found_at(leak(120.0), LATEST_S + 5, is_taken=False)[0] >= LATEST_S


def test_one_process_that_is_measured_in_two_ways_fills_memory_once() -> None:
    times = tuple(5.0 * i for i in range(20))
    taken = tuple(map(leak(156.0), times))
    free = tuple(FREE - each for each in taken)
    both = [grown(times, taken, free, name=name) for name in ("memory_pss", "memory_rss")]
    creep = find_creep(both)
    assert creep is not None
    assert creep.full_in_s == pytest.approx(61.0)


def test_without_a_sample_of_what_is_free_a_creep_takes_four_minutes_to_be_named() -> None:
    times = tuple(5.0 * i for i in range(49))
    taken = tuple(1e8 * at for at in times)
    assert find_creep([grown(times[:48], taken[:48], (None,) * 48)]) is None
    creep = find_creep([grown(times, taken, (None,) * 49)])
    assert creep is not None
    assert creep.full_in_s is None
