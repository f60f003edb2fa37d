"""Changes and profiles of a trial: which orders its ranks get, and which are repeated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from det_jupyter.contract.messages import (
    Activate,
    Change,
    ChangeOrder,
    ChangeTrial,
    Order,
    PassOrders,
    Pause,
    Profile,
    ProfileOrder,
    ProfileTrial,
    StartGang,
    TraceView,
)
from det_jupyter.contract.run.journal import ChangeMade, TraceSaved
from det_jupyter.contract.values.lengths import Length
from det_jupyter.errors import ConfigError, Conflict
from det_jupyter.master.machine.machine import ToAgent
from det_jupyter.master.machine.model.events import ContinueRequested, RecordArrived
from tests.unit.master.machine_invariants import check_machine
from tests.unit.master.machine_world import (
    World,
    completed,
    ended,
    exited,
    registered,
    running,
    saved,
    submitted,
)

HALF = Change(lr_factor=0.5)


@pytest.fixture
def world() -> Iterator[World]:
    """Return a machine with a running trial of two ranks."""
    world = World()
    world.tell(registered(slots=2), submitted(), *running())
    yield world
    check_machine(world.machine)


def change(wanted: Change = HALF) -> ChangeTrial:
    return ChangeTrial.built_from(wanted, trial_id=1)


def profile(**wanted: Any) -> ProfileTrial:
    return ProfileTrial(trial_id=1, **wanted)


def made(order_id: int, steps: int, **said: Any) -> RecordArrived:
    record = ChangeMade(at=60.0, order_id=order_id, steps_completed=steps, **said)
    return RecordArrived(allocation_id="1.1.1", rank=0, record=record)


def traced(order_id: int, rank: int, **said: Any) -> RecordArrived:
    record = TraceSaved(at=60.0, order_id=order_id, first=7, steps=3, **said)
    return RecordArrived(allocation_id="1.1.1", rank=rank, record=record)


def orders(world: World, *expected: Order) -> ToAgent:
    return world.order(PassOrders(allocation_id="1.1.1", orders=list(expected)))


def planned(commands: Any) -> list[Order]:
    """Return the orders in the plan of a run."""
    told = [command.command for command in commands if isinstance(command, ToAgent)]
    (start,) = [command for command in told if isinstance(command, StartGang)]
    return list(start.plan.orders)


def test_orders_are_passed_until_they_are_answered(world: World) -> None:
    commands = world.tell(change())
    first = world.machine.state.seq
    assert commands == [orders(world, ChangeOrder(id=first, change=HALF))]
    commands = world.tell(profile(steps=3, ranks=[1, 0, 1]))
    second = world.machine.state.seq
    asked = ProfileOrder(id=second, profile=Profile(steps=3, ranks=[0, 1]))
    assert commands == [orders(world, ChangeOrder(id=first, change=HALF), asked)]
    world.tell(made(first, 40, text="lr 0.1 → 0.05"), traced(second, 1, path="/a", size_bytes=5))
    (noted,) = world.trial().changes
    assert (noted.steps_completed, noted.text, noted.error) == (40, "lr 0.1 → 0.05", "")
    # An agent that registers again may have missed orders that are not answered.
    assert world.tell(registered(slots=2, runs={"1.1.1": True})) == [orders(world, asked)]
    world.tell(traced(second, 0, error="no Kineto"), traced(second, 0, path="/again"))
    assert world.trial().profiles[0].traces == [
        TraceView(rank=0, first=7, steps=3, error="no Kineto"),
        TraceView(rank=1, first=7, steps=3, path="/a", size_bytes=5),
    ]
    assert world.tell(registered(slots=2, runs={"1.1.1": True})) == []


def test_a_later_run_repeats_changes_where_they_were_made(world: World) -> None:
    commands = []
    for wanted in (HALF, Change(lr=0.5), Change(min_validation_period=Length("epochs", 1))):
        commands = world.tell(change(wanted))
    ids = [c.id for c in world.trial().changes]
    world.tell(made(ids[0], 40), made(ids[1], 40, error="several optimizers"), saved(50))
    world.tell(Pause(experiment_id=1), ended("preempted", 60), exited())
    commands = world.tell(Activate(experiment_id=1))
    assert planned(commands) == [
        ChangeOrder(id=ids[0], change=HALF, steps_completed=40),
        ChangeOrder(id=ids[2], change=Change(min_validation_period=Length("epochs", 1))),
    ]


def test_a_trial_that_waits_takes_a_change_along_when_it_starts() -> None:
    world = World()
    world.tell(submitted())
    assert world.tell(change()) == []
    assert planned(world.tell(registered(slots=2))) == [ChangeOrder(id=2, change=HALF)]


def test_a_profile_that_the_run_did_not_write_is_over_with_it(world: World) -> None:
    world.tell(profile(ranks=[0, 1]), traced(world.machine.state.seq + 1, 1, path="/a"))
    world.tell(*completed(), exited())
    none, written = world.trial().profiles[0].traces
    assert none.error == "the run ended before the trace was written"
    assert written.path == "/a"


def test_a_new_configuration_ends_changes_of_the_validation_period(world: World) -> None:
    both = Change(lr=0.5, min_validation_period=Length("batches", 5))
    world.tell(change(both), change(Change(min_validation_period=Length("batches", 7))))
    world.tell(change(Change(lr=0.25)))
    first, second, _ = [noted.id for noted in world.trial().changes]
    world.tell(made(first, 40), made(second, 50), saved(100), *completed(), exited())
    config = dict(world.experiment().config)
    config["searcher"] = config["searcher"] | {"max_length": {"batches": 200}}
    config["min_validation_period"] = {"batches": 20}
    again = world.tell(ContinueRequested(experiment_id=1, config=config))
    assert planned(again) == [ChangeOrder(id=first, change=Change(lr=0.5), steps_completed=40)]
    assert world.trial().changes[2].error == "the trial ended before it"


def test_what_cannot_be_ordered_is_refused(world: World) -> None:
    with pytest.raises(ConfigError, match=r"ranks: got 2, but trial 1 has ranks 0 to 1"):
        world.tell(profile(ranks=[0, 2]))
    world.tell(profile())
    with pytest.raises(Conflict, match=r"trial 1 is being profiled already"):
        world.tell(profile())
    world.tell(Pause(experiment_id=1))
    with pytest.raises(Conflict, match=r"trial 1 cannot be profiled: it is pausing"):
        world.tell(profile())
    with pytest.raises(Conflict, match=r"trial 1 is pausing and cannot be changed; only one that"):
        world.tell(change())


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "nothing to change"),
        ({"lr": 0.1, "lr_factor": 2.0}, "got lr and lr_factor, expected one"),
        ({"optimizer": 0}, "got optimizer alone"),
        ({"lr": -0.1}, "greater than 0"),
        ({"lr_factor": float("inf")}, "finite"),
    ],
)
def test_a_change_says_what_and_by_how_much(given: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Change(**given)
