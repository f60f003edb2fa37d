"""Why a trial does not run, in each state that it can be in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Any

import pytest

from det_jupyter.contract.messages import (
    Cancel,
    CheckpointRef,
    DeviceFault,
    DeviceProcess,
    Kill,
    KillTrial,
    Pause,
    SetPools,
    SwitchSlots,
)
from det_jupyter.master.machine.model.events import AgentAway, DevicesReported, Event
from det_jupyter.master.views.wait_reasons import WaitReasons
from tests.unit.master.machine_world import (
    World,
    completed,
    exited,
    first_step,
    reached,
    registered,
    running,
    submitted,
    validated,
)

PAUSE = Pause(experiment_id=1)
CANCEL = Cancel(experiment_id=1)
KILL = Kill(experiment_id=1)
AWAY = AgentAway(agent_id="box", problem="its version is older")
ASKED = (
    "asked 0 s ago to save its state; frees 2 slots then; killed at 01:01 (in 60 min) otherwise"
)
NOTHING = "nothing is lost"
ENDS_NOW = [("pause_at_once", f"end its ranks: {NOTHING}; it stays paused")]
KILLS = [("kill", f"kill its experiment: {NOTHING}")]
RUNG = "rests at 4 batches and holds no slots; goes on if it is among the best 1 of 4 there"
HALVING = {
    "name": "async_halving", "metric": "error", "max_trials": 8, "max_length": {"batches": 16},
    "num_rungs": 2, "divisor": 4,
}  # fmt: skip


def whys(world: World, progress: Mapping[int, Any] | None = None, most: int = 9) -> WaitReasons:
    return WaitReasons(
        world.machine, progress=progress or {}, now=world.now, most=most, zone=UTC, own_user="me"
    )


def world_of(*events: Event) -> World:
    """Return a world of one experiment in half of four slots, and what happened then."""
    world = World()
    world.tell(registered(), submitted(), *events)
    return world


def searching(*events: Event) -> World:
    """Return a world of a search that has one slot, and what happened then."""
    world = World()
    world.tell(registered(slots=1), submitted(slots=1, searcher=HALVING))
    world.tell(*running("1.1.1", ranks=1), *events)
    return world


def preempted(*events: Event) -> World:
    """Return a world whose first experiment makes room for its second, and what happened then."""
    pool = {"pool_name": "default", "scheduler": {"type": "priority", "preemption": True}}
    world = World()
    world.tell(SetPools(pools=[pool]), registered(slots=2), submitted(), *running())
    world.tell(submitted("urgent", 2, resources={"priority": 1}), *events)
    return world


LEAVES_REST: list[Event] = [validated(4, 0.5), reached(4)]


@pytest.mark.parametrize(
    ("world", "cause", "sentence", "remedies", "news"),
    [
        (world_of(), "starting", "its ranks are starting on box", [], None),
        (world_of(*running()), "running", "runs", [], None),
        (world_of(*running(), PAUSE), "leaving", f"pausing: {ASKED}", ENDS_NOW, ...),
        (world_of(*running(), CANCEL), "leaving", f"stopping: {ASKED}", KILLS, ...),
        (world_of(*running(), KILL), "leaving",
         "stopping: it is being killed, which frees 2 slots", [], ...),
        (world_of(*running(), PAUSE, exited()), "paused",
         "is paused until its experiment is activated",
         [("activate", "activate its experiment; then it waits for its turn")], None),
        (world_of(*running(), CANCEL, exited()), "over", "is over (canceled)", [], None),
        (world_of(*running(), *completed(), exited()), "over", "is over (completed)", [], None),
        (preempted(), "leaving",
         f"making room for experiment 2: {ASKED}; then it queues again",
         [("pause_at_once", f"end its ranks: {NOTHING}; its experiment is paused then")], ...),
        (searching(*LEAVES_REST), "leaving",
         f"going to rest: {ASKED.replace('2 slots', '1 slot')}", [], RUNG),
        (searching(*LEAVES_REST, exited(codes={0: 0})), "resting", RUNG, [], ...),
    ],
)  # fmt: skip
def test_a_trial_says_what_it_does_and_what_would_change_that(
    world: World, cause: str, sentence: str, remedies: list[tuple[str, str]], news: Any
) -> None:
    reason = whys(world).of(world.trial())
    assert (reason.trial_id, reason.cause, reason.sentence) == (1, cause, sentence)
    assert [(one.verb, one.target, one.text) for one in reason.remedies] == [
        (verb, [1], text) for verb, text in remedies
    ]
    told = sentence if news is ... else news  # what a list tells: nothing of one that runs
    assert whys(world).sentence(world.trial()) == told


def test_what_a_trial_died_of_is_said() -> None:
    world = world_of(*running(), CANCEL, exited())
    world.trial().message = "the disk was full"
    assert whys(world).of(world.trial()).sentence == "is over (canceled): the disk was full"


def test_a_trial_rests_even_if_the_search_has_said_nothing() -> None:
    world = searching(*LEAVES_REST, exited(codes={0: 0}))
    world.trial().waiting_for = None
    assert whys(world).of(world.trial()).sentence == "rests until its search says how far"


@pytest.mark.parametrize(
    ("events", "cause"),
    [([], "starting"), (running(), "running"), ([*running(), PAUSE], "leaving")],
)
def test_the_problem_of_an_agent_goes_before_all_else(events: list[Event], cause: str) -> None:
    world = world_of(*events, submitted("second", slots=4))
    world.machine.state.agents["box"].problem = "its disk is full"
    reason = whys(world).of(world.trial())
    told = "leaving" if cause == "leaving" else "running"
    assert (reason.cause, reason.sentence) == (told, "its disk is full")
    assert whys(world).sentence(world.trial()) == "its disk is full"
    assert whys(world).of(world.trial(2)).sentence.endswith("; its disk is full")


def test_so_many_that_wait_have_a_sentence_of_their_own() -> None:
    world = world_of(*(submitted(name, slots=4) for name in "abc"))
    known = whys(world, most=2)
    told = [known.sentence(world.trial(number)) for number in (2, 3, 4)]
    assert [sentence == "waits for its turn" for sentence in told] == [False, False, True]


@pytest.mark.parametrize(
    ("progress", "trained_before", "end"),
    [
        ({}, 0, None),
        ({1: (50, 0.5)}, 0, 152.0 + 100),
        ({1: (50, 0.5)}, 25, 152.0 + 200),  # it trained a quarter itself
    ],
)
def test_the_end_of_one_that_runs_is_estimated_by_its_progress(
    progress: dict[int, Any], trained_before: int, end: float | None
) -> None:
    world = world_of(*running(), first_step(52.0), submitted("second", slots=4))
    if trained_before:
        world.allocation().starts_from = CheckpointRef(
            uuid="u", path="p", steps_completed=trained_before
        )
    world.now = 152.0
    found = whys(world, progress).of(world.trial(2)).expected
    if end is None:
        assert found is None
    else:
        assert found is not None
        assert found.at == pytest.approx(end)
        assert found.basis == "by the progress of trial 1"


def test_one_that_leaves_may_take_its_time() -> None:
    world = world_of(*running(), submitted("second", slots=4), CANCEL)
    found = whys(world).of(world.trial(2)).expected
    assert found is not None
    assert (found.earliest, found.at, found.latest) == (107.0, 3707.0, 3707.0)
    assert found.basis == "from the time that it has to save and leave"


def test_slots_that_cannot_be_had_are_said_to_be_withheld() -> None:
    stranger = DeviceProcess(pid=5, command="python", user="you", memory_bytes=0)
    occupied = DevicesReported(agent_id="box", processes={2: [stranger]})
    world = World()
    world.tell(registered(slots=3), occupied, submitted(slots=3))
    assert whys(world).of(world.trial()).sentence == (
        "needs 3 slots; python (pid 5, you) uses 1 of 3 slots of agent box; can run when it ends"
    )
    lost = DevicesReported(
        agent_id="box", processes={}, lost={2: DeviceFault(index=5, at=50.0, xid=79)}
    )
    world = World()
    world.tell(registered(slots=3), lost, submitted(slots=3))
    reason = whys(world).of(world.trial())
    assert reason.cause == "lost"
    assert reason.sentence == (
        "needs 3 slots; GPU 5 has been lost since 00:00 (Xid 79: it has fallen off the bus) on "
        "agent box; can run when it is reset, or the computer restarted"
    )
    (remedy, *_) = reason.remedies
    assert remedy.text == "reset GPU 5 of agent box, or restart the computer"
    world = World()
    world.tell(registered(slots=3), SwitchSlots(agent_id="box", slots=[1], enabled=False))
    world.tell(submitted(slots=3))
    reason = whys(world).of(world.trial())
    assert reason.cause == "disabled"
    assert "enable_slots" in [remedy.verb for remedy in reason.remedies]


@pytest.mark.parametrize(("is_remote", "host"), [(False, "laptop"), (True, "box")])
def test_processes_elsewhere_are_not_those_of_a_computer_of_the_same_name(
    is_remote: bool, host: str
) -> None:
    idle = DeviceProcess(pid=5, command="python", user="you", memory_bytes=0, idle_since=1.0)
    agent = registered(slots=3).model_copy(update={"is_remote": is_remote, "hostname": "laptop"})
    world = World()
    world.tell(agent, DevicesReported(agent_id="box", processes={2: [idle]}), submitted(slots=3))
    (remedy,) = [each for each in whys(world).of(world.trial()).remedies if "pids" in each.values]
    assert remedy.values["host"] == host


@pytest.mark.parametrize(
    ("searcher", "earliest"),
    [
        (HALVING, 152.0),  # it may be stopped at its next rung
        (
            {"name": "random", "metric": "error", "max_trials": 2, "max_length": {"batches": 9}},
            227,
        ),
    ],
)
def test_a_trial_that_may_be_stopped_early_may_end_at_once(
    searcher: dict[str, Any], earliest: float
) -> None:
    world = World()
    world.tell(registered(slots=1), submitted(slots=1, searcher=searcher))
    world.tell(*running("1.1.1", ranks=1), first_step(52.0))
    world.now = 152.0
    found = whys(world, {1: (2, 0.5)}).of(world.trial(2)).expected
    assert found is not None
    assert (found.at, int(found.earliest)) == (252.0, earliest)


@pytest.mark.parametrize(
    "before",
    [
        [],
        [Pause(experiment_id=1)],
        [Cancel(experiment_id=1)],
        [KillTrial(trial_id=1)],
    ],
)
def test_nobody_waits_until_what_is_killed_has_saved(before: list[Event]) -> None:
    world = World()
    world.tell(registered(slots=2), submitted(), *running(), submitted())
    world.tell(*before, Kill(experiment_id=1))
    waiting = whys(world).of(world.trial(2))
    assert waiting.sentence.endswith("; starts when it has left")
    assert [remedy.text for remedy in waiting.remedies] == ["wait until experiment 1 has left"]
    assert (waiting.expected, waiting.why_unknown) == (
        None, "how long it takes to leave is not known",
    )  # fmt: skip
    assert whys(world).of(world.trial(1)).sentence == (
        "stopping: it is being killed, which frees 2 slots"
    )


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        ([AWAY, PAUSE], "pausing: its ranks cannot be asked to leave now: its version is older"),
        ([AWAY, KILL], "stopping: its ranks cannot be killed now: its version is older"),
        ([PAUSE, AWAY], "its version is older"),  # they were asked before
    ],
)
def test_ranks_of_an_agent_that_is_away_are_not_said_to_be_asked(
    events: list[Event], sentence: str
) -> None:
    world = world_of(*running(), *events)
    assert whys(world).of(world.trial()).sentence == sentence
    assert whys(world).sentence(world.trial()) == sentence
