"""Agents where gangs were preempted are promised to the request that needs them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from det_jupyter.scheduler.model import AgentSlots, Decisions, Group, PoolRules, Request
from tests.scheduler_pool import Pool
from tests.unit.scheduler.pool_world import (
    FAIR_PREEMPTIVE,
    PREEMPTIVE,
    PRIORITY,
    add,
    ask,
    hold,
    leave_and_queue_again,
    make_pool,
    preempted,
    promised,
    rebuilt,
    reservations,
    started,
)

URGENT, USUAL, IDLE = (
    Group(id=1, priority=10, position=1.0),
    Group(id=2, priority=42, position=2.0),
    Group(id=3, priority=90, position=3.0),
)
GROUPS = (URGENT, USUAL, IDLE)


def cleared(rules: PoolRules = PREEMPTIVE) -> Pool:
    """Return a pool where x1 and x2 leave agent a for w5."""
    pool = make_pool(rules, "a:4 b:4", *GROUPS)
    hold(pool, ask("stay", 4, 1), "b:0123")
    hold(pool, ask("x1", 2, 3), "a:01")
    hold(pool, ask("x2", 2, 3), "a:23")
    add(pool, ask("w5", 4, 2))
    assert preempted(pool.decide(1.0)) == {"x1": "w5", "x2": "w5"}
    assert promised(pool) == {"w5": "a"}
    return pool


def test_a_promise_ends_with_the_start_of_its_request_without_being_mentioned() -> None:
    """The start says it: what starts waits no more, and its allocation drops the promise."""
    pool = cleared()
    pool.remove("x1")
    pool.remove("x2")
    decided = pool.decide(2.0)
    assert started(decided) == {"w5": "a:0123"}
    assert decided.promises == ()


def test_what_is_cleared_beside_what_was_cleared_counts_for_who_asked() -> None:
    pool = make_pool(PREEMPTIVE, "a:4", *GROUPS)
    for slot in range(4):
        hold(pool, ask(f"x{slot}", 1, 3), f"a:{slot}", since=float(slot))
    add(pool, ask("w1", 2, 1))
    assert preempted(pool.decide(9.0)) == {"x3": "w1", "x2": "w1"}
    add(pool, ask("w2", 1, 1), ask("w3", 1, 1))
    assert preempted(pool.decide(9.0)) == {"x1": "w2", "x0": "w3"}


def test_a_decision_is_final_until_something_happens() -> None:
    """Room that w2 has made lets w1 wait elsewhere, or w2 start at once: not only at next."""
    pool = make_pool(PREEMPTIVE, "a:4 b:4", *GROUPS)
    hold(pool, ask("x1", 1, 3), "b:0")
    hold(pool, ask("x2", 3, 3), "a:012")
    pool.leave("x1")
    add(pool, ask("w1", 4, 1), ask("w2", 3, 1))
    assert preempted(pool.decide(9.0)) == {"x2": "w2"}
    assert reservations(pool) == {"w1": ("b",), "w2": ("a",)}
    assert pool.decide(9.0) == Decisions()


def test_an_equal_further_ahead_does_not_shut_out_for_whom_others_left() -> None:
    pool = make_pool(PREEMPTIVE, "a:4 b:4", *GROUPS)
    hold(pool, ask("stay", 2, 1), "b:23")
    hold(pool, ask("x1", 3, 3), "a:012", since=5.0)
    hold(pool, ask("x2", 2, 3), "b:01", since=6.0)
    add(pool, ask("w1", 2, 1), ask("w2", 8, 1), ask("w3", 4, 1))
    assert preempted(pool.decide(9.0)) == {"x2": "w1", "x1": "w3"}
    leave_and_queue_again(pool, "x2", "y2")
    assert started(pool.decide(10.0)) == {"w1": "b:01"}
    assert reservations(pool) == {"w3": ("a",), "w2": ("a", "b")}
    leave_and_queue_again(pool, "x1", "y1")
    decisions = pool.decide(11.0)
    assert (started(decisions), preempted(decisions)) == ({"w3": "a:0123"}, {})
    assert promised(pool) == {}


def test_nobody_stands_in_where_others_just_left_for_another() -> None:
    """Not even where one who is more urgent waits, so that backfill would do no harm."""
    pool = cleared()
    add(pool, ask("large", 8, 1))
    leave_and_queue_again(pool, "x1", "y1")
    assert pool.decide(2.0) == Decisions()
    assert reservations(pool) == {"large": ("a", "b"), "w5": ("a",)}
    leave_and_queue_again(pool, "x2", "y2")
    assert started(pool.decide(3.0)) == {"w5": "a:0123"}
    assert pool.running["w5"].is_backfill


def test_the_strictly_more_urgent_take_what_is_promised_if_there_is_no_other_place() -> None:
    pool = cleared()
    pool.remove("x1")
    add(pool, ask("top", 2, 1))
    assert started(pool.decide(2.0)) == {"top": "a:01"}
    assert promised(pool) == {}
    pool = cleared()
    pool.remove("x1")
    pool.remove("stay")
    add(pool, ask("top", 2, 1))
    assert started(pool.decide(2.0)) == {"top": "b:01"}
    assert promised(pool) == {"w5": "a"}


def test_the_strictly_more_urgent_wait_for_what_is_promised_and_ask_nobody_else() -> None:
    pool = cleared(replace(PREEMPTIVE, reservation_depth=32))
    add(pool, ask("top", 2, 1))
    assert preempted(pool.decide(2.0)) == {}
    assert reservations(pool) == {"top": ("a",), "w5": ("b",)}
    assert promised(pool) == {}
    pool = cleared(replace(PREEMPTIVE, reservation_depth=32))
    pool.leave("stay")
    add(pool, ask("top", 2, 1))
    assert preempted(pool.decide(2.0)) == {}
    assert reservations(pool) == {"top": ("b",), "w5": ("a",)}


def test_an_equal_further_ahead_starts_at_once_but_does_not_wait_there() -> None:
    pool = cleared()
    add(pool, ask("w1", 2, 2))
    assert pool.decide(2.0) == Decisions()
    assert reservations(pool) == {"w5": ("a",), "w1": ("a",)}
    pool.remove("x1")
    assert started(pool.decide(3.0)) == {"w1": "a:01"}
    assert promised(pool) == {}


def test_who_has_a_promise_may_start_elsewhere_and_gives_it_back() -> None:
    pool = cleared()
    add(pool, ask("w6", 4, 2))
    pool.decide(2.0)
    pool.remove("stay")
    assert started(pool.decide(2.0)) == {"w5": "b:0123"}
    assert promised(pool) == {}
    assert reservations(pool) == {"w6": ("a",)}


def test_a_promise_ends_with_who_has_it() -> None:
    pool = cleared()
    pool.remove("w5")
    pool.remove("x1")
    add(pool, ask("low", 2, 3))
    assert started(pool.decide(2.0)) == {"low": "a:01"}


def test_a_promise_ends_when_the_agent_is_not_enough_any_more() -> None:
    pool = cleared()
    pool.set_agent(AgentSlots(id="a", slots=(0, 1, 2)))
    pool.decide(2.0)
    assert promised(pool) == {}


def test_a_promise_ends_when_its_group_may_hold_no_more() -> None:
    pool = cleared()
    pool.set_group(replace(USUAL, max_slots=3))
    pool.decide(2.0)
    assert promised(pool) == {}


def test_two_of_a_capped_group_do_not_both_start_on_promised_agents() -> None:
    pool = make_pool(PREEMPTIVE, "a:2 b:2", replace(URGENT, max_slots=4), IDLE)
    hold(pool, ask("x1", 2, 3), "a:01")
    hold(pool, ask("x2", 2, 3), "b:01")
    add(pool, ask("w1", 2, 1), ask("w2", 2, 1))
    assert preempted(pool.decide(1.0)) == {"x1": "w1", "x2": "w2"}
    pool.set_group(replace(URGENT, max_slots=2))
    pool.remove("x1")
    pool.remove("x2")
    assert started(pool.decide(2.0)) == {"w1": "a:01"}
    assert pool.held(1) == 2


def whole() -> Pool:
    """Return a pool where x1 and x2 leave agents a and b for w1."""
    pool = make_pool(PREEMPTIVE, "a:2 b:2", *GROUPS)
    hold(pool, ask("x1", 2, 3), "a:01")
    hold(pool, ask("x2", 2, 3), "b:01")
    add(pool, ask("w1", 4, 2))
    assert preempted(pool.decide(1.0)) == {"x1": "w1", "x2": "w1"}
    assert promised(pool) == {"w1": "a b"}
    return pool


def test_whole_agents_are_promised_together() -> None:
    pool = whole()
    leave_and_queue_again(pool, "x2", "y2")
    add(pool, ask("w9", 1, 2))
    assert pool.decide(2.0) == Decisions()
    pool.remove("x1")
    assert started(pool.decide(3.0)) == {"w1": "a:01 b:01"}


@pytest.mark.parametrize(
    "agent",
    [
        AgentSlots(id="a", slots=(0,)),
        AgentSlots(id="a", kind="cuda", slots=(0, 1)),
        AgentSlots(id="c", slots=(0, 1, 2, 3)),
    ],
)
def test_whole_agents_are_promised_no_longer_once_they_do_not_fit(agent: AgentSlots) -> None:
    pool = whole()
    pool.set_agent(agent)
    pool.decide(2.0)
    assert "a b" not in promised(pool).values()


def test_an_agent_that_is_gone_is_promised_no_longer() -> None:
    pool = cleared()
    pool.remove("x1")
    pool.remove("x2")
    pool.remove_agent("a")
    pool.decide(2.0)
    assert promised(pool) == {}


@pytest.mark.parametrize("rules", [PRIORITY, PoolRules()])
def test_without_preemption_there_are_no_promises(rules: PoolRules) -> None:
    pool = make_pool(rules, "a:2", *GROUPS)
    hold(pool, ask("x", 1, 1), "a:0")
    pool.add(replace(ask("w", 2, 1), promised=("a",)))
    pool.decide(1.0)
    assert promised(pool) == {}


def test_fair_shares_are_promised_too() -> None:
    pool = make_pool(FAIR_PREEMPTIVE, "a:4", *GROUPS)
    for slot in range(4):
        hold(pool, ask(f"x{slot}", 1, 3), f"a:{slot}", since=float(slot))
    add(pool, ask("w", 2, 2))
    assert preempted(pool.decide(9.0)) == {"x3": "w", "x2": "w"}
    assert promised(pool) == {"w": "a"}
    leave_and_queue_again(pool, "x3", "y3")
    add(pool, ask("v", 1, 1))
    assert started(pool.decide(10.0)) == {"v": "a:3"}  # it has less, and fits at once


def test_promises_outlast_a_pool_that_is_built_anew() -> None:
    pool = rebuilt(cleared())
    leave_and_queue_again(pool, "x1", "y1")
    add(pool, ask("w1", 4, 2))
    assert pool.decide(2.0) == Decisions()
    pool.remove("x2")
    assert started(pool.decide(3.0)) == {"w1": "a:0123"}  # further ahead, and it fits at once


def busy(chance: random.Random) -> tuple[Pool, list[Request]]:
    """Return a pool of one to four agents, and trials of experiments of several priorities."""
    pool = Pool(PREEMPTIVE)
    for number in range(chance.randint(1, 4)):
        slots = tuple(range(chance.choice((2, 4, 8))))
        pool.set_agent(AgentSlots(id=f"a{number}", slots=slots))
    requests: list[Request] = []
    for group in range(chance.randint(2, 8)):
        priority = chance.choice((1, 20, 42, 42, 99))
        pool.set_group(Group(id=group, priority=priority, position=float(group)))
        slots_each = chance.choice((1, 1, 2, 2, 3, 4, 8, 16))
        for _ in range(chance.choice((1, 2, 3, 6))):
            number = len(requests)
            requests.append(
                Request(id=f"{number}.0", group=group, slots=slots_each, number=number)
            )
    chance.shuffle(requests)
    return pool, requests


@pytest.mark.parametrize("seed", range(60))
def test_nobody_leaves_twice_and_nobody_asks_twice_once_no_more_come(seed: int) -> None:
    chance = random.Random(seed)
    pool, requests = busy(chance)
    left: Counter[str] = Counter()
    asked: dict[str, set[float]] = {}
    for now, request in enumerate(requests):
        pool.add(request)
        decisions = pool.decide(float(now))
    for step in range(200):
        for gone in decisions.preemptions:
            left[gone.request_id.split(".")[0]] += 1
            asked.setdefault(gone.for_request_id, set()).add(step)
        leaving = sorted(name for name, gang in pool.running.items() if gang.is_leaving)
        if not leaving:
            break
        number, runs = chance.choice(leaving).split(".")
        leave_and_queue_again(pool, f"{number}.{runs}", f"{number}.{int(runs) + 1}")
        decisions = pool.decide(1000.0 + step)
    assert not any(gang.is_leaving for gang in pool.running.values())
    assert max(left.values(), default=1) == 1
    assert all(len(times) == 1 for times in asked.values())
