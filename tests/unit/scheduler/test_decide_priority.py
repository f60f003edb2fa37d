"""By priority: which requests start, which are skipped, and which gangs have to leave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from det_jupyter.scheduler.model import Group
from tests.scheduler_pool import Pool
from tests.unit.scheduler.pool_world import (
    PREEMPTIVE,
    PRIORITY,
    add,
    ask,
    hold,
    make_pool,
    preempted,
    reservations,
    started,
)

URGENT, USUAL, IDLE = (
    Group(id=1, priority=10, position=1.0),
    Group(id=2, priority=42, position=2.0),
    Group(id=3, priority=90, position=3.0),
)
GROUPS = (URGENT, USUAL, IDLE)
DEPTH = 32
DEEP = replace(PRIORITY, reservation_depth=DEPTH)


def ids(pool: Pool) -> list[str]:
    return [request.id for request in pool.waiting()]


def test_the_order_is_priority_then_position_then_experiment_then_number() -> None:
    pool = make_pool(
        PRIORITY,
        "",
        Group(id=1, priority=50, position=1.0),
        Group(id=2, priority=42, position=9.0),
        Group(id=3, priority=42, position=3.0),
        Group(id=4, priority=42, position=3.0),
    )
    add(pool, ask("a7", group=1), ask("b1", group=2), ask("d1", group=4), ask("c2", group=3))
    add(pool, ask("c1", group=3), ask("e1", group=3))
    assert ids(pool) == ["c1", "e1", "c2", "d1", "b1", "a7"]
    assert [pool.position(name) for name in ("c1", "d1", "a7")] == [0, 3, 5]
    assert pool.waiting(2) == [ask("c1", group=3), ask("e1", group=3)]


def test_an_experiment_moves_with_all_its_trials() -> None:
    pool = make_pool(PRIORITY, "", *(Group(id=n, position=float(n)) for n in (1, 2, 3)))
    add(pool, *(ask(f"{'xabc'[n]}{m}", group=n) for n in (1, 2, 3) for m in (1, 2)))
    pool.set_group(Group(id=3, position=1.5))
    assert ids(pool) == ["a1", "a2", "c1", "c2", "b1", "b2"]
    pool.set_group(Group(id=1, priority=43, position=1.0))
    assert ids(pool) == ["c1", "c2", "b1", "b2", "a1", "a2"]
    assert pool.position("a2") == 5


def test_the_first_in_order_gets_the_slot() -> None:
    pool = make_pool(PRIORITY, "a:1", *GROUPS)
    add(pool, ask("low", group=3), ask("mid", group=2), ask("top", group=1))
    assert started(pool.decide(0.0)) == {"top": "a:0"}


def test_a_smaller_one_passes_by_where_the_larger_one_does_not_wait() -> None:
    pool = make_pool(DEEP, "a:4 b:4", *GROUPS)
    hold(pool, ask("x", 2, 2), "a:01")
    hold(pool, ask("y", 1, 2), "b:0")
    add(pool, ask("large", 4, 1), ask("small1", 1, 3), ask("small2", 2, 3), ask("small3", 1, 3))
    # b is nearer to having four free: it is kept. Then small2 waits at a, and small3 behind it.
    assert started(pool.decide(0.0)) == {"small1": "a:2"}
    assert reservations(pool) == {"large": ("b",), "small2": ("a",)}
    pool.remove("y")
    assert started(pool.decide(0.0)) == {"large": "b:0123"}


def test_nobody_starts_where_one_ahead_waits() -> None:
    pool = make_pool(PRIORITY, "a:4", *GROUPS)
    hold(pool, ask("x", 1, 2), "a:0")
    add(pool, ask("large", 4, 1), ask("small", 1, 3))
    assert started(pool.decide(0.0)) == {}
    pool.remove("x")
    assert started(pool.decide(0.0)) == {"large": "a:0123"}


def test_a_stream_of_small_ones_does_not_starve_a_large_one() -> None:
    pool = make_pool(PRIORITY, "a:4 b:4", *GROUPS)
    add(pool, *(ask(f"s{number}", 1, 2) for number in range(8)))
    pool.decide(0.0)
    add(pool, ask("large", 4, 2))
    ends = 0
    for number in range(8, 100):
        add(pool, ask(f"s{number}", 1, 2))
        pool.remove(min(pool.running, key=lambda name: pool.running[name].since))
        ends += 1
        if "large" in started(pool.decide(float(number))):
            break
    assert ends <= 8


def test_a_large_gang_keeps_whole_agents_until_they_are_idle() -> None:
    pool = make_pool(DEEP, "a:4 b:4 c:4", *GROUPS)
    for name in "abc":
        hold(pool, ask(f"x{name}", 3, 2), f"{name}:012")
    add(pool, ask("large", 8, 1), ask("small1", 1, 3), ask("small2", 1, 3))
    assert started(pool.decide(0.0)) == {"small1": "c:3"}
    assert reservations(pool) == {"large": ("a", "b"), "small2": ("c",)}
    pool.remove("xb")
    assert started(pool.decide(0.0)) == {}
    pool.remove("xa")
    assert started(pool.decide(0.0)) == {"large": "a:0123 b:0123"}


def test_what_can_never_run_keeps_nothing() -> None:
    pool = make_pool(PRIORITY, "a:4 b:4", *GROUPS)
    hold(pool, ask("x", 1, 2), "a:0")
    add(pool, ask("never1", 12, 1), ask("never2", 5, 1, single=True), ask("small", 4, 3))
    assert started(pool.decide(0.0)) == {"small": "b:0123"}
    assert reservations(pool) == {}


def test_only_the_first_so_many_keep_agents() -> None:
    """Those behind use what is not kept."""
    names = [f"n{number:02}" for number in range(DEPTH + 1)]
    pool = make_pool(DEEP, " ".join(f"{name}:2" for name in names), *GROUPS)
    for number, name in enumerate(names):
        hold(pool, ask(f"x{number}", 1, 2), f"{name}:0")
    add(pool, *(ask(f"r{number}", 2, 1) for number in range(DEPTH + 8)))
    add(pool, ask("small1", 1, 3), ask("small2", 1, 3))
    assert started(pool.decide(0.0)) == {"small1": f"{names[-1]}:1"}
    assert len(reservations(pool)) == DEPTH


def test_with_a_depth_of_one_only_the_next_in_line_keeps_agents() -> None:
    pool = make_pool(replace(PRIORITY, reservation_depth=1), "a:4 b:4", *GROUPS)
    hold(pool, ask("x", 1, 2), "a:0")
    hold(pool, ask("y", 2, 2), "b:01")
    add(pool, ask("first", 4, 1), ask("second", 4, 1), ask("small", 2, 2))
    assert started(pool.decide(0.0)) == {"small": "b:23"}
    assert reservations(pool) == {"first": ("a",)}


def test_max_slots_is_never_exceeded_and_those_who_are_capped_keep_nothing() -> None:
    capped = Group(id=1, priority=1, max_slots=3)
    pool = make_pool(PRIORITY, "a:8", capped, USUAL)
    add(pool, *(ask(f"r{number}", 2) for number in range(3)), ask("other", 6, 2))
    assert started(pool.decide(0.0)) == {"r0": "a:01", "other": "a:234567"}
    assert ids(pool) == ["r1", "r2"]
    assert reservations(pool) == {}
    pool.set_group(Group(id=1, priority=1, max_slots=4))
    pool.remove("other")
    assert started(pool.decide(0.0)) == {"r1": "a:23"}
    assert pool.held(1) == 4


def test_a_capped_experiment_has_no_more_leave_than_it_may_use() -> None:
    capped = Group(id=1, priority=1, max_slots=2)
    pool = make_pool(PREEMPTIVE, "a:4", capped, USUAL)
    for slot in range(4):
        hold(pool, ask(f"x{slot}", 1, 2), f"a:{slot}", since=float(slot))
    add(pool, *(ask(f"r{number}") for number in range(4)))
    assert preempted(pool.decide(9.0)) == {"x3": "r0", "x2": "r1"}


def test_without_preemption_nobody_is_asked_to_leave() -> None:
    pool = make_pool(PRIORITY, "a:2", *GROUPS)
    hold(pool, ask("x", 2, 3), "a:01")
    add(pool, ask("top", 1, 1))
    assert preempted(pool.decide(0.0)) == {}


@pytest.mark.parametrize(
    ("holder", "asker", "leaves"),
    [(3, 1, True), (2, 1, True), (3, 2, True), (1, 1, False), (2, 2, False), (1, 2, False)],
)
def test_only_the_strictly_less_urgent_have_to_leave(
    holder: int, asker: int, leaves: bool
) -> None:
    pool = make_pool(PREEMPTIVE, "a:1", *GROUPS)
    hold(pool, ask("x", 1, holder), "a:0")
    add(pool, ask("r", 1, asker))
    assert preempted(pool.decide(0.0)) == ({"x": "r"} if leaves else {})


def test_it_is_asked_to_leave_once_and_its_slots_are_kept_for_who_asked() -> None:
    pool = make_pool(PREEMPTIVE, "a:2", *GROUPS)
    hold(pool, ask("x1", 1, 3), "a:0")
    hold(pool, ask("x2", 1, 3), "a:1")
    add(pool, ask("top", 2, 1), ask("low", 1, 3))
    assert preempted(pool.decide(5.0)) == {"x1": "top", "x2": "top"}
    assert reservations(pool)["top"] == ("a",)
    pool.remove("x1")
    add(pool, ask("again1", 1, 3))
    decisions = pool.decide(6.0)
    assert (started(decisions), preempted(decisions)) == ({}, {})
    pool.remove("x2")
    add(pool, ask("again2", 1, 3))
    assert started(pool.decide(7.0)) == {"top": "a:01"}
    pool.remove("top")
    assert started(pool.decide(8.0)) == {"low": "a:0", "again1": "a:1"}


def test_nobody_leaves_where_that_makes_no_room() -> None:
    pool = make_pool(PREEMPTIVE, "a:4 b:4", *GROUPS)
    hold(pool, ask("keep", 1, 1), "a:0")
    hold(pool, ask("x", 3, 3), "a:123")
    hold(pool, ask("stay", 1, 1), "b:0")
    hold(pool, ask("y", 3, 3), "b:123")
    add(pool, ask("large", 4, 1), ask("huge", 8, 1))
    assert preempted(pool.decide(9.0)) == {}


def test_what_leaves_already_is_counted() -> None:
    pool = make_pool(PREEMPTIVE, "a:2 b:2", *GROUPS)
    hold(pool, ask("x1", 1, 3), "a:0")
    hold(pool, ask("x2", 1, 3), "a:1")
    hold(pool, ask("y", 2, 3), "b:01")
    pool.leave("x1")
    add(pool, ask("r1", 1, 1), ask("r2", 1, 1))
    assert preempted(pool.decide(5.0)) == {"x2": "r2"}
    assert reservations(pool) == {"r1": ("a",), "r2": ("a",)}


def test_nobody_else_is_asked_when_one_ahead_could_use_the_room_that_was_made() -> None:
    """r1 fits where x leaves and, more tightly, where y was asked to leave for r3."""
    pool = make_pool(replace(PREEMPTIVE, reservation_depth=DEPTH), "a:4 b:4 c:4", *GROUPS)
    hold(pool, ask("x", 4, 1), "a:0123")
    hold(pool, ask("y", 3, 3), "b:012", since=9.0)
    hold(pool, ask("stay", 1, 1), "b:3")
    hold(pool, ask("z", 3, 3), "c:012")
    hold(pool, ask("keep", 1, 1), "c:3")
    pool.leave("x")
    add(pool, ask("r1", 2, 1), ask("r2", 2, 1), ask("r3", 3, 1))
    assert preempted(pool.decide(10.0)) == {"y": "r3"}
    assert preempted(pool.decide(11.0)) == {}
    assert reservations(pool) == {"r1": ("a",), "r2": ("a",), "r3": ("b",)}


@pytest.mark.parametrize(
    ("gangs", "slots", "leaves"),
    [
        # name: slots, where, since. It is 100 s. Least work: slots times age.
        ({"old": (1, "a:0", 0), "new": (1, "a:1", 90)}, 1, {"new"}),
        ({"wide": (2, "a:01", 60), "old": (1, "a:2", 30)}, 1, {"old"}),  # 80 and 70
        ({"wide": (2, "a:01", 60), "old": (1, "a:2", 10)}, 1, {"wide"}),  # 80 and 90
        ({"x": (1, "a:0", 90), "y": (1, "a:1", 90), "z": (2, "a:23", 95)}, 2, {"z"}),
        ({"x": (1, "a:0", 99), "y": (1, "a:1", 98), "z": (2, "a:23", 95)}, 2, {"x", "y"}),
        ({"x": (3, "a:012", 99), "y": (1, "a:3", 0)}, 4, {"x", "y"}),
        ({"x": (2, "a:01", 90), "y": (2, "b:01", 91)}, 2, {"y"}),
        ({"x": (4, "a:0123", 99), "y": (1, "b:0", 0), "z": (3, "b:123", 98)}, 1, {"x"}),
        # no work yet: the fewest gangs of an agent
        ({"x": (1, "a:0", 100), "y": (1, "a:1", 100), "z": (2, "a:23", 100)}, 2, {"z"}),
        # less than a second: x and y have done 0.1 + 3 · 0.9, z 4 · 0.2
        (
            {"x": (1, "a:0", 99.9), "y": (3, "a:123", 99.1), "z": (4, "b:0123", 99.8)},
            4,
            {"z"},
        ),
    ],
)
def test_least_work_is_lost(
    gangs: dict[str, tuple[int, str, float]], slots: int, leaves: set[str]
) -> None:
    pool = make_pool(PREEMPTIVE, "a:4 b:4", *GROUPS)
    for agent in "ab":
        held = "".join(where[2:] for _, where, _ in gangs.values() if where[0] == agent)
        rest = "".join(slot for slot in "0123" if slot not in held)
        if rest:
            hold(pool, ask(f"stay{agent}", len(rest), 1), f"{agent}:{rest}")
    for name, (num, where, since) in gangs.items():
        hold(pool, ask(name, num, 3), where, since=since)
    add(pool, ask("r", slots, 1))
    assert set(preempted(pool.decide(100.0))) == leaves


def test_whole_agents_are_cleared_where_that_costs_least() -> None:
    pool = make_pool(PREEMPTIVE, "a:2 b:2 c:2 d:2", *GROUPS)
    hold(pool, ask("a", 1, 3), "a:0", since=10.0)
    hold(pool, ask("b", 2, 3), "b:01", since=80.0)
    hold(pool, ask("cd", 4, 3), "c:01 d:01", since=95.0)
    add(pool, ask("r", 4, 1))
    # c and d cost 4 · 5 = 20, a and b 90 + 2 · 20.
    assert preempted(pool.decide(100.0)) == {"cd": "r"}
    pool.remove("cd")
    assert started(pool.decide(101.0)) == {"r": "c:01 d:01"}


def test_idle_agents_are_used_before_others_are_cleared() -> None:
    pool = make_pool(PREEMPTIVE, "a:2 b:2 c:2", *GROUPS)
    hold(pool, ask("x", 1, 3), "a:0", since=0.0)
    hold(pool, ask("y", 1, 3), "b:0", since=50.0)
    add(pool, ask("r", 4, 1))
    assert preempted(pool.decide(100.0)) == {"y": "r"}
    assert reservations(pool) == {"r": ("b", "c")}


def test_one_preempted_starts_again_elsewhere_if_it_can() -> None:
    pool = make_pool(PREEMPTIVE, "a:2 b:1", *GROUPS)
    hold(pool, ask("x", 1, 3), "a:0")
    hold(pool, ask("stay", 1, 1), "b:0")
    add(pool, ask("top", 2, 1))
    pool.decide(1.0)
    pool.remove("x")
    pool.remove("stay")
    add(pool, ask("again", 1, 3))
    assert started(pool.decide(2.0)) == {"top": "a:01", "again": "b:0"}


def test_a_less_urgent_one_may_stand_in_until_it_is_in_the_way() -> None:
    pool = make_pool(PREEMPTIVE, "a:4", *GROUPS)
    hold(pool, ask("x", 2, 1), "a:01")
    add(pool, ask("large", 4, 1), ask("same", 1, 1), ask("low", 2, 3))
    assert started(pool.decide(0.0)) == {"low": "a:23"}
    assert pool.running["low"].is_backfill
    pool.remove("x")
    assert preempted(pool.decide(1.0)) == {"low": "large"}
    pool.remove("low")
    add(pool, ask("again", 2, 3))
    assert started(pool.decide(2.0)) == {"large": "a:0123"}


def test_nobody_stands_in_where_room_is_in_sight() -> None:
    pool = make_pool(PREEMPTIVE, "a:4", *GROUPS)
    hold(pool, ask("x", 2, 1), "a:01")
    pool.leave("x")
    add(pool, ask("large", 4, 1), ask("low", 2, 3))
    assert started(pool.decide(0.0)) == {}


def test_who_fits_elsewhere_does_not_stand_in() -> None:
    pool = make_pool(PREEMPTIVE, "a:4 b:4", *GROUPS)
    hold(pool, ask("x", 2, 1), "a:01")
    hold(pool, ask("y", 3, 1), "b:012")
    add(pool, ask("large", 4, 1), ask("low", 1, 3))
    assert started(pool.decide(0.0)) == {"low": "b:3"}
    assert not pool.running["low"].is_backfill


def test_less_urgent_ones_stand_in_behind_many_that_may_not() -> None:
    pool = make_pool(PREEMPTIVE, "a:4", *GROUPS)
    hold(pool, ask("x", 2, 1), "a:01")
    add(pool, ask("large", 4, 1), *(ask(f"r{number}", 2, 1) for number in range(100)))
    add(pool, ask("low", 2, 3))
    assert started(pool.decide(0.0)) == {"low": "a:23"}


def test_one_who_stands_in_does_not_turn_those_ahead_to_other_agents() -> None:
    """Else the agents that they turn away from and back to would be cleared again and again."""
    pool = make_pool(PREEMPTIVE, "a:4 b:4 c:4", *GROUPS)
    hold(pool, ask("stay1", 1, 1), "a:0")
    hold(pool, ask("stay2", 1, 1), "b:0")
    hold(pool, ask("stay3", 3, 1), "c:012")
    add(pool, ask("large", 8, 1), *(ask(f"low{number}", 3, 3) for number in range(2)))
    decisions = pool.decide(0.0)
    assert reservations(pool)["large"] == ("a", "b")
    assert started(decisions) == {"low0": "a:123", "low1": "b:123"}
    add(pool, ask("usual", 3, 2))
    for step in range(1, 10):
        assert preempted(pool.decide(float(step))) == {}
        assert reservations(pool)["large"] == ("a", "b")


def test_a_new_priority_counts_for_those_who_run_too() -> None:
    pool = make_pool(PREEMPTIVE, "a:1", *GROUPS)
    hold(pool, ask("x", 1, 2), "a:0")
    add(pool, ask("r", 1, 2 + 1))
    assert preempted(pool.decide(0.0)) == {}
    pool.set_group(Group(id=3, priority=5))
    assert preempted(pool.decide(1.0)) == {"x": "r"}
    pool.remove("x")
    pool.decide(2.0)
    pool.set_group(Group(id=3, priority=80))
    add(pool, ask("x2", 1, 2))
    assert preempted(pool.decide(3.0)) == {"r": "x2"}
