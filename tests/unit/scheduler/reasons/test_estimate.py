"""Estimates of when trials end, and of when a waiting one starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from det_jupyter.contract.messages import Estimate, Reason
from det_jupyter.scheduler.model import Policy
from det_jupyter.scheduler.reasons.estimate import estimate_end
from tests.unit.scheduler.reasons.reasons_world import (
    World,
    agent,
    ask,
    end,
    gang,
    groups,
    reason,
    why,
)
from tests.unit.scheduler.reasons.test_random_reasons import lived, settled, worlds


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


def holders(*ends: Estimate | None, slots: int, **more: Any) -> Reason:
    """Return why a trial waits for slots where gangs with 4 slots each, of 8, end then."""
    world = World(
        agents=[agent("a", 8)],
        groups=groups(3, 4, 5, 6),
        running=[gang(7 + i, 3 + i, {"a": range(4 * i, 4 * i + 4)}) for i in range(len(ends))],
        queue=[ask(9, 5, slots)],
        ends={str(7 + i): end for i, end in enumerate(ends) if end},
        **more,
    )
    return reason(world)


@pytest.mark.parametrize(
    ("ends", "slots", "expected"),
    [
        ([end(20, 10, 40), None], 4, end(20, 0, 40)),  # one may end at any moment
        ([end(20, 10, 40), end(30, 5, 35)], 4, end(20, 5, 35)),
        ([end(20, 10, 40), end(30, 5, 35)], 8, end(30, 10, 40)),
        ([end(20, 10, None), end(30, 5, None)], 8, end(30, 10, None)),
        ([end(20, 10, 40), None], 8, None),
        ([None, None], 4, None),
        # What was expected before now has not happened yet.
        ([end(-2, -2, -1), end(30, 5, 35)], 4, end(0, 0, 0)),
    ],
)
def test_the_end_that_makes_enough_room_counts(
    ends: list[Estimate | None], slots: int, expected: Estimate | None
) -> None:
    assert holders(*ends, slots=slots).expected == expected


def test_an_end_of_which_nothing_is_known_makes_no_room_that_is_not_there() -> None:
    """Trial 7 may end at once, and trial 8 not before 12:05: both have to."""
    found = holders(None, end(10, 5, 20), slots=8)
    assert (found.expected, found.why_unknown) == (
        None,
        "how long trial 7 will run is not known yet",
    )
    found = reason(
        World(
            agents=[agent("a", 2), agent("b", 2)],
            groups=groups(1, 2, 5),
            running=[
                gang(1, 1, {"a": [0]}), gang(2, 2, {"a": [1]}), gang(3, 2, {"b": [0, 1]}),
            ],
            queue=[ask(9, 5, 2)],
            ends={"2": end(10, 5, 20), "3": end(10, 6, 20)},
        )
    )  # fmt: skip
    assert found.expected == end(10, 5, 20)


@settings(max_examples=20)
@given(worlds, st.data())
def test_a_trial_starts_by_the_time_that_its_reason_expects(
    world: World, data: st.DataObject
) -> None:
    """Gangs end as estimated, or never without an estimate; no other requests come."""
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
    # When one that leaves has left is not known from its progress.
    staying = {name for name, running in pool.running.items() if not running.is_leaving}
    ends = sorted((end.at, name) for name, end in world.ends.items() if name in staying)
    started: dict[str, float] = {}
    for moment, name in [(world.now, ""), *ends]:
        if name:
            pool.remove(name)
        started.update((start.request_id, moment) for start in pool.decide(moment).starts)
    late = {name for name, moment in expected.items() if started.get(name, moment + 1) > moment}
    assert not late, (expected, started)
    assert world.rules.policy in Policy
