"""Pools: which trials get slots, which are preempted, and changes of pools and slots."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.messages import (
    Activate,
    AllocationState,
    ChangeResources,
    DeviceFault,
    DeviceProcess,
    GangExited,
    Kill,
    KillGang,
    MoveInQueue,
    Pause,
    SetPools,
    SignalGang,
    SwitchSlots,
)
from det_jupyter.errors import ConfigError, Conflict, NotFound
from det_jupyter.master.machine.model.events import AgentLost, ContinueRequested, DevicesReported
from tests.problems import said
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

QUEUED, STARTING, RUNNING, STOPPING, ENDED = AllocationState
STRANGER = DeviceProcess(pid=4711, command="python train.py", memory_bytes=3 * 2**30)


@pytest.fixture
def world() -> World:
    return World()


def pools(**default: Any) -> SetPools:
    return SetPools(pools=[{"pool_name": "default", "scheduler": default}])


def urgent(name: str = "urgent", slots: int = 2, priority: int = 10, **changes: Any) -> Any:
    return submitted(name, slots, resources={"priority": priority}, **changes)


def resources(experiment_id: int, **change: Any) -> ChangeResources:
    return ChangeResources(experiment_id=experiment_id, **change)


def switch(*slots: int, enabled: bool = False, drain: bool = False) -> SwitchSlots:
    return SwitchSlots(agent_id="box", slots=list(slots) or None, enabled=enabled, drain=drain)


def preempt(allocation_id: str) -> SignalGang:
    return SignalGang(allocation_id=allocation_id, signal="preempt", timeout_s=3600.0)


# Preemption


def test_without_preemption_the_more_urgent_waits_for_its_turn(world: World) -> None:
    world.tell(registered(slots=2), submitted(), *running())

    assert world.tell(urgent()) == []
    assert world.allocation_state(1) is RUNNING


def test_a_preempted_trial_saves_first_queues_again_and_is_charged_nothing(world: World) -> None:
    world.tell(pools(preemption=True), registered(slots=2), submitted(), *running())

    assert world.tell(urgent()) == [world.order(preempt("1.1.1"))]
    assert (world.allocation_state(1), world.allocation_state(2)) == (STOPPING, QUEUED)
    assert world.allocation(1).preempted_by == 2

    world.tell(saved(40), ended("preempted", 40), exited())
    assert (world.allocation_state(1), world.allocation_state(2)) == (QUEUED, STARTING)
    assert (world.trial(1).restarts, world.trial(1).runs) == (0, 2)

    world.tell(*running("2.2.1"), *completed(100, "2.2.1"), exited("2.2.1"))
    assert world.allocation_state(1) is STARTING
    starts_from = world.allocation(1).starts_from
    assert starts_from is not None
    assert starts_from.steps_completed == 40


def test_a_preempted_trial_goes_back_to_its_own_place_in_the_queue(world: World) -> None:
    world.tell(pools(preemption=True), registered(slots=2), submitted("first"), *running())
    world.tell(submitted("second"), urgent())
    world.tell(ended("preempted", 40), exited())
    world.tell(*running("3.3.1"), *completed(100, "3.3.1"), exited("3.3.1"))

    assert world.allocation_state(1) is STARTING
    assert world.allocation_state(2) is QUEUED


def test_nobody_is_asked_to_leave_who_could_not_make_enough_room(world: World) -> None:
    world.tell(pools(preemption=True), registered(slots=4))
    world.tell(urgent("keeps", 2, 5), submitted("usual", 2), *running("1.1.1"), *running("2.2.1"))

    assert world.tell(urgent("large", 4, 10)) == []
    assert world.allocation_state(2) is RUNNING


def test_of_two_that_could_go_the_one_that_has_less_to_lose_does(world: World) -> None:
    world.tell(pools(preemption=True), registered(slots=4))
    world.tell(submitted("old"), *running("1.1.1"), submitted("new"), *running("2.2.1"))

    assert world.tell(urgent()) == [world.order(preempt("2.2.1"))]


def test_a_less_urgent_trial_fills_a_gap_and_leaves_it_when_it_is_in_the_way(world: World) -> None:
    world.tell(pools(preemption=True), registered(slots=4))
    world.tell(urgent("half", 2, 5), *running("1.1.1"), urgent("whole", 4, 5))
    world.tell(submitted("small", 2))
    assert world.allocation_state(2) is QUEUED
    assert world.allocation_state(3) is STARTING  # in slots that "whole" waits for

    world.tell(*running("3.3.1"))
    world.tell(*completed())
    orders = world.tell(exited())
    assert world.order(preempt("3.3.1")) in orders


# Changes while trials run


def test_raising_the_priority_moves_a_waiting_trial_to_the_front(world: World) -> None:
    world.tell(registered(slots=2), submitted("holds"), submitted("second"), submitted("third"))
    world.tell(resources(3, priority=10))
    assert world.experiment(3).config["resources"]["priority"] == 10

    world.tell(*running(), *completed(), exited())
    assert (world.allocation_state(2), world.allocation_state(3)) == (QUEUED, STARTING)


@pytest.mark.parametrize(
    "move",
    [MoveInQueue(experiment_id=3, ahead_of=2), MoveInQueue(experiment_id=3, behind=1)],
    ids=["ahead of", "behind"],
)
def test_an_experiment_is_moved_in_the_queue(world: World, move: MoveInQueue) -> None:
    world.tell(registered(slots=2), submitted("holds"), submitted("second"), submitted("third"))
    world.tell(move)

    world.tell(*running(), *completed(), exited())
    assert (world.allocation_state(2), world.allocation_state(3)) == (QUEUED, STARTING)


def test_a_move_to_another_priority_takes_the_priority_of_who_is_there(world: World) -> None:
    world.tell(submitted("usual"), urgent())
    world.tell(MoveInQueue(experiment_id=1, ahead_of=2))

    assert world.experiment(1).priority == 10
    assert world.experiment(1).position < world.experiment(2).position


@pytest.mark.parametrize(
    ("move", "problem"),
    [
        (
            MoveInQueue(experiment_id=1, ahead_of=1),
            "experiment 1 cannot be moved relative to itself",
        ),
        (
            MoveInQueue(experiment_id=1, ahead_of=9),
            "there is no experiment 9; `list` shows those that are",
        ),
        (
            MoveInQueue(experiment_id=1),
            "give one of ahead_of and behind: the experiment to move by",
        ),
    ],
)
def test_a_move_that_makes_no_sense_is_refused(
    world: World, move: MoveInQueue, problem: str
) -> None:
    world.tell(submitted())

    with pytest.raises((Conflict, NotFound, ConfigError)) as refusal:
        world.tell(move)
    assert problem in str(refusal.value)


def test_under_fair_share_there_is_no_order_to_change(world: World) -> None:
    world.tell(pools(type="fair_share"), submitted(), submitted())

    with pytest.raises(Conflict, match="change the experiment's weight"):
        world.tell(MoveInQueue(experiment_id=1, behind=2))


def test_a_search_holds_no_more_than_its_max_slots(world: World) -> None:
    search = {"name": "random", "max_length": {"batches": 9}, "max_trials": 4, "metric": "error"}
    world.tell(
        registered(slots=4),
        submitted(slots=1, searcher=search, resources={"max_slots": 2}),
    )
    assert [world.allocation_state(i) for i in (1, 2, 3, 4)] == [
        STARTING,
        STARTING,
        QUEUED,
        QUEUED,
    ]

    world.tell(resources(1, max_slots=3))
    assert world.allocation_state(3) is STARTING

    world.tell(resources(1, max_slots="none"))
    assert world.allocation_state(4) is STARTING
    assert world.experiment(1).config["resources"]["max_slots"] is None


def test_with_fewer_max_slots_the_newest_trials_leave(world: World) -> None:
    search = {"name": "random", "max_length": {"batches": 9}, "max_trials": 3, "metric": "error"}
    world.tell(registered(slots=4), submitted(slots=1, searcher=search))
    world.tell(resources(1, max_slots=1))

    assert [world.allocation_state(i) for i in (1, 2, 3)] == [STARTING, STOPPING, STOPPING]


def test_everything_that_is_wrong_with_a_change_is_told_at_once(world: World) -> None:
    world.tell(submitted(slots=2))

    with pytest.raises(ConfigError) as refusal:
        world.tell(resources(1, priority=100, weight=0.0, max_slots=1, resource_pool="nigth"))
    assert said(refusal.value.problems) == [
        "priority: got 100, expected a number from 1 to 99",
        "weight: got 0, expected a number from 0.001 to 1000",
        "max_slots: got 1, expected at least 2 (resources.slots_per_trial), or none; "
        "to stop its trials, pause it",
        "resource_pool: got 'nigth'; there is no such pool, there are: default",
    ]
    with pytest.raises(ConfigError) as refusal:
        world.tell(resources(1, weight=1e308, max_slots=2**50))
    assert said(refusal.value.problems) == [
        "weight: got 1e+308, expected a number from 0.001 to 1000",
        f"max_slots: got {2**50}, expected at most 1000000, or none",
    ]


# Gangs over agents, and without slots


def test_a_trial_that_no_agent_is_large_enough_for_takes_whole_idle_ones(world: World) -> None:
    world.tell(registered(2, agent_id="box"), registered(2, agent_id="other", session="s2"))
    (order,) = world.tell(submitted(slots=4))

    assert order.agent_id == "box"  # type: ignore[union-attr]
    plan = order.command.plan  # type: ignore[union-attr]
    assert plan.agent_ids == ["box", "box", "other", "other"]
    assert [slot.id for slot in plan.slots] == [0, 1, 0, 1]


def test_a_gang_over_agents_ends_when_one_of_them_is_lost(world: World) -> None:
    world.tell(registered(2, agent_id="box"), registered(2, agent_id="other", session="s2"))
    world.tell(submitted(slots=4), *running("1.1.1", 4))
    assert world.tell(AgentLost(agent_id="other")) == [
        world.order(KillGang(allocation_id="1.1.1"))
    ]
    assert world.allocation_state(1) is STOPPING
    world.tell(exited("1.1.1", killed=True))
    assert world.allocation_state(1) is QUEUED
    assert world.trial(1).restarts == 0


def test_who_waits_for_an_agent_that_is_gone_is_told_so(world: World) -> None:
    world.tell(registered(2, agent_id="box"), registered(4, agent_id="other", session="s2"))
    world.tell(submitted(slots=4), AgentLost(agent_id="other"))
    assert world.waiting_for(1) == (
        "needs 4 slots; agent other with 4 slots is not connected; can run when it is back"
    )


def test_when_another_agent_of_a_gang_registers_again_the_gang_goes_on(world: World) -> None:
    world.tell(registered(2, agent_id="box"), registered(2, agent_id="other", session="s2"))
    world.tell(submitted(slots=4), *running("1.1.1", 4))

    assert world.tell(registered(2, agent_id="other", session="s2")) == []
    assert world.allocation_state(1) is RUNNING


def test_a_trial_without_slots_runs_beside_all_others(world: World) -> None:
    world.tell(registered(slots=2), submitted(slots=2))
    (order,) = world.tell(submitted("light", slots=0))

    plan = order.command.plan  # type: ignore[union-attr]
    assert [(slot.id, slot.kind) for slot in plan.slots] == [(-1, "cpu")]
    assert plan.agent_ids == ["box"]


# Slots that are disabled or occupied


def test_a_disabled_slot_is_not_given_out_until_it_is_enabled(world: World) -> None:
    world.tell(registered(slots=2), switch(1), submitted(slots=2))
    assert world.allocation_state(1) is QUEUED

    world.tell(switch(1, enabled=True))
    assert world.allocation_state(1) is STARTING


def test_a_disabled_slot_stays_so_when_its_agent_is_lost_and_comes_back(world: World) -> None:
    world.tell(registered(slots=2), switch(1), AgentLost(agent_id="box"))
    world.tell(registered(slots=2, session="s2"), submitted(slots=2))
    assert world.allocation_state(1) is QUEUED


def test_disabling_a_slot_asks_its_trial_to_leave_and_draining_lets_it_finish(
    world: World,
) -> None:
    world.tell(registered(slots=2), submitted(slots=1), submitted("other", slots=1))
    world.tell(*running("1.1.1", 1), *running("2.2.1", 1))

    assert world.tell(switch(0, drain=True)) == []
    assert world.tell(switch(1)) == [world.order(preempt("2.2.1"))]
    assert (world.allocation_state(1), world.allocation_state(2)) == (RUNNING, STOPPING)


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (switch(7), "agent box has no slot 7; it has 0, 1"),
        (
            SwitchSlots(agent_id="bax", enabled=True),
            "there is no agent 'bax'; there are: box",
        ),
    ],
)
def test_slots_that_are_not_there_cannot_be_switched(
    world: World, event: SwitchSlots, problem: str
) -> None:
    world.tell(registered(slots=2))

    with pytest.raises(NotFound) as refusal:
        world.tell(event)
    assert str(refusal.value) == problem


def test_a_lost_device_ends_its_trial_without_a_restart_and_is_not_given_out(
    world: World,
) -> None:
    world.tell(registered(slots=2), submitted(slots=1), *running("1.1.1", 1))
    lost = DeviceFault(index=0, at=1.0, xid=79)
    crash = GangExited(
        allocation_id="1.1.1", at=1.0, exit_codes={0: 1}, first_failed=0, faults={0: lost, 7: lost}
    )
    world.tell(crash)
    trial = world.trial(1)
    assert trial.restarts == 0
    assert trial.allocation is not None
    assert [slot.id for slot in trial.allocation.slots] == [1]
    assert trial.notices == [
        "run 1 ended, which is no failure: GPU 0 is lost (Xid 79: it has fallen off the bus) on "
        "agent box; reset it or restart the computer"
    ]
    world.tell(submitted("other", slots=1))
    assert world.allocation_state(2) is QUEUED
    world.tell(DevicesReported(agent_id="box", processes={}, lost={0: lost}))
    assert world.allocation_state(2) is QUEUED
    world.tell(DevicesReported(agent_id="box", processes={}))
    assert world.allocation_state(2) is STARTING


def test_a_device_that_strangers_use_is_not_given_out(world: World) -> None:
    world.tell(registered(slots=2))
    world.tell(DevicesReported(agent_id="box", processes={0: [STRANGER]}), submitted(slots=2))
    assert world.allocation_state(1) is QUEUED
    assert "4711" in (world.waiting_for(1) or "")

    world.tell(DevicesReported(agent_id="box", processes={}))
    assert world.allocation_state(1) is STARTING


def test_a_pool_may_share_devices_with_strangers(world: World) -> None:
    world.tell(registered(slots=2), DevicesReported(agent_id="box", processes={0: [STRANGER]}))
    world.tell(SetPools(pools=[{"pool_name": "default", "share_devices": True}]))
    world.tell(submitted(slots=2))

    assert world.allocation_state(1) is STARTING


# Pools


def two_pools() -> SetPools:
    return SetPools(pools=[{"pool_name": "night", "agents": ["gpu-*"]}])


def test_an_experiment_gets_the_slots_of_its_own_pool(world: World) -> None:
    world.tell(two_pools(), registered(2, agent_id="box"))
    world.tell(submitted(resources={"resource_pool": "night"}))
    assert world.allocation_state(1) is QUEUED

    world.tell(registered(2, agent_id="gpu-1", session="s2"))
    assert world.allocation(1).agent_id == "gpu-1"


def test_an_unknown_pool_is_refused_with_those_that_there_are(world: World) -> None:
    world.tell(two_pools())

    with pytest.raises(ConfigError) as refusal:
        world.tell(submitted(resources={"resource_pool": "day"}))
    assert said(refusal.value.problems) == [
        "resources.resource_pool: got 'day'; there is no such pool, there are: night, default"
    ]


def test_an_experiment_can_change_pools(world: World) -> None:
    world.tell(two_pools(), registered(2, agent_id="box"))
    world.tell(
        submitted(resources={"resource_pool": "night"}), resources(1, resource_pool="default")
    )

    assert world.allocation(1).agent_id == "box"


def test_a_pool_that_is_needed_cannot_be_taken_away(world: World) -> None:
    world.tell(two_pools(), submitted(resources={"resource_pool": "night"}))

    with pytest.raises(Conflict, match="pool night is needed by experiment 1"):
        world.tell(SetPools(pools=[]))


def test_the_pool_says_how_urgent_an_experiment_is_that_does_not(world: World) -> None:
    world.tell(pools(default_priority=7), submitted(), urgent())

    assert (world.experiment(1).priority, world.experiment(2).priority) == (7, 10)


def test_what_no_pool_can_run_now_queues_if_that_is_wanted(world: World) -> None:
    world.tell(registered(slots=2))
    with pytest.raises(ConfigError):
        world.tell(submitted(slots=8))

    world.tell(submitted(slots=8).model_copy(update={"queue_anyway": True}))
    assert world.allocation_state(1) is QUEUED
    world.tell(registered(8, agent_id="big", session="s2"))
    assert world.allocation(1).agent_id == "big"


def test_a_paused_experiment_keeps_its_place_in_the_queue(world: World) -> None:
    world.tell(registered(slots=2), submitted("holds"), submitted("second"), submitted("third"))
    world.tell(Pause(experiment_id=2), Activate(experiment_id=2))

    world.tell(*running(), *completed(), exited())
    assert (world.allocation_state(2), world.allocation_state(3)) == (STARTING, QUEUED)


def test_an_experiment_cannot_go_where_it_could_never_run(world: World) -> None:
    world.tell(two_pools(), registered(2, agent_id="box"), submitted(slots=2))
    world.tell(registered(1, agent_id="gpu-1", session="s2"))

    with pytest.raises(ConfigError, match="pool night has 1 agent with 1 slot"):
        world.tell(resources(1, resource_pool="night"))


def test_an_experiment_whose_pool_is_gone_is_not_continued(world: World) -> None:
    world.tell(two_pools(), submitted(resources={"resource_pool": "night"}))
    world.tell(Kill(experiment_id=1), SetPools(pools=[]))

    with pytest.raises(ConfigError, match="no such pool, there are: default"):
        world.tell(ContinueRequested(experiment_id=1, config=world.experiment(1).config))


@pytest.mark.parametrize("moved", ["box", "other"])
def test_a_gang_whose_agents_come_to_different_pools_keeps_all_its_slots(
    world: World, moved: str
) -> None:
    world.tell(registered(2, agent_id="box"), registered(2, agent_id="other", session="s2"))
    world.tell(submitted(slots=4), *running("1.1.1", 4))
    world.tell(SetPools(pools=[{"pool_name": "night", "agents": [moved]}]))

    world.tell(submitted(slots=2, resources={"resource_pool": "night"}), submitted(slots=2))
    assert [world.allocation_state(i) for i in (1, 2, 3)] == [RUNNING, QUEUED, QUEUED]
    world.tell(*completed(100, "1.1.1"), exited("1.1.1"))
    assert [world.allocation_state(i) for i in (2, 3)] == [STARTING, STARTING]


def order(world: World) -> list[int]:
    return [request.group for request in world.machine.queue.snapshot("default").order]


def test_moves_never_wear_out(world: World) -> None:
    world.tell(*(submitted() for _ in range(3)))
    for first, second in [(2, 3), (3, 2)] * 60:
        world.tell(MoveInQueue(experiment_id=second, behind=1))
        assert order(world) == [1, second, first]


def test_who_is_moved_to_the_end_stays_ahead_of_those_that_come_later(world: World) -> None:
    world.tell(*(submitted() for _ in range(4)))
    world.tell(MoveInQueue(experiment_id=2, behind=4))
    world.tell(MoveInQueue(experiment_id=3, behind=2))
    world.tell(*(submitted() for _ in range(2)))
    assert order(world) == [1, 4, 2, 3, 5, 6]
