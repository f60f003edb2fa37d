"""Fair share and round robin: the order of starts, the resulting shares, and exchanges."""

from __future__ import annotations

from collections import Counter

import pytest

from det_jupyter.scheduler.model import Group, PoolRules
from tests.scheduler_pool import Pool
from tests.unit.scheduler.pool_world import (
    FAIR,
    FAIR_PREEMPTIVE,
    ROUND_ROBIN,
    add,
    ask,
    hold,
    make_pool,
    preempted,
    started,
)


def two(first: float = 1.0, second: float = 1.0, most: int | None = None) -> list[Group]:
    return [
        Group(id=1, weight=first, position=1.0, max_slots=most),
        Group(id=2, weight=second, position=2.0),
    ]


def want(pool: Pool, group: int, num: int, slots: int = 1) -> None:
    """Let `num` trials of an experiment wait."""
    add(pool, *(ask(f"{'xabcd'[group]}{number}", slots, group) for number in range(num)))


def shares(pool: Pool) -> dict[int, int]:
    return {group: pool.held(group) for group in pool.groups}


def settle(pool: Pool, steps: int = 50) -> None:
    """Let preempted gangs leave and queue again, until there is no further preemption."""
    for step in range(1, steps):
        decisions = pool.decide(float(step))
        leaving = [running for running in pool.running.values() if running.is_leaving]
        for running in leaving:
            pool.remove(running.request.id)
            add(pool, ask(f"{running.request.id}z", running.request.slots, running.request.group))
        if not leaving and not decisions.starts:
            return
    raise AssertionError("it never settles")


@pytest.mark.parametrize("rules", [FAIR, ROUND_ROBIN])
def test_a_gang_that_starts_ahead_of_its_group_changes_the_order_at_once(rules: PoolRules) -> None:
    pool = make_pool(rules, "a:1 d:4", *two(), Group(id=3, position=3.0))
    hold(pool, ask("h", 2, 3), "d:01")
    add(pool, ask("x1", 4), ask("x2", 1), ask("y1", 2, 2, blocked="a"))
    assert started(pool.decide(0.0)) == {"x2": "a:0", "y1": "d:23"}  # y1: now ahead of x1
    assert not pool.decide(1.0).starts


@pytest.mark.parametrize(
    ("groups", "wanted", "shared"),
    [
        (two(), (8, 8), {1: 4, 2: 4}),
        (two(10, 30), (8, 8), {1: 2, 2: 6}),
        (two(10, 30), (40, 40), {1: 2, 2: 6}),
        (two(), (10, 30), {1: 4, 2: 4}),  # by weight, not by the number of requests
        (two(), (2, 30), {1: 2, 2: 6}),  # what a group does not need goes to the others
        (two(most=3), (8, 8), {1: 3, 2: 5}),
        (two(0.5, 1.5), (8, 8), {1: 2, 2: 6}),
        (two(1, 1000), (8, 8), {1: 1, 2: 7}),  # every group gets at least one slot
    ],
)
@pytest.mark.parametrize("rules", [FAIR, FAIR_PREEMPTIVE], ids=["", "preemption"])
def test_slots_are_shared_by_weight(
    groups: list[Group], wanted: tuple[int, int], shared: dict[int, int], rules: PoolRules
) -> None:
    pool = make_pool(rules, "a:8", *groups)
    want(pool, 1, wanted[0])
    want(pool, 2, wanted[1])
    pool.decide(0.0)
    assert shares(pool) == shared


def test_the_order_is_that_in_which_they_would_start() -> None:
    pool = make_pool(FAIR, "", *two(1.0, 2.0))
    want(pool, 1, 3)
    want(pool, 2, 4)
    order = [request.id for request in pool.waiting()]
    assert order == ["a0", "b0", "b1", "a1", "b2", "b3", "a2"]
    assert [pool.position(name) for name in order] == [0, 1, 2, 3, 4, 5, 6]
    assert [request.id for request in pool.waiting(3)] == ["a0", "b0", "b1"]
    hold(pool, ask("x9", 1, 2), "z:0")
    assert [request.id for request in pool.waiting(4)] == ["a0", "b0", "a1", "b1"]


def test_a_slot_goes_to_the_experiment_that_has_least() -> None:
    pool = make_pool(FAIR, "a:4", *two())
    hold(pool, ask("x1", 1, 1), "a:0")
    hold(pool, ask("x2", 2, 2), "a:12")
    want(pool, 1, 2)
    want(pool, 2, 2)
    assert started(pool.decide(0.0)) == {"a0": "a:3"}


def test_without_preemption_shares_become_fair_as_gangs_end() -> None:
    pool = make_pool(FAIR, "a:8", *two())
    want(pool, 1, 16)
    pool.decide(0.0)
    assert shares(pool) == {1: 8, 2: 0}
    want(pool, 2, 16)
    assert pool.decide(1.0).preemptions == ()
    for number in range(4):
        pool.remove(f"a{number}")
        pool.decide(2.0)
    assert shares(pool) == {1: 4, 2: 4}


@pytest.mark.parametrize(
    ("groups", "shared"),
    [(two(), {1: 4, 2: 4}), (two(10, 30), {1: 2, 2: 6}), (two(30, 10), {1: 6, 2: 2})],
)
def test_with_preemption_who_has_more_than_its_share_gives_some_back(
    groups: list[Group], shared: dict[int, int]
) -> None:
    pool = make_pool(FAIR_PREEMPTIVE, "a:8", *groups)
    want(pool, 1, 8)
    pool.decide(0.0)
    want(pool, 2, 8)
    settle(pool)
    assert shares(pool) == shared


def test_nobody_gives_so_much_that_it_would_have_less_than_the_other() -> None:
    pool = make_pool(FAIR_PREEMPTIVE, "a:8", *two())
    hold(pool, ask("x", 8, 1), "a:01234567")
    want(pool, 2, 1, slots=4)
    assert pool.decide(1.0).preemptions == ()


def test_an_exchange_is_fair_afterwards() -> None:
    pool = make_pool(FAIR_PREEMPTIVE, "a:8", *two())
    hold(pool, ask("x1", 4, 1), "a:0123", since=0.0)
    hold(pool, ask("x2", 4, 1), "a:4567", since=1.0)
    want(pool, 2, 3, slots=2)
    assert preempted(pool.decide(9.0)) == {"x2": "b0"}
    pool.remove("x2")
    assert started(pool.decide(10.0)) == {"b0": "a:45", "b1": "a:67"}


def test_those_furthest_above_give_first() -> None:
    groups = [*two(), Group(id=3, position=3.0)]
    pool = make_pool(FAIR_PREEMPTIVE, "a:4 b:4", *groups)
    for slot in range(5):
        where = f"a:{slot}" if slot < 4 else "b:0"
        hold(pool, ask(f"x{slot}", 1, 1), where, since=float(slot))
    for slot in (1, 2, 3):
        hold(pool, ask(f"y{slot}", 1, 2), f"b:{slot}", since=90.0)
    want(pool, 3, 4)
    # Five, three and none: two of the first group's, the newest first, then they are even.
    assert preempted(pool.decide(100.0)) == {"x4": "c0", "x3": "c1"}


def test_whole_agents_are_given_back_where_that_is_fair() -> None:
    pool = make_pool(FAIR_PREEMPTIVE, "a:4 b:4 c:4 d:4", *two())
    for agent in "abcd":
        hold(pool, ask(f"x{agent}", 4, 1), f"{agent}:0123", since=float(ord(agent)))
    want(pool, 2, 3, slots=8)
    assert preempted(pool.decide(200.0)) == {"xd": "b0", "xc": "b0"}
    pool.remove("xc")
    assert pool.decide(201.0).starts == ()
    pool.remove("xd")
    assert started(pool.decide(202.0)) == {"b0": "c:0123 d:0123"}
    assert pool.decide(203.0).preemptions == ()


def test_agents_that_the_taker_avoids_are_not_cleared_for_it() -> None:
    pool = make_pool(FAIR_PREEMPTIVE, "a:2 b:2 c:2 d:2", *two())
    for agent in "abcd":
        hold(pool, ask(f"x{agent}", 2, 1), f"{agent}:01", since=float(ord(agent)))
    add(pool, ask("r", 4, 2, blocked="d"))
    assert preempted(pool.decide(200.0)) == {"xb": "r", "xc": "r"}


def test_who_has_the_greatest_share_of_too_few_slots_keeps_them() -> None:
    """Group 2 has 1 slot by a weight of 0.1; without it, it would have less than it may."""
    groups = [Group(id=1), Group(id=2, weight=0.1, position=2.0), Group(id=3, position=3.0)]
    pool = make_pool(FAIR_PREEMPTIVE, "a:8", *groups)
    hold(pool, ask("x", 1, 2), "a:0")
    for number, slots in enumerate(["12", "34", "56"]):
        hold(pool, ask(f"y{number}", 2, 3), f"a:{slots}", since=float(number))
    hold(pool, ask("z", 1, 1), "a:7")
    add(pool, ask("r", 1, 1))
    assert preempted(pool.decide(9.0)) == {"y2": "r"}


def test_who_takes_stands_ahead_of_who_gave() -> None:
    """Requests ahead of it count: else the giver, queued again, would be ahead of it."""
    pool = make_pool(FAIR_PREEMPTIVE, "a:8 b:4", *two())
    hold(pool, ask("x1", 1, 1), "a:0")
    hold(pool, ask("x2", 1, 1), "a:1")
    hold(pool, ask("x3", 4, 1), "b:0123")
    add(pool, ask("b1", 8, 2), ask("b2", 2, 2))
    assert preempted(pool.decide(1.0)) == {}


def test_an_experiment_takes_nothing_from_itself() -> None:
    pool = make_pool(FAIR_PREEMPTIVE, "a:2", *two())
    hold(pool, ask("x", 2, 1), "a:01")
    want(pool, 1, 2)
    assert pool.decide(1.0).preemptions == ()


@pytest.mark.parametrize("rules", [FAIR, FAIR_PREEMPTIVE, ROUND_ROBIN], ids=lambda r: r.policy)
def test_large_gangs_neither_block_each_other_nor_starve(rules: PoolRules) -> None:
    """Trials of three experiments need the whole agent, those of one a single slot."""
    groups = [Group(id=n, position=float(n)) for n in (1, 2, 3, 4)]
    pool = make_pool(rules, "a:4", *groups)
    for group in (1, 2, 3):
        want(pool, group, 4, slots=4)
    want(pool, 4, 60)
    pool.decide(0.0)
    ended: Counter[int] = Counter()
    for step in range(1, 300):
        if not pool.running:
            break
        name = min(pool.running, key=lambda one: (pool.running[one].since, one))
        running = pool.running[name]
        pool.remove(name)
        if running.is_leaving:
            add(pool, ask(f"{name}z", running.request.slots, running.request.group))
        else:
            ended[running.request.group] += 1
        pool.decide(float(step))
        if ended[1] == ended[2] == ended[3] == 4:
            break
    assert {group: ended[group] for group in (1, 2, 3)} == {1: 4, 2: 4, 3: 4}


def test_round_robin_gives_each_experiment_one_turn_after_the_other() -> None:
    pool = make_pool(ROUND_ROBIN, "a:6", *two(1.0, 50.0))
    hold(pool, ask("x", 2, 2), "a:01")
    want(pool, 1, 4)
    want(pool, 2, 4)
    order = [request.id for request in pool.waiting()]
    assert order == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3"]
    assert pool.position("b1") == 3
    pool.decide(0.0)
    assert shares(pool) == {1: 2, 2: 4}


def test_round_robin_begins_with_who_holds_least_and_has_nobody_leave() -> None:
    pool = make_pool(PoolRules(policy=ROUND_ROBIN.policy, preemption=True), "a:4", *two())
    hold(pool, ask("x", 3, 1), "a:012")
    want(pool, 1, 4)
    want(pool, 2, 4)
    assert started(pool.decide(0.0)) == {"b0": "a:3"}
    assert pool.decide(1.0).preemptions == ()
    pool.remove("x")
    pool.decide(2.0)
    assert shares(pool) == {1: 2, 2: 2}
