"""Elastic gangs: how many slots they start with, when they grow, and what they give back."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from det_jupyter.contract.values.sizes import GROW_AFTER_S, Sizes
from det_jupyter.scheduler.model import (
    AgentSlots,
    Decisions,
    Fitting,
    Group,
    Policy,
    PoolRules,
    Request,
    Running,
    size_of,
)
from tests.scheduler_pool import Pool
from tests.unit.scheduler.pool_world import (
    FAIR,
    PREEMPTIVE,
    PRIORITY,
    ROUND_ROBIN,
    add,
    ask,
    hold,
    make_pool,
    preempted,
    started,
)
from tests.unit.scheduler.test_decide_random import Histories


def elastic(name: str, least: int, most: int, group: int = 1) -> Request:
    return replace(ask(name, least, group), sizes=Sizes(least, most))


def train(pool: Pool, request: Request, where: str, since: float = 0.0) -> None:
    """Let an elastic gang train on slots; `where` reads "a:012 b:01"."""
    hold(pool, request, where, since)
    gang = pool.running[request.id]
    request = replace(request, slots=size_of(gang.parts))
    pool.hold(replace(gang, request=request, trains_since=since))


def resized(decisions: Decisions) -> dict[str, str]:
    """Return who is resized to which slots, and for whom."""
    return {
        one.request_id: " ".join(
            [f"{part.agent_id}:{''.join(map(str, part.slot_ids))}" for part in one.parts]
            + ([f"for {one.for_request_id}"] if one.for_request_id else [])
        )
        for one in decisions.resizes
    }


def groups(first: int = 42, second: int = 42) -> list[Group]:
    return [
        Group(id=1, position=1.0, priority=first),
        Group(id=2, position=2.0, priority=second),
    ]


# starts


def test_it_starts_with_what_is_free() -> None:
    pool = make_pool(PRIORITY, "a:8")
    hold(pool, ask("h", 3), "a:012")
    add(pool, elastic("x1", 2, 8))
    assert started(pool.decide(0.0)) == {"x1": "a:34567"}
    assert pool.running["x1"].request.slots == 5


def test_it_waits_for_its_fewest() -> None:
    pool = make_pool(PRIORITY, "a:4")
    hold(pool, ask("h", 3), "a:012")
    add(pool, elastic("x1", 2, 8))
    assert started(pool.decide(0.0)) == {}


def test_those_that_start_together_share_what_is_left() -> None:
    pool = make_pool(PRIORITY, "a:8")
    add(pool, elastic("x1", 1, 8), elastic("x2", 1, 8), ask("x3", 2))
    assert started(pool.decide(0.0)) == {"x1": "a:046", "x2": "a:157", "x3": "a:23"}


def test_slots_that_are_kept_for_a_waiting_gang_are_not_added() -> None:
    pool = make_pool(PRIORITY, "a:4 b:2")
    hold(pool, ask("h", 1), "a:0")
    add(pool, ask("x1", 4), elastic("x2", 1, 8))
    assert started(pool.decide(0.0)) == {"x2": "b:01"}


def test_max_slots_holds() -> None:
    pool = make_pool(PRIORITY, "a:8", Group(id=1, max_slots=5))
    add(pool, elastic("x1", 1, 8), elastic("x2", 1, 8))
    starts = started(pool.decide(0.0))
    assert sorted(len(where) - 2 for where in starts.values()) == [2, 3]


def test_it_may_start_on_whole_agents() -> None:
    pool = make_pool(PRIORITY, "a:4 b:4 c:4")
    hold(pool, ask("h", 1), "b:0")
    add(pool, elastic("x1", 1, 12))
    assert started(pool.decide(0.0)) == {"x1": "a:0123 c:0123"}


# growing


def test_it_grows_when_slots_have_been_free_for_a_while() -> None:
    pool = make_pool(PRIORITY, "a:4")
    pool.set_agent(replace(pool.agents["a"], freed_at={2: 95.0, 3: 97.0}))
    train(pool, elastic("x1", 1, 8), "a:01")
    decisions = pool.decide(100.0)
    assert not decisions.resizes
    assert decisions.look_again_at == 95.0 + GROW_AFTER_S
    decisions = pool.decide(105.0)
    assert resized(decisions) == {"x1": "a:012"}
    assert not pool.decide(200.0).resizes  # it has not gone on yet
    pool.go_on("x1", 199.0)
    pool.hold(replace(pool.running["x1"], trains_since=200.0))
    assert pool.decide(200.0).look_again_at == 200.0 + GROW_AFTER_S


@pytest.mark.parametrize(
    "change", [{"trains_since": None}, {"trains_since": 95.0}, {"is_leaving": True}]
)
def test_only_gangs_that_train_and_stay_grow(change: dict[str, Any]) -> None:
    pool = make_pool(PRIORITY, "a:4")
    train(pool, elastic("x1", 1, 8), "a:01")
    pool.hold(replace(pool.running["x1"], **change))
    assert not pool.decide(100.0).resizes


def test_the_smallest_grows_first() -> None:
    pool = make_pool(PRIORITY, "a:8")
    train(pool, elastic("x1", 1, 8), "a:012")
    train(pool, elastic("x2", 1, 8), "a:3")
    assert resized(pool.decide(100.0)) == {"x1": "a:0126", "x2": "a:3457"}


def test_the_more_urgent_grows_first() -> None:
    pool = make_pool(PRIORITY, "a:8", *groups(10, 42))
    train(pool, elastic("x1", 1, 6, 1), "a:012")
    train(pool, elastic("y1", 1, 8, 2), "a:3")
    assert resized(pool.decide(100.0)) == {"x1": "a:012456", "y1": "a:37"}


def test_it_leaves_room_for_trials_of_its_own_experiment_below_max_slots() -> None:
    pool = make_pool(PRIORITY, "a:8", Group(id=1, max_slots=4))
    train(pool, elastic("x1", 1, 8), "a:0123")
    add(pool, ask("x2", 1, blocked="a"))
    assert resized(pool.decide(100.0)) == {"x1": "a:012 for x2"}
    pool.go_on("x1", 101.0)
    pool.hold(replace(pool.running["x1"], trains_since=101.0))
    assert not pool.decide(200.0).resizes  # x2 still waits for another agent


def test_it_grows_though_a_large_trial_of_its_own_waits_for_its_end() -> None:
    pool = make_pool(PRIORITY, "a:8", Group(id=1, max_slots=4))
    train(pool, elastic("x1", 1, 8), "a:0")
    add(pool, ask("x2", 4))
    assert resized(pool.decide(100.0)) == {"x1": "a:0123"}
    pool.go_on("x1", 101.0)
    assert not pool.decide(101.0).resizes


def test_it_moves_where_it_can_have_more() -> None:
    pool = make_pool(PRIORITY, "a:2 b:4")
    train(pool, elastic("x1", 1, 4), "a:01")
    assert resized(pool.decide(100.0)) == {"x1": "b:0123"}


def test_it_does_not_move_to_devices_of_another_kind() -> None:
    pool = make_pool(PRIORITY, "a:2:cuda b:8:cpu c:2:cuda")
    train(pool, elastic("x1", 1, 4), "a:01")
    assert resized(pool.decide(100.0)) == {"x1": "a:01 c:01"}


def test_it_grows_onto_whole_agents() -> None:
    pool = make_pool(PRIORITY, "a:4 b:4")
    train(pool, elastic("x1", 1, 8), "a:0123")
    assert resized(pool.decide(100.0)) == {"x1": "a:0123 b:0123"}


def test_a_gang_on_a_slot_that_is_withheld_moves_away_when_it_grows() -> None:
    pool = make_pool(PRIORITY, "a:4 b:4")
    pool.set_agent(replace(pool.agents["a"], slots=(1, 2, 3)))
    train(pool, elastic("x1", 1, 2), "a:0")
    assert resized(pool.decide(100.0)) == {"x1": "a:12"}


# giving back


def test_it_gives_back_one_slot_for_a_waiting_gang_of_one() -> None:
    pool = make_pool(PRIORITY, "a:8", *groups())
    train(pool, elastic("x1", 1, 8), "a:01234567")
    add(pool, ask("y1", 1, 2))
    decisions = pool.decide(1.0)
    assert resized(decisions) == {"x1": "a:0123456 for y1"}
    assert not decisions.preemptions
    assert pool.decide(2.0) == Decisions()
    pool.go_on("x1", 3.0)
    assert started(pool.decide(3.0)) == {"y1": "a:7"}


def test_it_keeps_its_fewest() -> None:
    pool = make_pool(PRIORITY, "a:4", *groups())
    train(pool, elastic("x1", 2, 8), "a:0123")
    add(pool, ask("y1", 3, 2))
    assert pool.decide(1.0) == Decisions()


@pytest.mark.parametrize(("theirs", "gives"), [(10, True), (42, True), (50, False)])
def test_it_gives_to_those_that_are_as_urgent(theirs: int, gives: bool) -> None:
    pool = make_pool(PRIORITY, "a:4", *groups(42, theirs))
    train(pool, elastic("x1", 1, 8), "a:0123")
    add(pool, ask("y1", 1, 2))
    assert bool(pool.decide(1.0).resizes) is gives


def test_the_largest_of_the_least_urgent_gives_first() -> None:
    pool = make_pool(PRIORITY, "a:8", *groups(), Group(id=3, position=3.0, priority=50))
    train(pool, elastic("x1", 1, 8), "a:0123")
    train(pool, elastic("z1", 1, 8, 3), "a:45")
    train(pool, elastic("z2", 2, 8, 3), "a:67")
    add(pool, ask("y1", 2, 2))
    assert resized(pool.decide(1.0)) == {"z1": "a:4 for y1", "x1": "a:012 for y1"}


def test_an_elastic_gang_gets_as_much_as_its_equals() -> None:
    pool = make_pool(PRIORITY, "a:8", *groups())
    train(pool, elastic("x1", 1, 8), "a:01234567")
    add(pool, elastic("y1", 1, 8, 2))
    assert resized(pool.decide(1.0)) == {"x1": "a:0123 for y1"}
    pool.go_on("x1", 2.0)
    assert started(pool.decide(2.0)) == {"y1": "a:4567"}


def test_a_more_urgent_elastic_gang_gets_all_but_the_fewest() -> None:
    pool = make_pool(PRIORITY, "a:8", *groups(42, 10))
    train(pool, elastic("x1", 2, 8), "a:01234567")
    add(pool, elastic("y1", 1, 8, 2))
    assert resized(pool.decide(1.0)) == {"x1": "a:01 for y1"}


@pytest.mark.parametrize("policy", list(Policy))
def test_slots_given_to_a_trial_that_keeps_no_agent_are_not_grown_into(policy: Policy) -> None:
    pool = make_pool(PoolRules(policy=policy), "a:4 b:4")
    hold(pool, ask("h", 4), "a:0123")
    train(pool, elastic("x1", 1, 2), "b:0")
    train(pool, elastic("x2", 1, 4), "b:23")
    add(pool, ask("y1", 2, blocked="b"), ask("y2", 2))  # y1 keeps a
    assert resized(pool.decide(100.0)) == {"x2": "b:2 for y2"}
    assert not pool.decide(101.0).resizes
    pool.go_on("x2", 102.0)
    assert started(pool.decide(102.0)) == {"y2": "b:13"}


def test_in_fair_share_it_gives_until_shares_are_equal() -> None:
    pool = make_pool(FAIR, "a:8", *groups())
    train(pool, elastic("x1", 1, 8), "a:01234567")
    add(pool, *(ask(f"y{number}", 1, 2) for number in range(8)))
    for _ in range(9):
        pool.decide(1.0)
        if pool.running["x1"].becomes:
            pool.go_on("x1", 1.0)
    assert (pool.held(1), pool.held(2)) == (4, 4)


def test_in_fair_share_a_whole_agent_is_not_given_if_that_is_unfair() -> None:
    pool = make_pool(FAIR, "a:4 b:4 c:2", *groups())
    train(pool, elastic("x1", 1, 8), "a:0123 b:0123")
    hold(pool, ask("y1", 2, 2), "c:01")
    add(pool, ask("y2", 3, 2))
    assert not pool.decide(1.0).resizes  # 4 slots would be left, and the other had 5


def test_in_round_robin_it_gives_to_anyone() -> None:
    pool = make_pool(ROUND_ROBIN, "a:4", *groups())
    train(pool, elastic("x1", 1, 8), "a:0123")
    add(pool, ask("y1", 3, 2))
    assert resized(pool.decide(1.0)) == {"x1": "a:0 for y1"}


def test_it_gives_a_whole_agent_of_several() -> None:
    pool = make_pool(PRIORITY, "a:4 b:4", *groups())
    train(pool, elastic("x1", 1, 8), "a:0123 b:0123")
    add(pool, ask("y1", 1, 2))
    assert resized(pool.decide(1.0)) == {"x1": "b:0123 for y1"}


def test_it_gives_rather_than_others_are_preempted() -> None:
    pool = make_pool(PREEMPTIVE, "a:8", *groups(42, 10))
    train(pool, elastic("x1", 1, 8), "a:0123")
    hold(pool, ask("x2", 4), "a:4567", since=90.0)
    add(pool, ask("y1", 2, 2))
    decisions = pool.decide(100.0)
    assert (resized(decisions), preempted(decisions)) == ({"x1": "a:01 for y1"}, {})


def test_a_gang_that_goes_on_may_still_be_preempted() -> None:
    pool = make_pool(PREEMPTIVE, "a:4", *groups(42, 10))
    train(pool, elastic("x1", 1, 8), "a:0123")
    add(pool, ask("y1", 1, 2))
    assert resized(pool.decide(1.0)) == {"x1": "a:012 for y1"}
    add(pool, ask("y2", 3, 2))
    assert preempted(pool.decide(2.0)) == {"x1": "y2"}
    assert not pool.running["x1"].becomes


def test_one_that_is_resized_gives_more_before_it_goes_on() -> None:
    pool = make_pool(PRIORITY, "a:4", *groups())
    train(pool, elastic("x1", 1, 8), "a:0123")
    add(pool, ask("y1", 1, 2))
    pool.decide(1.0)
    add(pool, ask("y2", 1, 2))
    assert resized(pool.decide(2.0)) == {"x1": "a:01 for y2"}


def test_its_own_group_gets_what_max_slots_would_refuse() -> None:
    pool = make_pool(PRIORITY, "a:8", Group(id=1, max_slots=4))
    train(pool, elastic("x1", 1, 8), "a:0123")
    add(pool, elastic("x2", 1, 8), elastic("x3", 1, 8))
    assert resized(pool.decide(1.0)) == {"x1": "a:01 for x3"}
    assert pool.decide(1.0) == Decisions()
    pool.go_on("x1", 2.0)
    assert len(started(pool.decide(2.0))) == 2


@pytest.mark.parametrize("policy", list(Policy))
def test_invariants_hold_in_a_crowd_of_elastic_gangs(policy: Policy) -> None:
    seen = Counter[str]()
    for seed in range(5):
        walk(random.Random(seed), policy, seen)
    assert min(seen["gives"], seen["grows"]) > 4, seen


def walk(drawn: random.Random, policy: Policy, seen: Counter[str]) -> None:
    """Change a pool at random; the machine of the random histories checks each decision."""
    machine = type("Crowd", (Histories,), {"policy": policy})()
    fitting = drawn.choice(list(Fitting))
    machine.begin(preemption=drawn.random() < 0.5, fitting=fitting, mixed=drawn.random() < 0.3)
    pool: Pool = machine.pool
    for name, slots in zip("abcd", (8, 8, 4, 4), strict=True):
        pool.set_agent(AgentSlots(id=name, slots=tuple(range(slots)), freed_at=freed(slots, 0.0)))
    for group in (1, 2, 3, 4):
        most = drawn.choice((None, None, 6))
        pool.set_group(Group(id=group, priority=drawn.choice((10, 42)), max_slots=most))
    for _ in range(40):
        if drawn.random() < 0.4:
            least, more = drawn.choice((1, 1, 2, 4)), drawn.choice((0, 1, 7))
            machine.number += 1
            sizes = Sizes(least, least + more) if more else None
            group = drawn.randint(1, 4)
            pool.add(Request(id=f"r{machine.number}", group=group, slots=least, sizes=sizes))
        elif pool.running and drawn.random() < 0.4:
            end(pool, drawn.choice(sorted(pool.running)), machine.now)
        machine.now += drawn.choice((0.5, 12.0, 12.0))
        for name, gang in [*pool.running.items()]:
            if gang.becomes and drawn.random() < 0.7:
                pool.go_on(name, machine.now)
            elif gang.is_leaving:
                end(pool, name, machine.now)
            else:
                pool.hold(replace(gang, trains_since=gang.since))
        before = {name: gang.becomes for name, gang in pool.running.items()}
        machine.decide()
        machine.no_slot_is_held_twice()
        machine.it_comes_to_rest()
        for name, gang in pool.running.items():
            if gang.becomes != before.get(name, ()) and gang.becomes:
                seen["grows" if size_of(gang.becomes) > gang.request.slots else "gives"] += 1
    settle(pool, machine.now)


def settle(pool: Pool, now: float) -> None:
    """Let a pool in which nothing comes or ends go on; its gangs stop changing their sizes."""
    for _ in range(20):
        now += 2 * GROW_AFTER_S
        for name, gang in [*pool.running.items()]:
            if gang.is_leaving:
                end(pool, name, now)
            elif gang.becomes:
                pool.go_on(name, now - GROW_AFTER_S)
        for gang in [*pool.running.values()]:
            pool.hold(replace(gang, trains_since=gang.since))
        if not pool.decide(now).resizes:
            return
    raise AssertionError("sizes never come to rest")


def end(pool: Pool, name: str, now: float) -> None:
    gang: Running = pool.running[name]
    pool.remove(name)
    for agent_id in gang.agent_ids:
        agent = pool.agents[agent_id]
        at = {**agent.freed_at, **dict.fromkeys(gang.slots_on(agent_id), now)}
        pool.set_agent(replace(agent, freed_at=at))


def freed(slots: int, at: float) -> dict[int, float]:
    return dict.fromkeys(range(slots), at)


def test_pools_without_elastic_gangs_are_not_looked_at_again() -> None:
    pool = make_pool(PoolRules(), "a:4")
    add(pool, ask("x1", 2))
    assert pool.decide(0.0).look_again_at is None
