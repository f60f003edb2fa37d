"""The order of the queue, and moves in it; slots that are held and free."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from det_jupyter.scheduler.model import Group, Policy, PoolRules, Request, Running, Shape
from det_jupyter.scheduler.snapshot import Snapshot, moved_beside
from tests.unit.scheduler.pool_world import (
    FAIR,
    PRIORITY,
    add,
    ask,
    hold,
    make_pool,
    rebuilt,
    reservations,
    started,
)


def test_slots_of_groups_and_agents_are_counted() -> None:
    pool = make_pool(PRIORITY, "a:4 b:4", Group(id=1), Group(id=2))
    hold(pool, ask("x", 2, 1), "a:02")
    hold(pool, ask("y", 3, 2), "a:1 b:01", since=5.0)
    hold(pool, ask("z", 0, 2), "a:")
    assert pool.free("a") == (3,)
    assert pool.free("b") == (2, 3)
    assert [running.request.id for running in pool.on_agent("a")] == ["x", "y", "z"]
    assert [running.request.id for running in pool.on_agent("b")] == ["y"]
    assert (pool.held(1), pool.held(2), pool.held(3)) == (2, 3, 0)
    assert pool.running["y"].since == 5.0


def test_a_leaving_gang_holds_its_slots_until_it_is_removed() -> None:
    pool = make_pool(PRIORITY, "a:2")
    hold(pool, ask("x", 2), "a:01")
    pool.leave("x")
    assert pool.running["x"].is_leaving
    assert (pool.held(1), pool.free("a")) == (2, ())
    pool.remove("x")
    assert (pool.held(1), pool.free("a")) == (0, (0, 1))


def test_a_started_request_is_no_longer_in_the_queue() -> None:
    pool = make_pool(PRIORITY, "a:1")
    add(pool, ask("r1"), ask("r2"))
    assert pool.num_waiting == 2
    pool.decide(3.0)
    assert (pool.num_waiting, pool.is_waiting("r1"), pool.is_waiting("r2")) == (1, False, True)
    assert pool.running["r1"].since == 3.0
    assert pool.position("r2") == 0


def test_a_removed_request_is_no_longer_in_the_queue() -> None:
    pool = make_pool(PRIORITY, "a:1")
    hold(pool, ask("x"), "a:0")
    add(pool, ask("r1"), ask("r2"))
    pool.decide(0.0)
    assert reservations(pool) == {"r1": ("a",)}
    pool.remove("r1")
    assert (reservations(pool), [request.id for request in pool.waiting()]) == ({}, ["r2"])
    pool.remove("x")
    assert started(pool.decide(1.0)) == {"r2": "a:0"}


def test_a_group_without_requests_can_be_removed() -> None:
    for rules in (PRIORITY, FAIR):
        pool = make_pool(rules, "a:1", Group(id=1), Group(id=2))
        add(pool, ask("r1"), ask("s1", group=2))
        pool.decide(0.0)
        pool.remove("r1")
        pool.remove_group(1)
        assert [*pool.groups] == [2]
        assert started(pool.decide(1.0)) == {"s1": "a:0"}
        assert pool.running.keys() == rebuilt(pool).running.keys() == {"s1"}


def test_the_order_of_shares_follows_every_change() -> None:
    pool = make_pool(FAIR, "", Group(id=1), Group(id=2, position=1.0))
    add(pool, ask("r1"), ask("r2"), ask("s1", group=2))
    assert [pool.position(name) for name in ("r1", "s1", "r2")] == [0, 1, 2]
    pool.set_group(Group(id=1, weight=4.0))
    add(pool, ask("r3"))
    assert [pool.position(name) for name in ("r1", "s1", "r2", "r3")] == [0, 1, 2, 3]
    hold(pool, ask("x", group=2), "z:0")
    assert [pool.position(name) for name in ("r1", "r2", "r3", "s1")] == [0, 1, 2, 3]


@pytest.mark.parametrize("policy", list(Policy))
def test_in_order_leaves_out_what_is_passed_meanwhile(policy: Policy) -> None:
    """It yields what a walk through the whole queue would not skip."""
    for seed in range(40):
        chance = random.Random(seed)
        snapshot = random_snapshot(chance, policy)
        shapes = sorted({request.shape for request in snapshot.order})
        passes = {place: chance.choice(shapes) for place in chance.sample(range(20), 4)}
        passed: dict[Shape, float] = {}
        expected: list[str] = []
        for request in snapshot.order:
            priority = snapshot.groups[request.group].priority
            if passed.get(request.shape, -1) < priority or request.promised:
                if len(expected) in passes:
                    passed[passes[len(expected)]] = up_to(policy, priority)
                expected.append(request.id)
        passed = {}
        found: list[str] = []
        for request in snapshot.in_order(passed):
            if len(found) in passes:
                priority = snapshot.groups[request.group].priority
                passed[passes[len(found)]] = up_to(policy, priority)
            found.append(request.id)
        assert found == expected
        assert snapshot.promised == [request for request in snapshot.order if request.promised]


def random_snapshot(chance: random.Random, policy: Policy) -> Snapshot:
    groups = [
        Group(id=i, priority=chance.choice((10, 42)), weight=chance.choice((1.0, 3.0)))
        for i in range(5)
    ]
    waiting = [
        Request(
            id=f"r{number}",
            group=chance.randrange(5),
            slots=chance.choice((0, 1, 2, 4)),
            number=chance.randrange(10),
            promised=("a",) if chance.random() < 0.1 else (),
        )
        for number in range(40)
    ]
    held = Request(id="x", group=chance.randrange(5), slots=3)
    return Snapshot(
        rules=PoolRules(policy=policy),
        groups={group.id: group for group in groups},
        waiting={request.id: request for request in waiting},
        running={"x": Running(request=held, parts=(), since=0.0)},
    )


def up_to(policy: Policy, priority: int) -> float:
    return priority if policy is Policy.PRIORITY else math.inf


def group(number: int, priority: int = 42, position: float | None = None) -> Group:
    return Group(
        id=number, priority=priority, position=float(number) if position is None else position
    )


def moved(
    groups: list[Group], own: int, anchor: int, *, is_ahead: bool, newest: int = 0
) -> tuple[list[Group], list[Group]]:
    """Return the groups that changed, and all as they are then."""
    by_id = {each.id: each for each in groups}
    newest = newest or max(by_id)
    changed = moved_beside(by_id[own], by_id[anchor], groups, is_ahead=is_ahead, newest=newest)
    return changed, list({**by_id, **{each.id: each for each in changed}}.values())


def order(groups: list[Group], priority: int = 42) -> list[int]:
    lane = [each for each in groups if each.priority == priority]
    return [each.id for each in sorted(lane, key=lambda each: (each.position, each.id))]


@pytest.mark.parametrize(
    ("own", "anchor", "is_ahead", "position", "expected"),
    [
        (3, 1, True, 0.5, [3, 1, 2, 4]),
        (3, 1, False, 1.5, [1, 3, 2, 4]),
        (4, 3, True, 2.5, [1, 2, 4, 3]),
        (1, 4, False, 8.0, [2, 3, 4, 1]),  # between the last one and the next to come
        (1, 2, True, 1.5, [1, 2, 3, 4]),
        (2, 1, False, 2.0, [1, 2, 3, 4]),
    ],
)
def test_a_move_beside_another_takes_a_number_between_neighbours(
    own: int, anchor: int, is_ahead: bool, position: float, expected: list[int]
) -> None:
    groups = [group(number) for number in (4, 2, 1, 3)]
    changed, after = moved(groups, own, anchor, is_ahead=is_ahead, newest=11)
    assert changed == [group(own, position=position)]
    assert order(after) == expected


def test_it_takes_the_priority_of_the_one_beside_which_it_comes() -> None:
    groups = [group(1, 10), group(2, 10), group(3, 42), group(4, 42)]
    changed, after = moved(groups, 4, 1, is_ahead=False)
    assert changed == [group(4, 10, position=1.5)]
    assert (order(after, 10), order(after, 42)) == ([1, 4, 2], [3])


def test_where_no_number_is_left_the_lane_is_spread_and_stays_ahead_of_new_ones() -> None:
    groups = [group(1, position=5.0), group(2, position=5.0), group(3), group(9, 10)]
    changed, after = moved(groups, 3, 2, is_ahead=True, newest=9)
    assert {each.id for each in changed} == {1, 2, 3}
    assert order(after) == [1, 3, 2]
    assert all(9 <= each.position < 10 for each in changed)


moves = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=80)


@settings(max_examples=60)
@given(moves, st.lists(st.sampled_from([10, 42]), min_size=6, max_size=6))
def test_after_any_moves_the_order_is_that_of_a_list(
    steps: list[tuple[int, int, bool]], priorities: list[int]
) -> None:
    groups = [group(number + 1, priority) for number, priority in enumerate(priorities)]
    lanes = {priority: order(groups, priority) for priority in (10, 42)}
    for own, anchor, is_ahead in steps:
        own, anchor = own + 1, anchor + 1
        if own == anchor:
            continue
        _, groups = moved(groups, own, anchor, is_ahead=is_ahead)
        for lane in lanes.values():
            if own in lane:
                lane.remove(own)
        lane = next(lane for lane in lanes.values() if anchor in lane)
        lane.insert(lane.index(anchor) + (not is_ahead), own)
        for priority, expected in lanes.items():
            assert order(groups, priority) == expected
        assert all(each.position < 7 for each in groups)  # one that comes now is the last
        newcomer = group(7, next(each.priority for each in groups if each.id == anchor))
        assert order([*groups, newcomer], newcomer.priority)[-1] == 7


def test_a_pair_that_is_moved_for_ever_never_runs_out_of_numbers() -> None:
    groups = [group(1), group(2), group(3)]
    for turn in range(200):
        own, other = (1, 2) if turn % 2 else (2, 1)
        _, groups = moved(groups, own, other, is_ahead=False)
        _, groups = moved(groups, 3, other, is_ahead=True)
        assert order(groups) == [3, other, own]
