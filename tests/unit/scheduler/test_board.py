"""Where a gang is placed: on which agents and slots, and on how many agents."""

from __future__ import annotations

from dataclasses import replace

import pytest

from det_jupyter.scheduler.board import SlotBoard
from det_jupyter.scheduler.model import AgentSlots, Group, PoolRules
from tests.scheduler_pool import Pool
from tests.unit.scheduler.pool_world import (
    FAIR,
    MIXED,
    PRIORITY,
    WORST,
    add,
    ask,
    hold,
    make_pool,
    started,
)


@pytest.mark.parametrize(
    ("agents", "slots", "where"),
    [
        ("a:8", 8, "a:01234567"),
        ("a:8", 3, "a:012"),
        ("a:8 b:4", 4, "b:0123"),  # best fit: the large hole stays large
        ("b:4 a:4", 2, "a:01"),  # alike: the lowest id
        ("a:4 b:4", 5, None),  # no agent is large enough, and 5 is no multiple of 4
        ("a:4 b:4", 8, "a:0123 b:0123"),
        ("a:4 b:4 c:4", 12, "a:0123 b:0123 c:0123"),
        ("a:4 b:4", 12, None),  # not enough agents
        ("a:4 b:4", 6, None),
        ("a:2 b:2 c:4 d:4", 8, "c:0123 d:0123"),  # the largest size of which there are enough
        ("a:2 b:2 c:4", 4, "c:0123"),  # one is large enough
        ("a:2 b:2 c:3", 4, "a:01 b:01"),  # 3 does not divide 4
        ("a:4:cuda b:4:cpu", 8, None),  # kinds are never mixed
        ("a:4:cuda b:4:cpu c:4:cuda", 8, "a:0123 c:0123"),
        ("", 1, None),
        ("a:0", 1, None),
        ("a:0", 0, "a:"),
        ("b:4 a:4", 0, "a:"),
    ],
)
def test_a_gang_fits_here(agents: str, slots: int, where: str | None) -> None:
    pool = make_pool(PRIORITY, agents)
    add(pool, ask("r", slots))
    assert started(pool.decide(0.0)).get("r") == where


@pytest.mark.parametrize(
    ("agents", "slots", "where"),
    [
        ("a:4 b:2 c:2", 8, "a:0123 b:01 c:01"),
        ("a:4 b:4 c:2", 10, "a:0123 b:0123 c:01"),
        ("a:8 b:4", 12, "a:01234567 b:0123"),
        ("a:4 b:4 c:8", 16, "c:01234567 a:0123 b:0123"),  # the largest agents first
        ("a:4 b:4", 8, "a:0123 b:0123"),
        ("a:4:cuda b:2:cpu c:2:cpu", 6, None),  # kinds are never mixed
        ("a:4:cuda b:2:cuda c:2:cpu d:4:cpu", 6, "d:0123 c:01"),  # kinds by name
        ("a:8 b:6 c:6", 12, "b:012345 c:012345"),  # equal sizes go before unequal ones
        ("a:8 b:6", 12, None),  # 8, and then 4 is missing: nothing else is tried
        ("a:3 b:2 c:2", 4, "b:01 c:01"),
    ],
)
def test_a_pool_may_let_gangs_span_agents_of_several_sizes(
    agents: str, slots: int, where: str | None
) -> None:
    pool = make_pool(MIXED, agents)
    add(pool, ask("r", slots))
    assert started(pool.decide(0.0)).get("r") == where


@pytest.mark.parametrize(
    ("rules", "where"),
    [(PRIORITY, "b:6"), (WORST, "a:34567")],
    ids=["best fit", "worst fit"],
)
def test_the_fullest_agent_is_taken_or_the_emptiest(rules: PoolRules, where: str) -> None:
    pool = make_pool(rules, "a:8 b:8")
    hold(pool, ask("x", 3), "a:012")
    hold(pool, ask("y", 6), "b:012345")
    add(pool, ask("r", 1 if rules is PRIORITY else 5))
    assert started(pool.decide(0.0)) == {"r": where}


def test_worst_fit_goes_by_the_share_that_is_free() -> None:
    pool = make_pool(WORST, "a:8 b:2")
    hold(pool, ask("x", 3), "a:012")
    add(pool, ask("r", 1))
    assert started(pool.decide(0.0)) == {"r": "b:0"}  # 2 of 2, not 5 of 8


def test_worst_fit_needs_enough_slots_all_the_same() -> None:
    pool = make_pool(WORST, "a:8 b:2")
    hold(pool, ask("x", 3), "a:012")
    add(pool, ask("r", 4))
    assert started(pool.decide(0.0)) == {"r": "a:3456"}


def test_a_gang_waits_for_the_agent_that_is_large_enough_for_it() -> None:
    """It does not take several small ones, though they are idle."""
    pool = make_pool(PRIORITY, "a:8 b:4 c:4")
    hold(pool, ask("x", 1), "a:0")
    add(pool, ask("r", 8))
    assert started(pool.decide(0.0)) == {}
    pool.remove("x")
    assert started(pool.decide(0.0)) == {"r": "a:01234567"}


def test_whole_agents_have_to_be_wholly_idle() -> None:
    pool = make_pool(PRIORITY, "a:4 b:4 c:4")
    hold(pool, ask("x", 1), "b:3")
    add(pool, ask("r", 8))
    assert started(pool.decide(0.0)) == {"r": "a:0123 c:0123"}


def test_an_agent_is_not_idle_while_a_gang_is_on_a_slot_that_is_given_out_no_more() -> None:
    pool = make_pool(PRIORITY, "a:4 b:4")
    hold(pool, ask("x", 1), "a:3")
    pool.set_agent(AgentSlots(id="a", slots=(0, 1, 2)))
    pool.set_agent(AgentSlots(id="b", slots=(0, 1, 2)))
    add(pool, ask("r", 6))
    assert started(pool.decide(0.0)) == {}
    pool.remove("x")
    assert started(pool.decide(0.0)) == {"r": "a:012 b:012"}


def test_a_gang_that_must_not_span_agents_does_not() -> None:
    pool = make_pool(PRIORITY, "a:4 b:4")
    add(pool, ask("r1", 8, single=True), ask("r2", 8))
    assert started(pool.decide(0.0)) == {"r2": "a:0123 b:0123"}


@pytest.mark.parametrize(
    ("agents", "slots", "blocked", "where"),
    [
        ("a:4 b:4", 2, "a", "b:01"),
        ("a:4 b:4", 2, "a b", None),
        ("a:4 b:4 c:4", 8, "a", "b:0123 c:0123"),
        ("a:4 b:4", 8, "b", None),
        ("a:8 b:4 c:4", 8, "a", "b:0123 c:0123"),  # the large one is no candidate
        ("a:4 b:4", 0, "a", "b:"),
        ("a:4", 0, "a", None),
    ],
)
def test_blocked_agents_are_no_candidates(
    agents: str, slots: int, blocked: str, where: str | None
) -> None:
    pool = make_pool(PRIORITY, agents)
    add(pool, ask("r", slots, blocked=blocked))
    assert started(pool.decide(0.0)).get("r") == where


def test_slots_that_are_given_out_no_more_are_not_given_out() -> None:
    pool = make_pool(PRIORITY, "a:4")
    pool.set_agent(AgentSlots(id="a", slots=(1, 3)))
    add(pool, ask("r1", 1), ask("r2", 2), ask("r3", 1))
    assert started(pool.decide(0.0)) == {"r1": "a:1"}
    pool.set_agent(AgentSlots(id="a", slots=(0, 1, 2, 3)))
    assert started(pool.decide(0.0)) == {"r2": "a:02", "r3": "a:3"}


@pytest.mark.parametrize(
    ("rules", "where"),
    [
        (PoolRules(max_aux_per_agent=2), ["a:", "a:", "b:", "b:", None]),
        (PoolRules(max_aux_per_agent=2, fitting=WORST.fitting), ["a:", "b:", "a:", "b:", None]),
        (PoolRules(max_aux_per_agent=0), [None] * 5),
    ],
    ids=["best fit", "worst fit", "none"],
)
def test_an_agent_carries_so_many_gangs_without_slots(
    rules: PoolRules, where: list[str | None]
) -> None:
    pool = make_pool(rules, "a:1 b:1")
    hold(pool, ask("x"), "a:0")  # takes no such place
    add(pool, *(ask(f"r{number}", 0) for number in range(5)))
    placed = started(pool.decide(0.0))
    assert [placed.get(f"r{number}") for number in range(5)] == where


def test_gangs_without_slots_start_only_where_the_agent_is_open() -> None:
    pool = make_pool(PRIORITY, "")
    pool.set_agent(AgentSlots(id="a", slots=(0,), is_open=False))
    pool.set_agent(AgentSlots(id="b", slots=()))
    add(pool, ask("r1", 0), ask("r2", 1))
    assert started(pool.decide(0.0)) == {"r1": "b:", "r2": "a:0"}


def test_gangs_without_slots_pass_by_those_who_wait_for_slots() -> None:
    pool = make_pool(PRIORITY, "a:2")
    hold(pool, ask("x", 2), "a:01")
    add(pool, ask("r1", 1), ask("r2", 0))
    assert started(pool.decide(0.0)) == {"r2": "a:"}


def test_an_agent_that_has_gone_gets_nobody_and_one_that_is_back_does() -> None:
    pool = make_pool(PRIORITY, "a:2")
    hold(pool, ask("x", 1), "a:0")
    pool.remove_agent("a")
    pool.remove("x")
    add(pool, ask("r", 2))
    assert started(pool.decide(0.0)) == {}
    pool.set_agent(AgentSlots(id="a", slots=(0, 1)))
    assert started(pool.decide(0.0)) == {"r": "a:01"}


def test_gangs_hold_slots_of_agents_that_are_not_there_yet() -> None:
    """After a restart of the master, gangs may be known before their agent is."""
    pool = Pool()
    pool.set_group(Group(id=1))
    hold(pool, ask("x", 1), "a:1")
    pool.set_agent(AgentSlots(id="a", slots=(0, 1)))
    assert pool.free("a") == (0,)


@pytest.mark.parametrize(
    ("slots", "single", "where"),
    [(1, False, "a:0"), (2, False, "a:0 b:0"), (3, False, "a:0 b:0 c:0"), (2, True, None)],
)
def test_agents_of_one_slot_are_taken_together(
    slots: int, single: bool, where: str | None
) -> None:
    pool = make_pool(PRIORITY, "a:1 b:1 c:1")
    add(pool, ask("r", slots, single=single))
    assert started(pool.decide(0.0)) == ({} if where is None else {"r": where})


def test_a_gang_that_leaves_gives_its_slots_back_on_each_agent() -> None:
    for rules in (PRIORITY, FAIR):
        pool = make_pool(rules, "a:4 b:2 c:2")
        hold(pool, ask("x1", 4), "a:01 b:01")
        hold(pool, ask("x2", 1), "a:2")
        board = SlotBoard(pool.snapshot())
        assert board.leave("x1") == {"a": 2, "b": 2}
        assert board.leave("x2") == {"a": 1}


@pytest.mark.parametrize(
    ("agents", "cuts", "slots", "where"),
    [
        ("a:2 b:2", "ab", 4, None),
        ("a:2 b:2", "ab", 2, "a:01"),  # one agent is enough
        ("a:2 b:2 c:2", "ab", 4, "a:01 c:01"),
        ("a:2 b:2 c:2", "ab ac", 4, "b:01 c:01"),  # a is cut off from the most
        ("a:2 b:2 c:2", "ab ac bc", 4, None),
        ("a:2 b:2 c:2 d:2", "ab cd", 4, "a:01 c:01"),
        ("a:2 b:2 c:2", "ax", 6, "a:01 b:01 c:01"),
        ("a:2 b:4 c:2", "ab", 6, "b:0123 c:01"),  # of several sizes
        ("a:2 b:4", "ab", 6, None),
    ],
)
def test_a_gang_is_not_on_agents_that_cannot_reach_each_other(
    agents: str, cuts: str, slots: int, where: str | None
) -> None:
    pool = make_pool(MIXED, agents)
    for one, other in [tuple(pair) for pair in cuts.split()]:
        for agent_id, cut in ((one, other), (other, one)):
            if agent := pool.agents.get(agent_id):
                pool.set_agent(replace(agent, cut_from=agent.cut_from | {cut}))
    add(pool, ask("r", slots))
    assert started(pool.decide(0.0)).get("r") == where


def test_no_gang_is_preempted_for_agents_that_cannot_reach_each_other() -> None:
    for rules in (replace(PRIORITY, preemption=True), replace(FAIR, preemption=True)):
        pool = make_pool(rules, "a:2 b:2")
        add(pool, ask("first", 2, group=1), ask("second", 2, group=1))
        pool.decide(0.0)
        for agent_id, cut in ("ab", "ba"):
            pool.set_agent(replace(pool.agents[agent_id], cut_from=frozenset(cut)))
        pool.set_group(Group(id=2, priority=1, weight=9.0))
        add(pool, ask("large", 4, group=2))
        assert pool.decide(1.0).preemptions == ()
