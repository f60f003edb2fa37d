"""Gangs on several agent processes: their parts start and end in any order, with one result."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from det_jupyter.contract.messages import (
    AgentCommand,
    AllocationState,
    CloseRun,
    Cut,
    ExtendGang,
    Kill,
    KillGang,
    Loss,
    Pause,
    ProfileTrial,
    SignalGang,
    StartGang,
    State,
)
from det_jupyter.contract.run.journal import CheckpointDeleted, RankFailure
from det_jupyter.errors import Conflict
from det_jupyter.master.machine.machine import Command, Machine, ToAgent
from det_jupyter.master.machine.model.commands import DeleteCheckpoints
from det_jupyter.master.machine.model.events import (
    AgentAway,
    AgentLost,
    AgentRegistered,
    ContentSetAside,
    Event,
    RecordArrived,
)
from det_jupyter.master.machine.model.state import MachineState
from tests.unit.master.machine_invariants import check_machine
from tests.unit.master.machine_world import (
    World,
    completed,
    ended,
    exited,
    first_step,
    registered,
    saved,
    started,
    submitted,
    up,
)

RUN = "1.1.1"
PORTS = {"b": 7001, "c": 7002, "a": 0}  # `a` is on the master's computer


def register(agent_id: str, runs: dict[str, bool] | None = None) -> AgentRegistered:
    return registered(2, runs, agent_id=agent_id, port=PORTS[agent_id])


def world_of(*agents: str, **changes: Any) -> World:
    """Return a machine with these agents, of 2 slots each, and a trial on all of them."""
    world = World()
    world.tell(*(register(agent_id) for agent_id in agents))
    world.tell(submitted(slots=2 * len(agents), **changes))
    return world


@pytest.fixture
def world() -> Iterator[World]:
    """Return a machine with a trial on two computers: ranks 0 and 1 on b, 2 and 3 on c."""
    world = world_of("b", "c")
    yield world
    check_machine(world.machine)


def orders(commands: Sequence[Command]) -> list[tuple[str, AgentCommand]]:
    return [(each.agent_id, each.command) for each in commands if isinstance(each, ToAgent)]


def runs_started(commands: Sequence[Command]) -> list[tuple[str, str]]:
    return [
        (agent_id, command.plan.allocation_id)
        for agent_id, command in orders(commands)
        if isinstance(command, StartGang)
    ]


def failure(rank: int, at: float, *, is_echo: bool = False) -> RecordArrived:
    record = RankFailure(
        at=at, rank=rank, error=f"error of rank {rank}", traceback="", is_echo=is_echo
    )
    return RecordArrived(allocation_id=RUN, rank=rank, record=record)


def both_up() -> list[Event]:
    return [started(ranks=[0, 1]), started(ranks=[2, 3]), *(up(rank) for rank in range(4))]


def test_checkpoint_of_several_computers_that_a_rank_of_this_one_deletes_is_deleted_here() -> None:
    world = world_of("b", "a")
    world.tell(*both_up(), first_step(), saved(10))
    record = CheckpointDeleted(at=80.0, uuid="ckpt10")
    (deletion,) = world.tell(RecordArrived(allocation_id=RUN, rank=2, record=record))
    assert isinstance(deletion, DeleteCheckpoints)
    assert world.machine.state.checkpoints["ckpt10"].state == "DELETED"


# Start


def test_every_agent_process_gets_the_same_plan() -> None:
    world = World()
    world.tell(register("c"), register("a"), register("b"))
    commands = orders(world.tell(submitted(slots=6)))
    assert [agent_id for agent_id, _ in commands] == ["b", "c", "a"]
    first, *others = [command for _, command in commands]
    assert isinstance(first, StartGang)
    assert others == [first, first]
    # The chief is on an agent that others can connect to.
    assert first.plan.agent_ids == ["b", "b", "c", "c", "a", "a"]


def test_agents_of_this_computer_carry_one_part_together() -> None:
    world = World()
    for agent_id in ("left", "right"):
        world.tell(registered(2, agent_id=agent_id))
    world.tell(registered(2, agent_id="b", port=7001))
    assert runs_started(world.tell(submitted(slots=6))) == [("b", RUN), ("left", RUN)]
    assert [part.ranks for part in world.allocation().parts] == [[0, 1], [2, 3, 4, 5]]


def test_gang_runs_when_the_ranks_of_all_parts_have_started(world: World) -> None:
    world.tell(started(ranks=[2, 3]), *(up(rank) for rank in range(4)))
    assert world.allocation_state() is AllocationState.STARTING
    world.tell(started(ranks=[0, 1]))
    assert world.allocation_state() is AllocationState.RUNNING
    assert [rank.rank for rank in world.allocation().ranks] == [0, 1, 2, 3]


def test_notes_on_the_start_name_the_agent_where_they_differ(world: World) -> None:
    world.tell(started(ranks=[2, 3], note="forked"))
    assert world.allocation().launch_note == "forked"
    world.tell(started(ranks=[0, 1], note="a new process"))
    assert world.allocation().launch_note == "agent b: a new process; agent c: forked"


@pytest.mark.parametrize("ranks", [[0, 2], [3], [1], [], [2, 2], [4]])
def test_ranks_that_are_no_part_are_refused(world: World, ranks: list[int]) -> None:
    with pytest.raises(Conflict, match=r"expected 0 and others up to 1 or 2 and others up to 3"):
        world.tell(started(ranks=ranks))


def test_part_that_has_missed_the_start_gets_the_plan_of_the_others() -> None:
    world = World()
    world.tell(register("b"), register("c"))
    searcher = {"name": "random", "max_trials": 2, "max_concurrent_trials": 2}
    length = {"metric": "error", "max_length": {"batches": 100}}
    commands = world.tell(submitted(slots=4, searcher=searcher | length))
    world.experiment().best_metric = 0.25  # of another trial
    again = orders(world.tell(register("c")))
    assert [agent_id for agent_id, _ in again] == ["c"]
    assert again[0][1] == orders(commands)[1][1]


# Commands


def test_commands_for_the_chief_go_to_its_agent_only(world: World) -> None:
    world.tell(*both_up())
    sent = orders(world.tell(ProfileTrial(trial_id=1, ranks=[0])))
    assert [(agent_id, command.kind) for agent_id, command in sent] == [("b", "pass_orders")]


def test_signal_goes_to_every_part_which_has_the_deadline_for_its_ranks(world: World) -> None:
    world.tell(*both_up())
    signal = SignalGang(allocation_id=RUN, signal="preempt", timeout_s=3600.0)
    assert orders(world.tell(Pause(experiment_id=1))) == [("b", signal), ("c", signal)]
    assert orders(world.tell(register("c", {RUN: True}))) == [("c", signal)]


def test_only_the_chief_gets_a_farther_target_again(world: World) -> None:
    world.tell(*both_up())
    world.allocation().planned_target = None  # as if the search had set a farther one
    assert orders(world.tell(register("c", {RUN: True}))) == []
    (sent,) = orders(world.tell(register("b", {RUN: True})))
    assert sent[0] == "b"
    assert isinstance(sent[1], ExtendGang)


def test_kill_goes_to_the_parts_that_have_not_exited(world: World) -> None:
    world.tell(*both_up(), exited(codes={2: 0, 3: 0}))
    kill = KillGang(allocation_id=RUN, gives_up_uploads=True)
    assert orders(world.tell(Kill(experiment_id=1))) == [("b", kill)]
    close = CloseRun(allocation_id=RUN)
    assert orders(world.tell(exited(codes={0: -9, 1: -9}, killed=True)))[:2] == [
        ("b", close),
        ("c", close),
    ]
    assert world.trial().state is State.CANCELED


# Ends


def test_failure_of_a_part_kills_the_others_and_the_slots_stay_held(world: World) -> None:
    world.tell(*both_up(), failure(2, 71.0))
    commands = world.tell(exited(codes={2: 1, 3: -9}, first_failed=2, first_ended=2))
    assert orders(commands) == [("b", KillGang(allocation_id=RUN))]
    assert world.trial().holds_slots
    commands = world.tell(exited(codes={0: -9, 1: -9}, killed=True))
    assert runs_started(commands) == [("b", "1.1.2"), ("c", "1.1.2")]
    view = world.trial().failure
    assert view is not None
    assert (view.rank, view.error, view.exit_code) == (2, "error of rank 2", 1)


def test_parts_are_killed_once_however_many_fail() -> None:
    world = world_of("b", "c", "a")
    kill = KillGang(allocation_id=RUN)
    commands = world.tell(exited(codes={0: 1, 1: -9}, first_failed=0))
    assert orders(commands) == [("c", kill), ("a", kill)]
    assert orders(world.tell(exited(codes={2: 1, 3: -9}, first_failed=2))) == []


def test_clean_end_of_a_part_leaves_the_others_running(world: World) -> None:
    world.tell(*both_up(), *completed())
    assert world.tell(exited(codes={2: 0, 3: 0})) == []
    world.tell(exited(codes={0: 0, 1: 0}))
    assert world.trial().state is State.COMPLETED


def test_killed_part_is_killed_again_when_its_agent_comes_back(world: World) -> None:
    world.tell(*both_up(), AgentAway(agent_id="b"))
    world.tell(exited(codes={2: -9, 3: -9}, first_failed=2))
    assert orders(world.tell(register("b", {RUN: True}))) == [("b", KillGang(allocation_id=RUN))]


def test_part_of_a_lost_agent_is_over_and_the_others_are_killed(world: World) -> None:
    world.tell(*both_up(), first_step(), saved(20))
    commands = world.tell(AgentLost(agent_id="c"))
    assert orders(commands) == [("b", KillGang(allocation_id=RUN, lets_save=True))]
    world.tell(failure(0, 75.0, is_echo=True))
    world.tell(exited(codes={0: 1, 1: -9}, first_failed=0, first_ended=0))
    assert (world.trial().restarts, world.trial().runs) == (0, 2)
    assert world.trial().failure is None


def test_an_agent_that_is_lost_is_not_stored_as_cut_off(world: World) -> None:
    cut = Cut(from_agent="b", to_agent="c", why="no answer")
    end = exited(codes={0: -9, 1: -9}, lost=True, cut=cut)
    world.tell(*both_up(), AgentLost(agent_id="c"), end)
    assert world.machine.state.cuts == []
    world.tell(register("c"))
    assert world.machine.state.cut_from("b") == frozenset()


def test_lost_part_that_lives_is_killed_and_its_end_counts_once(world: World) -> None:
    world.tell(*both_up(), AgentLost(agent_id="c"))
    commands = world.tell(register("c", {RUN: True}))
    assert orders(commands) == [("c", KillGang(allocation_id=RUN))]
    assert world.tell(exited(codes={2: -9, 3: -9}, killed=True)) == []
    assert world.trial().holds_slots
    assert world.tell(started(ranks=[2, 3])) == []


def test_process_without_the_run_has_lost_its_part(world: World) -> None:
    world.tell(*both_up())
    kill = KillGang(allocation_id=RUN, lets_save=True)
    assert orders(world.tell(register("c"))) == [("b", kill)]


def test_part_that_never_started_is_not_started_once_another_has_failed(world: World) -> None:
    world.tell(exited(codes={0: None, 1: None}, error="no fork server", error_is_final=False))
    world.tell(register("c"))
    view = world.trial().failure
    assert view is not None
    assert (view.error, world.trial().restarts) == ("no fork server", 1)


def test_slots_of_a_gang_that_is_being_killed_count_as_leaving(world: World) -> None:
    world.tell(*both_up(), exited(codes={2: -9, 3: -9}, first_failed=2))
    (gang,) = world.machine.queue.snapshot("default").running.values()
    assert gang.is_leaving


def test_end_of_a_part_that_cannot_be_handled_gives_up_after_the_other_part(
    world: World,
) -> None:
    world.tell(*both_up())
    news = ContentSetAside(experiment_id=1, what="x", is_fatal=True, gone=RUN, gone_ranks=[2, 3])
    assert orders(world.tell(news)) == [("b", KillGang(allocation_id=RUN))]
    assert world.trial().holds_slots
    world.tell(exited(codes={0: -9, 1: -9}, killed=True))
    assert world.experiment().state is State.ERROR


# Any order


@dataclass(frozen=True)
class Part:
    """What becomes of a part: the reports of its agent, in order."""

    agent_id: str
    reports: tuple[Event, ...]


KINDS = [
    "clean", "own failure", "echo", "signal", "abort", "killed", "not started", "killed before",
    "lost agent", "lost process", "not saved",
]  # fmt: skip


def part_of(agent_id: str, ranks: list[int], kind: str, at: float) -> Part:
    """Return a part that ends in this way at this time."""
    first = ranks[0]
    up_reports: list[Event] = [started(ranks=ranks), *(up(rank) for rank in ranks)]
    if first == 0:
        up_reports += [first_step(), saved(20)]

    def end(code: int | None, **facts: Any) -> Event:
        codes = {first: code} | dict.fromkeys(ranks[1:], -9 if code else code)
        return exited(codes=codes, **facts).model_copy(update={"at": at + 1})

    match kind:
        case "clean":
            reports = [*up_reports, end(0, first_ended=first)]
        case "own failure" | "echo":
            record = failure(first, at, is_echo=kind == "echo")
            reports = [*up_reports, record, end(1, first_failed=first, first_ended=first)]
        case "signal" | "abort":
            code = -11 if kind == "signal" else -6
            reports = [*up_reports, end(code, first_failed=first, first_ended=first)]
        case "killed":
            reports = [*up_reports, end(-9, killed=True)]
        case "not started":
            reports = [end(None, error=f"no fork server on {agent_id}", error_is_final=False)]
        case "not saved":
            facts = {"error": "the disk is full", "error_is_final": False, "not_saved": True}
            reports = [*up_reports, end(-9, **facts)]
        case "killed before":
            reports = [end(None, killed=True)]
        case "lost agent":
            reports = [*up_reports, AgentLost(agent_id=agent_id)]
        case _:
            reports = [*up_reports, register(agent_id)]
    return Part(agent_id, tuple(reports))


@st.composite
def gangs(draw: st.DrawFn) -> list[Part]:
    """Return the parts of a gang of two or three, of which at least one is not clean."""
    agents = ["b", "c", "a"][: draw(st.integers(2, 3))]
    kinds = [draw(st.sampled_from(KINDS)) for _ in agents]
    times = draw(st.permutations([60.0, 61.0, 62.0]))
    return [
        part_of(agent_id, [2 * i, 2 * i + 1], kinds[i], times[i])
        for i, agent_id in enumerate(agents)
    ]


class Order:
    """Feeds a gang's reports to a machine, and checks what follows."""

    def __init__(self, agents: list[str], *, is_paused: bool) -> None:
        self.world = world_of(*agents, max_restarts=3)
        if is_paused:
            self.world.tell(Pause(experiment_id=1))
        self.killed: set[str] = set()
        self.closed: list[str] = []
        self.restarted: list[str] = []

    def tell(self, event: Event) -> None:
        for agent_id, command in orders(self.world.tell(event)):
            match command:
                case KillGang(allocation_id="1.1.1"):
                    self.killed.add(agent_id)
                case CloseRun(allocation_id="1.1.1"):
                    self.closed.append(agent_id)
                case StartGang(plan=plan) if plan.run > 1:
                    self.restarted.append(agent_id)
        allocation = self.world.allocation()
        if allocation.id == RUN and allocation.holds_slots and allocation.has_failed_part:
            living = {part.agent_id for part in allocation.living_parts}
            assert living <= self.killed, "a part was left running"
            assert not self.restarted, "a trial has two gangs"

    def restart(self) -> None:
        text = self.world.machine.dump()
        self.world.machine = Machine(MachineState.model_validate_json(text))

    def result(self) -> tuple[object, ...]:
        trial = self.world.trial()
        assert not (trial.allocation and trial.allocation.id == RUN and trial.holds_slots)
        failed = None if trial.failure is None else trial.failure.model_dump_json()
        # Their times are those of the reports; of two lost agents the one reported first is told.
        losses = [re.sub(r"agent \w (or its fork server )?died", "lost", lost.what)
                  for lost in trial.losses]  # fmt: skip
        return (trial.state, trial.restarts, losses, trial.runs, failed, trial.message)


def in_sequence(parts: list[Part], *, is_paused: bool) -> tuple[object, ...]:
    order = Order([part.agent_id for part in parts], is_paused=is_paused)
    for part in parts:
        for event in part.reports:
            order.tell(event)
    return order.result()


@given(data=st.data(), parts=gangs(), is_paused=st.booleans())
@settings(max_examples=25)
def test_reports_of_parts_in_any_order_have_one_result(
    data: st.DataObject, parts: list[Part], is_paused: bool
) -> None:
    order = Order([part.agent_id for part in parts], is_paused=is_paused)
    left = {part.agent_id: list(part.reports) for part in parts}
    sent: dict[str, list[Event]] = {part.agent_id: [] for part in parts}
    while any(left.values()):
        agent_id = data.draw(st.sampled_from([name for name, events in left.items() if events]))
        action = data.draw(st.sampled_from(["next", "next", "next", "repeat", "back", "restart"]))
        if action == "restart":
            order.restart()
        elif action == "repeat" and sent[agent_id]:
            order.tell(sent[agent_id][0])  # GangStarted, or the end
        elif action == "back" and agent_id in order.world.machine.state.agents:
            order.tell(register(agent_id, {RUN: True}))
        else:
            event = left[agent_id].pop(0)
            order.tell(event)
            if not isinstance(event, AgentLost | AgentRegistered):
                sent[agent_id].append(event)
    assert order.result() == in_sequence(parts, is_paused=is_paused)
    assert sorted(order.closed) == sorted(left), "the run is closed once for each part"


def test_loss_of_a_gang_names_the_agent_that_was_lost() -> None:
    order = Order(["b", "c"], is_paused=False)
    order.tell(AgentLost(agent_id="c", loss=Loss.SILENCE))
    order.tell(exited(codes={0: -9, 1: -9}, killed=True))
    assert [lost.what for lost in order.world.trial().losses] == [
        "agent c has not answered any more"
    ]


def test_rank_that_ends_in_time_counts_however_late_it_is_reported() -> None:
    early = part_of("c", [2, 3], "own failure", 60.0)
    late = part_of("b", [0, 1], "own failure", 61.0)
    order = Order(["b", "c"], is_paused=False)
    for event in (*late.reports, *early.reports):
        order.tell(event)
    view = order.world.trial().failure
    assert view is not None
    assert view.rank == 2


@pytest.mark.parametrize(
    ("kinds", "rank", "then"),
    [
        (("own failure", "killed"), 0, "restart"),
        (("killed", "own failure"), 2, "restart"),
        (("lost agent", "own failure"), 2, "restart"),
        (("lost agent", "echo"), None, "nothing"),
        (("lost process", "killed"), None, "nothing"),
        (("echo", "signal"), 2, "restart"),
        (("abort", "own failure"), 2, "restart"),
        (("echo", "killed"), 0, "restart"),
        (("clean", "echo"), 0, "restart"),
        (("not started", "echo"), None, "restart"),
    ],
)
def test_cause_of_the_end(kinds: tuple[str, str], rank: int | None, then: str) -> None:
    order = Order(["b", "c"], is_paused=False)
    for part in (part_of("b", [0, 1], kinds[0], 60.0), part_of("c", [2, 3], kinds[1], 61.0)):
        for event in part.reports:
            order.tell(event)
    trial = order.world.trial()
    assert trial.restarts == (then == "restart")
    assert (None if trial.failure is None else trial.failure.rank) == rank


@pytest.mark.parametrize("other", ["echo", "killed", "abort"])
def test_part_that_is_killed_at_the_deadline_is_preempted_whatever_follows(other: str) -> None:
    parts = [part_of("b", [0, 1], "killed", 60.0), part_of("c", [2, 3], other, 60.5)]
    order = Order(["b", "c"], is_paused=True)
    for event in (*parts[1].reports, *parts[0].reports):
        order.tell(event)
    trial = order.world.trial()
    assert (trial.state, trial.restarts, trial.failure) == (State.PAUSED, 0, None)


def test_checkpoint_that_could_not_be_uploaded_is_the_cause_also_of_a_trial_that_leaves() -> None:
    parts = [part_of("b", [0, 1], "not saved", 60.0), part_of("c", [2, 3], "killed", 59.0)]
    order = Order(["b", "c"], is_paused=True)
    for event in (*parts[1].reports, *parts[0].reports):
        order.tell(event)
    view = order.world.trial().failure
    assert view is not None
    assert view.error == "the disk is full"


def test_end_that_another_rank_reports_does_not_count_without_the_chief(world: World) -> None:
    world.tell(*both_up(), first_step(), ended("stopped", rank=2))
    world.tell(exited(codes={2: 0, 3: 0}), AgentLost(agent_id="b"))
    assert world.trial().state is State.ACTIVE
    assert (world.trial().runs, world.trial().restarts) == (2, 0)
