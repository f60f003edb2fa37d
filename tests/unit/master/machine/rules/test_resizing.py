"""Elastic trials: they go on with another number of slots, without queueing or a restart."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.messages import (
    AllocationState,
    ChangeResources,
    DeviceProcess,
    GangExited,
    Pause,
    RanksSeen,
    SignalGang,
    StartGang,
    State,
    SwitchSlots,
)
from det_jupyter.contract.values.sizes import GROW_AFTER_S
from det_jupyter.master.machine.machine import ToAgent
from det_jupyter.master.machine.model.commands import DeleteCheckpoints
from det_jupyter.master.machine.model.events import AgentLost, DevicesReported, SlotsSettled
from det_jupyter.master.views.leaving_gangs import leaving_of
from tests.unit.master.machine_world import (
    World,
    completed,
    ended,
    exited,
    first_step,
    registered,
    running,
    saved,
    submitted,
    validated,
)

QUEUED, STARTING, RUNNING, STOPPING, ENDED = AllocationState


@pytest.fixture
def world() -> World:
    """Return a world where an elastic trial trains on all four slots of an agent."""
    world = World()
    world.tell(registered(), elastic(), *running(ranks=4), first_step(), saved(20))
    return world


def elastic(least: int = 1, most: int = 8, **changes: Any) -> Any:
    return submitted(resources={"slots_per_trial": {"min": least, "max": most}}, **changes)


def left(
    steps: int = 30, run: str = "1.1.1", *, on_request: bool = True
) -> tuple[Any, Any, GangExited]:
    return (
        saved(steps, allocation_id=run, on_request=on_request),
        ended("preempted", steps, allocation_id=run),
        exited(run),
    )


def checks(run: str = "1.1.1") -> RanksSeen:
    return RanksSeen(allocation_id=run, at=1.0, places={}, checked_at=1.0)


def slots_of(world: World, trial_id: int = 1) -> list[int]:
    return [slot.id for slot in world.allocation(trial_id).slots]


def test_it_starts_on_what_is_free(world: World) -> None:
    assert slots_of(world) == [0, 1, 2, 3]
    assert [str(size) for size in world.trial().sizes] == ["4 slots: so many were free"]


def test_it_gives_a_slot_back_and_goes_on_at_once(world: World) -> None:
    assert world.tell(submitted(slots=1)) == [
        world.order(SignalGang(allocation_id="1.1.1", signal="preempt", timeout_s=3600.0))
    ]
    view = leaving_of(world.machine.state, world.trial(), 20)
    assert view is not None
    assert (view.then, view.resized_because) == ("resizes", "gave 1 slot to experiment 2")
    commands = world.tell(*left())
    starts = [
        (one.command.plan.allocation_id, [slot.id for slot in one.command.plan.slots])
        for one in commands
        if isinstance(one, ToAgent) and isinstance(one.command, StartGang)
    ]
    assert starts == [("1.1.2", [0, 1, 2]), ("2.2.1", [3])]
    trial = world.trial()
    assert str(trial.sizes[-1]) == "3 slots: gave 1 slot to experiment 2"
    assert (trial.sizes[-1].steps_completed, trial.restarts, trial.failure) == (30, 0, None)


def test_the_reason_of_the_other_says_who_gives_it_a_slot(world: World) -> None:
    world.tell(submitted(slots=1))
    reason = world.waiting_for(2) or ""
    assert "holds 4 and gives 1 back; starts when it has done so" in reason


def test_it_grows_after_slots_have_been_free_for_a_while(world: World) -> None:
    world.tell(submitted(slots=1), *left(), *running("2.2.1", 1))
    world.tell(*running("1.1.2", 3), first_step(allocation_id="1.1.2"))
    world.tell(checks("1.1.2"))
    world.tell(*completed(allocation_id="2.2.1"), exited("2.2.1", {0: 0}))
    world.now += GROW_AFTER_S - 2.0
    world.tell(SlotsSettled())
    assert world.allocation().state is RUNNING
    assert world.machine.queue.look_again_at == {"default": world.now + 1.0}
    world.tell(SlotsSettled())
    assert world.allocation().state is STOPPING
    world.tell(*left(40, "1.1.2"))
    assert slots_of(world) == [0, 1, 2, 3]
    assert str(world.trial().sizes[-1]) == "4 slots: grew by 1 slot, free for 10 s"


@pytest.mark.parametrize(
    ("changes", "more", "kept"),
    [
        ({}, [], [20, 40]),
        ({}, [validated(30, 0.5)], [20, 30, 40]),
        ({"checkpoint_storage": {"save_trial_latest": 2}}, [], [20, 30, 40]),
    ],
)
def test_the_checkpoint_of_a_change_is_deleted_at_the_next_one(
    changes: dict[str, Any], more: list[Any], kept: list[int]
) -> None:
    world = World()
    world.tell(registered(), elastic(**changes), *running(ranks=4), first_step(), saved(20))
    world.tell(*more, submitted(slots=1), *left())
    world.tell(*running("1.1.2", 3), first_step(allocation_id="1.1.2"), submitted(slots=1))
    commands = world.tell(*left(40, "1.1.2"))
    checkpoints = world.machine.state.checkpoints
    assert [checkpoints[one].steps_completed for one in world.trial().checkpoints] == kept
    deleted = [one.paths for one in commands if isinstance(one, DeleteCheckpoints)]
    assert len(deleted) == (30 not in kept)
    assert str(world.trial().sizes[-1]) == "2 slots: gave 1 slot to experiment 3"


def test_what_the_code_saves_by_itself_before_it_leaves_is_kept() -> None:
    world = World()
    world.tell(registered(), elastic(), *running(ranks=4), first_step(), saved(20))
    for steps, run, slots, on_request in ((30, 1, 4, True), (40, 2, 3, False), (50, 3, 2, True)):
        if run > 1:
            world.tell(*running(f"1.1.{run}", slots), first_step(allocation_id=f"1.1.{run}"))
        world.tell(submitted(slots=1), *left(steps, f"1.1.{run}", on_request=on_request))
    checkpoints = world.machine.state.checkpoints
    kept = [checkpoints[one].steps_completed for one in world.trial().checkpoints]
    assert kept == [20, 40, 50]


def test_slot_seconds_count_what_it_held(world: World) -> None:
    started_at = world.allocation().started_at or 0.0
    world.tell(submitted(slots=1), *left())
    assert world.trial().slot_seconds == 4 * (world.now - started_at)
    resized_at = world.now
    world.tell(Pause(experiment_id=1), *left(40, "1.1.2"))
    assert world.trial().slot_seconds == 4 * (resized_at - started_at) + 3 * (
        world.now - resized_at
    )


def test_a_pause_meanwhile_pauses_it(world: World) -> None:
    world.tell(submitted(slots=1), Pause(experiment_id=1), *left())
    assert world.trial().state is State.PAUSED
    assert world.allocation(2).state is STARTING


def test_it_queues_if_its_slots_are_gone_meanwhile(world: World) -> None:
    world.tell(submitted(slots=1))
    world.tell(SwitchSlots(agent_id="box", slots=[0], enabled=False, drain=True), *left())
    assert (slots_of(world), slots_of(world, 2)) == ([1, 3], [2])
    assert str(world.trial().sizes[-1]) == "2 slots: so many were free"


def test_a_failure_meanwhile_counts_as_one(world: World) -> None:
    world.tell(submitted(slots=1))
    world.tell(exited("1.1.1", {0: 1, 1: 0, 2: 0, 3: 0}, first_failed=0))
    assert world.trial().restarts == 1
    assert world.allocation().state is STARTING


def test_it_goes_on_with_fewer_when_an_agent_is_lost() -> None:
    world = World()
    world.tell(registered(2, agent_id="a"), registered(2, agent_id="b", port=7001))
    world.tell(elastic(1, 4))
    assert world.allocation().agent_ids == ["b", "b", "a", "a"]
    world.tell(AgentLost(agent_id="b"), exited("1.1.1", {2: -9, 3: -9}, killed=True))
    assert (world.allocation().agent_ids, world.trial().restarts) == (["a", "a"], 0)


def test_fewer_max_slots_make_it_smaller(world: World) -> None:
    world.tell(ChangeResources(experiment_id=1, max_slots=2), *left())
    assert len(slots_of(world)) == 2


def grows() -> World:
    """Return a world where an elastic trial with one slot is asked to go on with four."""
    world = World()
    world.tell(registered(), submitted(slots=3), elastic(), *running("2.2.1", 1))
    world.tell(first_step(allocation_id="2.2.1"), checks("2.2.1"))
    world.tell(*running("1.1.1", 3), *completed(), exited("1.1.1", {0: 0, 1: 0, 2: 0}))
    world.now += GROW_AFTER_S
    world.tell(SlotsSettled())
    assert world.allocation(2).becomes == {"box": [3, 0, 1, 2]}
    return world


def test_fewer_max_slots_while_it_grows_hold() -> None:
    world = grows()
    world.tell(ChangeResources(experiment_id=2, max_slots=2), *left(run="2.2.1"))
    assert len(slots_of(world, 2)) == 2


def test_code_that_does_not_check_for_requests_is_not_asked_to_grow() -> None:
    world = World()
    world.tell(registered(), submitted(slots=3), elastic(), *running("2.2.1", 1))
    world.tell(first_step(allocation_id="2.2.1"))
    world.tell(*running("1.1.1", 3), *completed(), exited("1.1.1", {0: 0, 1: 0, 2: 0}))
    world.now += GROW_AFTER_S
    world.tell(SlotsSettled())
    assert world.allocation(2).state is RUNNING


def test_a_program_does_not_grow_onto_another_computer() -> None:
    world = World()
    world.tell(registered(2, agent_id="a", port=7001))
    world.tell(elastic(1, 4, entrypoint="python train.py"))
    world.tell(*running(ranks=2), first_step(), checks())
    world.tell(registered(2, agent_id="b", port=7001))
    world.now += GROW_AFTER_S
    world.tell(SlotsSettled())
    assert world.allocation().state is RUNNING


def test_slots_that_others_go_on_using_are_not_newly_free(world: World) -> None:
    in_use = DevicesReported(
        agent_id="box",
        processes={0: [DeviceProcess(pid=7, command="python", user="you", memory_bytes=0)]},
    )
    world.tell(in_use)
    before = dict(world.machine.state.agents["box"].freed_at)
    world.now += 5.0
    world.tell(in_use)
    assert world.machine.state.agents["box"].freed_at == before


def test_a_rank_needs_a_record_of_each_batch() -> None:
    world = World()
    world.tell(registered(8), elastic(hyperparameters={"global_batch_size": 3, "lr": 0.1}))
    assert len(slots_of(world)) == 3


def test_trials_of_an_elastic_search_get_the_slots_of_those_that_are_over() -> None:
    world = World()
    searcher = {
        "name": "random",
        "metric": "error",
        "max_length": {"batches": 100},
        "max_trials": 2,
        "elastic": True,
    }
    world.tell(registered(), submitted(slots=1, searcher=searcher))
    assert [len(slots_of(world, trial)) for trial in (1, 2)] == [2, 2]
    world.tell(*running(), first_step(), checks(), *running("1.2.1"))
    world.tell(*completed(allocation_id="1.2.1"), exited("1.2.1"))
    world.now += GROW_AFTER_S
    world.tell(SlotsSettled(), *left())
    assert slots_of(world) == [0, 2, 1, 3]
