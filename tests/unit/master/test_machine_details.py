"""Small rules of the machine, each asked for exactly."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.messages import (
    Cancel,
    CloseRun,
    Delete,
    DropCheckpoints,
    Kill,
    KillGang,
    KillTrial,
    State,
    SwitchSlots,
)
from det_jupyter.errors import Conflict
from det_jupyter.master.machine.model.events import NewsSetAside
from det_jupyter.master.machine.rules.configurations import unknown_template_message
from det_jupyter.master.machine.rules.continuing import changed_values
from tests.unit.master.machine_world import (
    World,
    completed,
    exited,
    registered,
    running,
    saved,
    submitted,
)


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, {"b": 3}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": 1, "y": 3}}, {"a": {"y": 3}}),
        ({"a": {"x": 1}}, {"a": {"x": 1}}, {}),
        ({"a": {"x": 1}}, {"a": 5}, {"a": 5}),
        ({"a": 5}, {"a": {"x": 1}}, {"a": {"x": 1}}),
        ({}, {"a": None, "b": {"x": 1}}, {"b": {"x": 1}}),
    ],
)
def test_what_of_a_configuration_is_not_as_it_was(old: Any, new: Any, changed: Any) -> None:
    assert changed_values(old, new) == changed


@pytest.mark.parametrize(("num", "end"), [(10, "t09"), (11, "t09, ...")])
def test_as_many_templates_as_there_is_room_for_are_named(num: int, end: str) -> None:
    names = [f"t{number:02}" for number in range(num)]
    assert unknown_template_message("zebra", names).endswith(f"t08, {end}")


def test_a_run_uses_its_slots_as_long_as_it_takes() -> None:
    world = World()
    world.tell(registered(), submitted(slots=2), *running())
    began = world.allocation().started_at
    assert began is not None
    world.now = began + 9.0
    world.tell(*completed(), exited(codes={0: 0, 1: 0}))
    assert world.trial().slot_seconds == 2 * (world.now - began)


def test_a_clock_that_is_set_back_uses_no_slots() -> None:
    world = World()
    world.tell(registered(), submitted(slots=2), *running())
    began = world.allocation().started_at
    assert began is not None
    world.now = began - 100.0
    world.tell(Kill(experiment_id=1), exited())
    assert world.trial().slot_seconds == 0.0


@pytest.mark.parametrize(
    ("others", "named", "end"),
    [(1, "experiment 2", "it has"), (2, "experiments 2, 3", "they have")],
)
def test_those_that_need_an_experiment_are_named(others: int, named: str, end: str) -> None:
    world = World()
    world.tell(registered(), submitted(), *running(), saved(10))
    world.tell(*completed(), exited(codes={0: 0, 1: 0}))
    for _ in range(others):
        other = submitted()
        other.config["searcher"]["source_trial_id"] = 1
        world.tell(other)
    said = f"{named} started from a checkpoint of it and may need it again; wait until {end} ended"
    with pytest.raises(Conflict, match=said):
        world.tell(Delete(experiment_id=1))


def test_slots_that_an_agent_does_not_have_any_more_are_not_disabled() -> None:
    world = World()
    world.tell(registered(slots=3))
    world.tell(SwitchSlots(agent_id="box", slots=[0, 2], enabled=False))
    world.tell(registered(slots=2, session="s2"))
    assert world.machine.state.agents["box"].disabled == [0]
    world.tell(registered(slots=3, session="s3"))
    assert world.machine.state.agents["box"].disabled == [0, 2]


def test_a_checkpoint_that_is_unknown_is_not_dropped() -> None:
    world = World()
    world.tell(registered(), submitted(), *running(), saved(10))
    with pytest.raises(Conflict) as caught:
        world.tell(DropCheckpoints(uuids=["nope", "ckpt10"]))
    assert "there is no checkpoint nope, or it is deleted already" in str(caught.value)
    assert "checkpoint ckpt10 is in use: experiment 1, which is not over" in str(caught.value)


def test_all_trials_leave_though_one_is_killed_already() -> None:
    world = World()
    searcher = {"name": "random", "metric": "error", "max_trials": 3, "max_length": {"batches": 9}}
    world.tell(registered(slots=2), submitted(slots=1, searcher=searcher))
    world.tell(*running("1.1.1", ranks=1), *running("1.2.1", ranks=1))
    world.tell(KillTrial(trial_id=1), Cancel(experiment_id=1))
    assert [world.trial(number).state for number in (1, 2, 3)] == [
        State.STOPPING_KILLED, State.STOPPING_CANCELED, State.CANCELED,
    ]  # fmt: skip


@pytest.mark.parametrize("gone", ["1.1.1", ""])
def test_a_run_of_an_experiment_that_is_given_up_is_killed_unless_it_is_gone(gone: str) -> None:
    world = World()
    world.tell(registered(), submitted(), *running())
    commands = world.tell(NewsSetAside(experiment_id=1, what="x", is_fatal=True, gone=gone))
    kill, close = KillGang(allocation_id="1.1.1"), CloseRun(allocation_id="1.1.1")
    assert commands == [world.order(close if gone else kill)]
    assert world.experiment().state is (State.ERROR if gone else State.STOPPING_ERROR)
