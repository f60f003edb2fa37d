"""When a trial ends, and when enough of them have."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from det_jupyter.scheduler.model import Policy
from det_jupyter.scheduler.reasons.estimate import both_of, end_of_enough, estimate_end, first_of
from det_jupyter.wire import Estimate
from tests.unit.scheduler.reasons_world import World, why
from tests.unit.scheduler.test_reasons_properties import lived, settled, worlds


def at(middle: float, earliest: float, latest: float | None, basis: str = "b") -> Estimate:
    return Estimate(at=middle, earliest=earliest, latest=latest, basis=basis)


def test_half_way_the_rest_takes_as_long_as_the_first_half() -> None:
    found = estimate_end(100.0, 0.5, now=1000.0)
    assert found is not None
    assert found.at == 1100.0
    assert found.earliest == pytest.approx(1000 + 100 / 1.325)
    assert found.latest == pytest.approx(1000 + 132.5 + 1)
    assert found.basis == "by its progress"


def test_a_resumed_trial_is_judged_by_what_it_did_since() -> None:
    found = estimate_end(100.0, 0.75, now=0.0, first_fraction=0.5)
    assert found is not None
    assert found.at == 100.0


@pytest.mark.parametrize(
    ("elapsed_s", "fraction", "first"),
    [(1.9, 0.5, 0.0), (100.0, 0.019, 0.0), (100.0, 0.51, 0.5), (0.0, 0.0, 0.0)],
)
def test_too_little_evidence_is_no_estimate(
    elapsed_s: float, fraction: float, first: float
) -> None:
    assert estimate_end(elapsed_s, fraction, now=0.0, first_fraction=first) is None


def test_a_trial_at_its_target_ends_now() -> None:
    assert estimate_end(50.0, 1.0, now=7.0) == at(7.0, 7.0, 8.0, "by its progress")
    assert estimate_end(50.0, 1.2, now=7.0) == at(7.0, 7.0, 8.0, "by its progress")


def test_a_search_may_stop_a_trial_at_any_moment() -> None:
    found = estimate_end(100.0, 0.5, now=1000.0, may_stop_early=True)
    assert found is not None
    assert (found.earliest, found.at) == (1000.0, 1100.0)


@given(st.floats(2.0, 1e6), st.floats(0.02, 1.0))
def test_the_less_is_left_the_surer_it_is(elapsed_s: float, fraction: float) -> None:
    found = estimate_end(elapsed_s, fraction, now=0.0)
    assert found is not None
    assert found.latest is not None
    assert 0 <= found.earliest <= found.at <= found.latest
    assert found.latest <= 2 * found.at + 1
    assert found.earliest >= found.at / 2


@pytest.mark.parametrize(
    ("ends", "missing", "expected"),
    [
        ([(at(20, 10, 40), 4)], 4, at(20, 10, 40)),
        ([(at(20, 10, 40), 4)], 5, None),
        ([(at(20, 10, 40), 4), (at(30, 5, 35), 4)], 4, at(20, 5, 35)),
        ([(at(20, 10, 40), 4), (at(30, 5, 35), 4)], 8, at(30, 10, 40)),
        ([(at(20, 10, None), 4)], 4, at(20, 10, None)),
        # One of which nobody knows may end at once, and cannot be counted on.
        ([(None, 4), (at(20, 10, 40), 4)], 4, at(20, 3, 40)),
        ([(None, 4)], 4, None),
        # What was expected before now has not happened yet.
        ([(at(1, 1, 2), 4)], 4, at(3, 3, 3)),
        ([], 1, None),
    ],
)
def test_the_end_that_makes_enough_room_counts(
    ends: list[tuple[Estimate | None, int]], missing: int, expected: Estimate | None
) -> None:
    assert end_of_enough(ends, missing, now=3.0) == expected


def test_the_first_of_several() -> None:
    assert first_of([at(20, 10, 40), at(30, 5, 35)], 0.0) == at(20, 5, 35)
    assert first_of([at(20, 10, None), None], 3.0) == at(20, 3, None)
    assert first_of([None], 0.0) is None
    assert first_of([], 0.0) is None


def test_both_of_two() -> None:
    assert both_of(at(20, 10, 40), at(30, 5, 35)) == at(30, 10, 40)
    assert both_of(at(20, 10, None), at(30, 5, 35)) == at(30, 10, None)
    assert both_of(None, at(30, 5, 35)) is None


@settings(max_examples=40)
@given(worlds, st.data())
def test_a_trial_starts_by_the_time_that_its_reason_expects(
    world: World, data: st.DataObject
) -> None:
    """Whoever runs ends as expected or, where nobody knows, never; nobody else comes."""
    # Where few keep agents, one that is as near may be kept instead, and the first be taken.
    world.rules = replace(world.rules, reservation_depth=32)
    lived(world, data)
    pool = settled(world)
    expected = {
        request.id: reason.expected.at
        for request in pool.waiting()
        if (reason := why(pool, request.id, world)).expected is not None
    }
    if pool.rules.preemption:
        return  # those ahead may take what others hold, those behind may stand in for a while
    ends = sorted((end.at, name) for name, end in world.ends.items() if name in pool.running)
    started: dict[str, float] = {}
    for moment, name in [(world.now, ""), *ends]:
        if name:
            pool.remove(name)
        started.update((start.request_id, moment) for start in pool.decide(moment).starts)
    late = {name for name, moment in expected.items() if started.get(name, moment + 1) > moment}
    assert not late, (expected, started)
    assert world.rules.policy in Policy
