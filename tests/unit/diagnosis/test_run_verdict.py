from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from det_jupyter.contract.messages import SystemSample
from det_jupyter.diagnosis import RunVerdict
from det_jupyter.diagnosis.run_facts import MemoryGrowth
from tests.unit.diagnosis.samples import (
    HEALTHY,
    NOW,
    RUN,
    Parts,
    creep_rate,
    interval,
    noisy,
    run,
    setting,
    together,
    verdict_of,
)

INPUT: Parts = {**HEALTHY, "dataloader_next": 12.0}


def test_a_single_interval_changes_no_kind() -> None:
    current = run(lambda index: [INPUT if index == 10 else HEALTHY], num_intervals=20)
    assert verdict_of(current).kind == "healthy"


def test_another_bottleneck_is_shown_when_it_was_found_twice() -> None:
    kinds = []
    current = run([HEALTHY], num_intervals=4)
    for index in range(4, 120):
        current.add_times(0, interval(index, INPUT))
        if current.judge(NOW + index):
            kinds.append(verdict_of(current).kind)
    assert kinds[-1] == "input"
    assert len([1 for a, b in pairwise(kinds) if a != b]) <= 2  # healthy, compute, input


def test_a_share_at_a_threshold_does_not_flicker() -> None:
    random = Random(1)
    current, changes = RunVerdict(setting()), []
    for index in range(200):
        at_threshold = {"forward": 9.0, "dataloader_next": 3.0}
        current.add_times(0, interval(index, noisy(at_threshold, 20, random)))
        if found := current.judge(NOW + index):
            changes.append(found.kind)
    assert len(changes) <= 4


def test_the_first_verdict_waits_for_the_period_of_a_long_validation() -> None:
    current = run(
        [HEALTHY], num_intervals=6, once=lambda i: [{"validation": 700} if i == 2 else {}]
    )
    assert verdict_of(current).sentence == ("Too early to judge: only one validation so far.")
    current = run(
        [HEALTHY], num_intervals=9, once=lambda i: [{"validation": 700} if i % 3 == 2 else {}]
    )
    assert verdict_of(current).causes[-1].kind == "validation"


def test_without_timed_batches_the_sentence_says_what_has_them() -> None:
    of_function = replace(interval(0, HEALTHY), batches=0)
    current = RunVerdict(setting())
    for index in range(3):
        current.add_times(0, replace(of_function, at=NOW + index))
    current.judge(NOW + 3)
    assert "no batch or step of an optimizer of torch after the first interval" in (
        verdict_of(current).sentence
    )
    current.judge(NOW + 4, is_last=True)
    assert verdict_of(current).sentence == "Too short to judge."


def test_the_same_verdict_is_no_news() -> None:
    current = run([HEALTHY])
    current.add_times(0, interval(12, HEALTHY))
    assert current.judge(NOW + 13) is None


@pytest.mark.parametrize(
    ("before", "after", "is_news"),
    [
        ({}, {"to_device": 0.2}, False),
        ({"to_device": 0.2}, {}, False),
        ({"to_device": 0.6}, {"dataloader_next": 0.6}, True),
    ],
)
def test_a_kind_that_comes_or_goes_is_news_with_four_percent_of_the_time(
    before: Parts, after: Parts, is_news: bool
) -> None:
    compute: Parts = {"forward": 9.0, "rest": 0.5}
    current = RunVerdict(setting(), verdict_of(run([{**compute, **before}])))
    for index in range(5):
        current.add_times(0, interval(index, {**compute, **after}))
    found = current.judge(NOW + 6)
    assert (found is not None) is is_news
    if found is not None:
        assert found.shares.keys() == {"compute", "input", "residual"}


def test_ranks_that_wait_for_each_other_are_judged_from_five_intervals_on() -> None:
    slow = together([HEALTHY, {**HEALTHY, "forward": 18.0}])
    current = run(slow, num_intervals=5)  # the first one is left out
    assert verdict_of(current).sentence == (
        "Too early to judge: too few intervals to tell a slow rank from uneven steps."
    )
    last = current.judge(NOW + 6, is_last=True)
    assert last is not None
    assert last.kind == "straggler", "nothing more comes, so it says what it has seen"
    assert verdict_of(run(slow, num_intervals=6)).kind == "straggler"


def test_an_interval_that_comes_twice_counts_once() -> None:
    current = RunVerdict(setting())
    assert [current.add_times(0, interval(index, HEALTHY)) for index in (0, 0, 1, 1)] == [
        True, False, True, False,
    ]  # fmt: skip


def test_a_new_run_keeps_the_last_verdict_until_it_has_its_own() -> None:
    before = verdict_of(run([INPUT]))
    current = RunVerdict(setting(), before)
    current.add_times(0, interval(0, HEALTHY))
    assert current.judge(NOW) is None
    assert verdict_of(current) is before


def test_the_last_word_needs_no_second_finding() -> None:
    current = run([HEALTHY], num_intervals=3)
    for index in range(3, 40):
        current.add_times(0, interval(index, INPUT))
    found = current.judge(NOW, is_last=True)
    assert found is not None
    assert found.kind == "input"


def growth(*megabytes: float, every_s: float = 5.0) -> MemoryGrowth:
    return MemoryGrowth(
        rank=0,
        of="rank",
        name="memory_pss",
        at=tuple(NOW + every_s * i for i in range(len(megabytes))),
        num_bytes=tuple(value * 2**20 for value in megabytes),
        memory="local host",
        free=(10 * 2**30,) * len(megabytes),
    )


def test_memory_that_grows_steadily_creeps() -> None:
    assert creep_rate(growth(*(500 + 2 * i for i in range(100)))) == pytest.approx(
        2 * 2**20 / 5, rel=0.05
    )


@pytest.mark.parametrize(
    "megabytes",
    [
        [500.0] * 100,
        [500 + 400 * (1 - 0.9**i) for i in range(100)],  # fills a cache
        [500 + (i % 20) * 20 for i in range(100)],  # workers of epochs
        [500 + 0.1 * i for i in range(100)],  # too little
        [500 + 20 * i for i in range(30)],  # too short
        [500.0] * 50 + [900.0] * 50,  # a step
    ],
)
def test_memory_that_levels_off_or_comes_and_goes_does_not_creep(megabytes: list[float]) -> None:
    assert creep_rate(growth(*megabytes)) == 0


@pytest.mark.parametrize(
    ("every_s", "num", "creeps"),
    [
        (12.0, 5 + 16, True),  # 16 points in three minutes, after a minute
        (12.0, 5 + 15, False),
        (5.0, 12 + 37, True),  # more points in as long
        (5.0, 12 + 36, False),
        (60.0, 1 + 16, True),  # no more points in a longer time
        (60.0, 1 + 15, False),
    ],
)
def test_a_creep_is_seen_in_16_points_of_three_minutes(
    every_s: float, num: int, creeps: bool
) -> None:
    assert (creep_rate(growth(*(500 + 20 * i for i in range(num)), every_s=every_s)) > 0) is creeps


@pytest.mark.parametrize(
    ("levels", "grown"),
    [
        ((500, 510, 521, 532), 32),  # of 32 MiB
        ((500, 510, 521, 531.9), 0),
        ((10_000, 10_030, 10_060, 10_100), 100),  # of 1 %
        ((10_000, 10_030, 10_060, 10_099), 0),
        ((500, 540, 560, 580), 80),  # the second half half as much as the first
        ((500, 540, 560, 579.9), 0),
        ((500, 540, 540, 580), 0),  # in each quarter
        ((500, 500, 540, 580), 0),
    ],
)
def test_how_much_each_quarter_has_to_grow(levels: tuple[float, ...], grown: float) -> None:
    warming = [1.0] * 5
    points = [level for level in levels for _ in range(4)]
    found = creep_rate(growth(*warming, *points, every_s=12.0))
    assert found == pytest.approx(grown * 2**20 / 144)


def test_a_fast_leak_is_said_a_minute_before_memory_is_full() -> None:
    """PSS comes seldom, as the kernel takes long to sum it up over many pages."""
    current, end_s = RunVerdict(setting()), 156
    for index in range(end_s):
        grown = 128e6 * index
        own = {"memory_rss": 1e9 + grown} | (
            {"memory_pss": 9e8 + grown} if index % 40 == 0 else {}
        )
        values = {"host": {"memory_free": 128e6 * end_s - grown}, f"rank:{RUN}:0": own}
        current.add_sample("local", SystemSample(at=NOW + index, values=values))
        current.add_times(0, interval(index, HEALTHY))
        current.judge(NOW + index)
        if verdict_of(current).kind == "memory":
            break
    assert index <= 100
    assert verdict_of(current).sentence.startswith(
        "Memory of rank 0 grows by 461 GB an hour, full in "
    )


def test_memory_that_creeps_is_said_with_when_it_is_full() -> None:
    current = RunVerdict(setting())
    for index in range(400):
        values = {
            "host": {"memory_free": 8e9},
            f"rank:{RUN}:0": {"memory_pss": 1e9 + 1e6 * index, "memory_rss": 2e9 + 1e6 * index},
        }
        current.add_sample("local", SystemSample(at=NOW + index, values=values))
        current.add_times(0, interval(index, HEALTHY))
        current.judge(NOW + index)
    verdict = verdict_of(current)
    assert verdict.kind == "memory"
    assert verdict.sentence.startswith(
        "Memory of rank 0 grows by 3.6 GB an hour, full in 2.2 h. Next: look for what is kept"
    )
