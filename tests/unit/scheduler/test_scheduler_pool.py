"""What a pool answers about itself between its passes."""

from __future__ import annotations

from det_jupyter.scheduler.model import Group
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


def test_a_pool_tells_who_is_where_and_what_is_free() -> None:
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


def test_who_leaves_holds_its_slots_until_it_is_removed() -> None:
    pool = make_pool(PRIORITY, "a:2")
    hold(pool, ask("x", 2), "a:01")
    pool.leave("x")
    assert pool.running["x"].is_leaving
    assert (pool.held(1), pool.free("a")) == (2, ())
    pool.remove("x")
    assert (pool.held(1), pool.free("a")) == (0, (0, 1))


def test_gangs_on_an_agent_that_has_gone_are_still_told() -> None:
    pool = make_pool(PRIORITY, "a:2")
    hold(pool, ask("x", 1), "a:0")
    pool.remove_agent("a")
    assert [running.request.id for running in pool.on_agent("a")] == ["x"]
    assert (pool.free("a"), pool.on_agent("z"), pool.free("z")) == ((), [], ())


def test_one_that_starts_waits_no_more() -> None:
    pool = make_pool(PRIORITY, "a:1")
    add(pool, ask("r1"), ask("r2"))
    assert pool.num_waiting == 2
    pool.decide(3.0)
    assert (pool.num_waiting, pool.is_waiting("r1"), pool.is_waiting("r2")) == (1, False, True)
    assert pool.running["r1"].since == 3.0
    assert pool.position("r2") == 0


def test_one_that_is_taken_back_waits_no_more() -> None:
    pool = make_pool(PRIORITY, "a:1")
    hold(pool, ask("x"), "a:0")
    add(pool, ask("r1"), ask("r2"))
    pool.decide(0.0)
    assert reservations(pool) == {"r1": ("a",)}
    pool.remove("r1")
    assert (reservations(pool), [request.id for request in pool.waiting()]) == ({}, ["r2"])
    pool.remove("x")
    assert started(pool.decide(1.0)) == {"r2": "a:0"}


def test_a_group_without_requests_can_be_forgotten() -> None:
    for rules in (PRIORITY, FAIR):
        pool = make_pool(rules, "a:1", Group(id=1), Group(id=2))
        add(pool, ask("r1"), ask("s1", group=2))
        pool.decide(0.0)
        pool.remove("r1")
        pool.remove_group(1)
        assert [*pool.groups] == [2]
        assert started(pool.decide(1.0)) == {"s1": "a:0"}
        assert pool.running.keys() == rebuilt(pool).running.keys() == {"s1"}


def test_the_order_of_shares_is_told_anew_after_every_change() -> None:
    pool = make_pool(FAIR, "", Group(id=1), Group(id=2, position=1.0))
    add(pool, ask("r1"), ask("r2"), ask("s1", group=2))
    assert [pool.position(name) for name in ("r1", "s1", "r2")] == [0, 1, 2]
    pool.set_group(Group(id=1, weight=4.0))
    add(pool, ask("r3"))
    assert [pool.position(name) for name in ("r1", "s1", "r2", "r3")] == [0, 1, 2, 3]
    hold(pool, ask("x", group=2), "z:0")
    assert [pool.position(name) for name in ("r1", "r2", "r3", "s1")] == [0, 1, 2, 3]
