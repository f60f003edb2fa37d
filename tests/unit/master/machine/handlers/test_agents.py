"""Agents register, exit and register again: what runs goes on, what was lost is restarted."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from det_jupyter.contract.messages import (
    Activate,
    AllocationState,
    Cancel,
    CloseRun,
    Kill,
    KillGang,
    Pause,
    SignalGang,
    StartGang,
    State,
    SwitchSlots,
)
from det_jupyter.contract.values.text import short_time
from det_jupyter.master.machine.machine import Machine, ToAgent
from det_jupyter.master.machine.model.events import AgentAway, AgentLost, AgentRemoved, Event
from det_jupyter.master.machine.model.state import MachineState
from det_jupyter.scheduler.board import SlotBoard
from tests.unit.master.machine_invariants import check_machine
from tests.unit.master.machine_world import (
    World,
    completed,
    exited,
    registered,
    running,
    saved,
    submitted,
)


@pytest.fixture
def world() -> Iterator[World]:
    """Return a machine with an agent of 2 slots and a trial that is started there."""
    world = World()
    world.tell(registered(slots=2), submitted())
    yield world
    check_machine(world.machine)


def started_runs(commands: object) -> list[str]:
    assert isinstance(commands, list)
    return [
        command.command.plan.allocation_id
        for command in commands
        if isinstance(command, ToAgent) and isinstance(command.command, StartGang)
    ]


def test_a_start_that_the_agent_has_not_heard_of_is_ordered_again(world: World) -> None:
    (order,) = world.tell(registered(slots=2))
    assert started_runs([order]) == ["1.1.1"]
    assert world.allocation_state() is AllocationState.STARTING


def test_a_run_that_lives_at_its_agent_goes_on(world: World) -> None:
    world.tell(*running())
    assert world.tell(registered(slots=2, runs={"1.1.1": True})) == []
    assert world.allocation_state() is AllocationState.RUNNING


def test_a_run_that_died_with_its_agent_waits_for_what_its_journals_still_say(
    world: World,
) -> None:
    world.tell(*running(), saved(20))
    assert world.tell(registered(slots=2, runs={"1.1.1": False}, session="s2")) == []
    assert world.allocation_state() is AllocationState.RUNNING
    world.tell(saved(40))
    commands = world.tell(exited(lost=True))
    assert started_runs(commands) == ["1.1.2"]
    ref = world.allocation().starts_from
    assert ref is not None
    assert ref.steps_completed == 40
    assert world.trial().restarts == 0


def test_a_run_that_had_started_and_is_unknown_now_is_lost(world: World) -> None:
    world.tell(*running(), saved(20))
    commands = world.tell(registered(slots=2, session="s2"))
    assert commands[0] == world.order(CloseRun(allocation_id="1.1.1"))
    assert started_runs(commands) == ["1.1.2"]
    assert world.trial().restarts == 0


def test_a_run_that_was_told_to_leave_before_it_started_never_will(world: World) -> None:
    world.tell(Pause(experiment_id=1))
    assert world.tell(registered(slots=2)) == [world.order(CloseRun(allocation_id="1.1.1"))]
    assert world.trial().state is State.PAUSED
    assert world.allocation_state() is AllocationState.ENDED


def test_a_run_that_had_to_make_room_before_it_started_was_not_lost(world: World) -> None:
    world.tell(Pause(experiment_id=1), registered(slots=2), Activate(experiment_id=1))
    assert world.allocation_state() is AllocationState.STARTING
    assert world.trial().losses == []


def test_a_start_on_slots_that_are_gone_is_placed_anew() -> None:
    world = World()
    world.tell(registered(slots=4), submitted(slots=3))
    commands = world.tell(registered(slots=2))
    assert commands == [world.order(CloseRun(allocation_id="1.1.1"))]
    assert world.waiting_for() == (
        "needs 3 slots; pool default has 1 agent with 2 slots; values that can run: 1, 2; "
        "ask for 2 instead of 3"
    )


@pytest.mark.parametrize(
    ("request_", "order"),
    [
        (Pause(experiment_id=1),
         SignalGang(allocation_id="1.1.1", signal="preempt", timeout_s=3600.0)),
        (Cancel(experiment_id=1),
         SignalGang(allocation_id="1.1.1", signal="preempt", timeout_s=3600.0)),
        (Kill(experiment_id=1), KillGang(allocation_id="1.1.1", gives_up_uploads=True)),
        (Pause(experiment_id=1, at_once=True), KillGang(allocation_id="1.1.1")),
    ],
)  # fmt: skip
def test_an_order_to_leave_is_repeated_to_an_agent_that_comes_back(
    world: World, request_: Event, order: SignalGang | KillGang
) -> None:
    world.tell(*running(), request_)
    assert world.tell(registered(slots=2, runs={"1.1.1": True})) == [world.order(order)]


def test_a_dead_run_is_not_asked_to_leave(world: World) -> None:
    world.tell(*running(), Pause(experiment_id=1))
    assert world.tell(registered(slots=2, runs={"1.1.1": False})) == []


def test_an_order_to_kill_is_repeated_as_a_dead_run_may_wait_for_uploads(world: World) -> None:
    world.tell(*running(), Kill(experiment_id=1))
    orders = world.tell(registered(slots=2, runs={"1.1.1": False}))
    assert orders == [world.order(KillGang(allocation_id="1.1.1", gives_up_uploads=True))]


def test_ranks_that_nobody_wants_any_more_are_killed(world: World) -> None:
    world.tell(*running(), Cancel(experiment_id=1), AgentLost(agent_id="box"))
    assert world.experiment().state is State.CANCELED
    commands = world.tell(registered(slots=2, runs={"1.1.1": True, "9.9.9": True, "8.8.8": False}))
    assert commands == [
        world.order(KillGang(allocation_id="1.1.1", gives_up_uploads=True)),
        world.order(KillGang(allocation_id="9.9.9", gives_up_uploads=True)),
    ]


def test_the_trials_of_a_lost_agent_wait_for_another(world: World) -> None:
    world.tell(*running(), saved(20))
    assert world.tell(AgentLost(agent_id="box")) == [world.order(CloseRun(allocation_id="1.1.1"))]
    assert world.machine.state.agents == {}
    assert world.waiting_for() == (
        "needs 2 slots; agent box with 2 slots is not connected; can run when it is back"
    )
    assert world.trial().restarts == 0
    (_, start) = world.tell(registered(slots=2, agent_id="other"))
    assert started_runs([start]) == ["1.1.2"]
    assert start.agent_id == "other"  # type: ignore[union-attr]


def test_a_paused_trial_of_a_lost_agent_stays_paused(world: World) -> None:
    world.tell(*running(), Pause(experiment_id=1), AgentLost(agent_id="box"))
    assert world.trial().state is State.PAUSED
    assert world.allocation_state() is AllocationState.ENDED


def test_losing_an_agent_that_is_not_there_changes_nothing(world: World) -> None:
    before = world.machine.state.model_dump_json(exclude={"seq"})
    assert world.tell(AgentLost(agent_id="stranger")) == []
    assert world.machine.state.model_dump_json(exclude={"seq"}) == before


def test_two_agents_share_the_work_and_gangs_stay_together() -> None:
    world = World()
    world.tell(registered(slots=2, agent_id="a"), registered(slots=3, agent_id="b"))
    world.tell(submitted(slots=2), submitted(slots=3), submitted(slots=1))
    assert [world.allocation(i).agent_id for i in (1, 2)] == ["a", "b"]
    assert world.allocation_state(3) is AllocationState.QUEUED
    world.tell(AgentLost(agent_id="a"))
    assert world.allocation_state(1) is AllocationState.QUEUED
    assert world.allocation_state(2) is AllocationState.STARTING
    world.tell(*running("2.2.1", ranks=3), *completed(allocation_id="2.2.1"))
    world.tell(exited("2.2.1", codes={0: 0, 1: 0, 2: 0}))
    assert world.allocation(1).agent_id == "b"
    assert world.allocation(3).agent_id == "b"


def test_the_orders_of_two_agents_go_each_to_its_own() -> None:
    world = World()
    world.tell(registered(slots=1, agent_id="a"), registered(slots=1, agent_id="b"))
    (first,) = world.tell(submitted(slots=1))
    (second,) = world.tell(submitted(slots=1))
    assert [first.agent_id, second.agent_id] == ["a", "b"]  # type: ignore[union-attr]
    (kill,) = world.tell(Kill(experiment_id=2))
    assert kill == world.order(
        KillGang(allocation_id="2.2.1", gives_up_uploads=True), agent_id="b"
    )


def test_nothing_starts_on_an_agent_that_does_not_listen_until_it_is_back() -> None:
    world = World()
    world.tell(registered(slots=2), AgentAway(agent_id="box"))
    assert world.tell(submitted(slots=2)) == []
    assert world.waiting_for() == (
        "needs 2 slots; agent box with 2 slots is not connected; can run when it is back"
    )
    assert started_runs(world.tell(registered(slots=2))) == ["1.1.1"]


def test_what_runs_on_an_agent_that_does_not_listen_goes_on(world: World) -> None:
    assert world.tell(*running(), AgentAway(agent_id="box")) == []
    assert world.allocation_state() is AllocationState.RUNNING


def test_a_snapshot_from_before_gangs_could_span_agents_is_understood(world: World) -> None:
    world.tell(*running())
    old = json.loads(world.machine.dump())
    del old["trials"]["1"]["allocation"]["agent_ids"]
    restored = Machine(MachineState.model_validate(old))
    assert SlotBoard(restored.queue.snapshot("default")).seats["box"].free == ()
    check_machine(restored)


def test_run_that_began_before_gangs_had_parts_goes_on_and_ends(world: World) -> None:
    world.tell(*running())
    old = json.loads(world.machine.dump())
    for new in ("parts", "planned_is_last", "planned_best", "planned_orders", "run_end_rank"):
        del old["trials"]["1"]["allocation"][new]
    world.machine = Machine(MachineState.model_validate(old))
    world.tell(registered(slots=2, runs={"1.1.1": True}))
    world.tell(*completed(), exited())
    assert world.trial().state is State.COMPLETED


def test_start_from_before_gangs_had_parts_is_repeated(world: World) -> None:
    old = json.loads(world.machine.dump())
    for new in ("parts", "planned_is_last", "planned_best", "planned_orders", "run_end_rank"):
        del old["trials"]["1"]["allocation"][new]
    world.machine = Machine(MachineState.model_validate(old))
    (order,) = world.tell(registered(slots=2))
    assert isinstance(order, ToAgent)
    assert isinstance(order.command, StartGang)
    assert order.command.plan.target_is_last


# Problems of agents

PROBLEM = "agent box is stopped (process 1)"


def test_trials_say_what_is_wrong_with_their_agent_until_it_is_back(world: World) -> None:
    world.tell(*running(), submitted("other"))
    world.tell(AgentAway(agent_id="box"))  # it may connect again in a moment
    assert world.waiting_for(1) is None
    version = world.machine.queue.version
    world.tell(AgentAway(agent_id="box", problem=PROBLEM))
    assert world.machine.changes().trials == {1}
    assert world.machine.queue.version > version  # pages show it at its slots, too
    assert world.waiting_for(1) == PROBLEM
    assert (world.waiting_for(2) or "").endswith(f"; {PROBLEM}")
    world.tell(Kill(experiment_id=1))
    assert world.waiting_for(1) == f"stopping: its ranks cannot be killed now: {PROBLEM}"
    world.tell(registered(slots=2, runs={"1.1.1": True}))
    assert world.machine.changes().trials >= {1}
    assert world.waiting_for(1) == "stopping: it is being killed, which frees 2 slots"
    assert PROBLEM not in (world.waiting_for(2) or "")


def test_slots_that_an_agent_does_not_have_any_more_are_not_disabled() -> None:
    world = World()
    world.tell(registered(slots=3))
    world.tell(SwitchSlots(agent_id="box", slots=[0, 2], enabled=False))
    world.tell(registered(slots=2, session="s2"))
    assert world.machine.state.agents["box"].disabled == [0]
    world.tell(registered(slots=3, session="s3"))
    assert world.machine.state.agents["box"].disabled == [0, 2]


def test_agent_elsewhere_that_exits_or_is_lost_is_named_with_the_time() -> None:
    world = World()
    world.tell(
        registered(slots=2, agent_id="b", port=1), registered(slots=2, agent_id="c", port=1)
    )
    world.tell(registered(slots=0, agent_id="b", port=1))
    at = world.now
    world.tell(AgentAway(agent_id="c"), submitted(slots=2))
    assert world.waiting_for() == (
        f"needs 2 slots; agents b with 2 slots (left at {short_time(at, at)}) and c with 2 slots "
        "are not connected; can run when they are back"
    )
    world.tell(AgentAway(agent_id="b"), AgentLost(agent_id="b"), AgentLost(agent_id="c"))
    assert [agent.left_at for agent in world.machine.state.gone_agents] == [at, at + 1]
    assert started_runs(world.tell(registered(slots=2, agent_id="b", port=1))) == ["1.1.1"]
    assert world.machine.state.agents["b"].left_at is None


def test_agent_that_was_removed_is_expected_no_more() -> None:
    world = World()
    world.tell(
        registered(slots=2, agent_id="b", port=1), registered(slots=2, agent_id="c", port=1)
    )
    world.tell(AgentLost(agent_id="b"), AgentRemoved(agent_id="b"), AgentRemoved(agent_id="c"))
    world.tell(AgentLost(agent_id="c"))
    assert world.machine.state.gone_agents == []
    world.tell(submitted(slots=2))
    assert world.waiting_for() == (
        "needs 2 slots; no agent of pool default is connected; starts when one comes that has them"
    )
