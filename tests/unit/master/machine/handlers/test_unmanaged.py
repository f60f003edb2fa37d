"""Runs that users start by hand: they hold no slots, and go on under their names."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.messages import (
    Activate,
    Archive,
    Cancel,
    Capsule,
    ChangeDetails,
    GangStarted,
    Kill,
    KillTrial,
    Pause,
    RankProcess,
    SignalGang,
    SlotView,
    StartUnmanaged,
    State,
)
from det_jupyter.contract.run.journal import RunEnded
from det_jupyter.errors import ConfigError, Conflict
from det_jupyter.master.machine.machine import find_run
from det_jupyter.master.machine.model.commands import ToAgent, TruncateMetrics
from det_jupyter.master.machine.model.events import (
    ContinueRequested,
    RecordArrived,
    UnmanagedHeard,
    parse_event,
)
from det_jupyter.master.machine.rules.placing import make_plan
from tests.unit.master.machine_world import (
    World,
    exited,
    failed,
    make_config,
    registered,
    saved,
    submitted,
)
from tests.unit.master.machine_world import (
    up as rank_up,
)

PLACE = SlotView(id=-1, kind="cpu", index=0, name="CPU")
PROCESS = RankProcess(rank=0, pid=7, host="desk", connection_file="", output_file="")


def start(key: str = "one", *, name: str = "base", lr: float = 0.1, **changes: Any) -> Any:
    config = make_config(
        name=name,
        entrypoint="unmanaged",
        labels=["unmanaged"],
        hyperparameters={"lr": lr},
        searcher={"name": "single", "metric": "loss", "max_length": {"batches": 1}},
        resources={"slots_per_trial": 0},
        max_restarts=0,
    )
    fields: dict[str, Any] = {
        "key": key,
        "started_at": 50.0,
        "host": "desk",
        "slots": [PLACE],
        "ranks": [PROCESS],
        "config": config,
        "capsule": Capsule(entrypoint="unmanaged", sources="0" * 64),
        "python": "python3",
        "cwd": "/",
    }
    return StartUnmanaged(**fields | changes)


def up(run: str = "1.1.1") -> list[Any]:
    return [GangStarted(allocation_id=run, at=51.0, ranks=[PROCESS]), rank_up(0, run)]


def left(run: str = "1.1.1") -> list[Any]:
    """Return the events of a run whose block was left without an error."""
    ended = RunEnded(at=70.0, reason="stopped", steps_completed=30)
    return [RecordArrived(allocation_id=run, rank=0, record=ended), exited(run, {0: 0})]


def silent(run: str = "1.1.1") -> UnmanagedHeard:
    return UnmanagedHeard(allocation_id=run, silent_since=60.0)


@pytest.fixture
def world() -> World:
    """Return a machine with an unmanaged run whose rank is up."""
    world = World()
    world.tell(start(), *up())
    return world


def test_a_run_that_was_started_by_hand_takes_no_slot(world: World) -> None:
    world.tell(registered(slots=2), submitted(slots=2))
    assert world.allocation_state(2) == "STARTING"
    assert world.allocation_state(1) == "RUNNING"
    plan = make_plan(world.experiment(), world.trial(), world.allocation())
    assert (plan.allocation_id, plan.hparams, plan.slots) == ("1.1.1", {"lr": 0.1}, [PLACE])
    world.tell(*left())
    assert (world.experiment().state, world.trial().slot_seconds) == (State.COMPLETED, 0.0)


def test_a_repeated_start_begins_no_second_run(world: World) -> None:
    again = parse_event(start().model_dump_json())
    assert world.tell(again) == []
    assert world.trial().runs == 1
    world.tell(*left(), start())
    found = find_run(world.machine.state, "one")
    assert found is not None
    assert (found[0].state, found[1]) == (State.COMPLETED, None)


def test_the_times_are_those_of_the_run_even_if_it_is_taken_in_later(world: World) -> None:
    world.tell(*left())
    experiment = world.experiment()
    assert (experiment.created_at, experiment.ended_at, experiment.held_s) == (50.0, 80.0, 30.0)


def test_an_experiment_goes_on_under_its_name_from_its_checkpoint(world: World) -> None:
    world.tell(saved(20), *left(), ChangeDetails(experiment_id=1, add_labels=["mine"]))
    commands = world.tell(start("two", lr=0.2))
    assert [type(command) for command in commands] == [TruncateMetrics]
    assert world.experiment().labels == ["unmanaged", "mine"]
    assert (world.experiment().state, world.trial().runs) == (State.ACTIVE, 2)
    plan = make_plan(world.experiment(), world.trial(), world.allocation())
    assert (plan.steps_completed, plan.hparams) == (20, {"lr": 0.2})
    assert [change.text for change in world.trial().changes] == ["lr 0.1 → 0.2"]
    world.tell(*up("1.1.2"), *left("1.1.2"))
    assert world.experiment().state == State.COMPLETED


def test_without_a_checkpoint_nothing_that_was_reported_is_dropped(world: World) -> None:
    world.tell(*left())
    assert world.tell(start("two")) == []


def test_another_name_or_no_resume_begins_another_experiment(world: World) -> None:
    world.tell(start("two", name="other"), *left(), start("three", resume=False))
    assert [world.experiment(number).name for number in (1, 2, 3)] == ["base", "other", "base"]
    world.tell(*left("3.3.1"), start("four"))
    assert world.trial(3).runs == 2


def test_a_second_start_is_refused_while_the_first_one_reports(world: World) -> None:
    with pytest.raises(Conflict, match="'base', is running: process 7 on desk"):
        world.tell(start("two"))


def test_a_silent_run_is_an_alarm_and_may_be_replaced(world: World) -> None:
    world.tell(silent())
    assert "process 7 on desk has reported nothing since" in world.allocation().silence
    world.tell(UnmanagedHeard(allocation_id="1.1.1", silent_since=None))
    assert not world.allocation().silence
    world.tell(silent(), start("two"))
    assert (world.experiment().state, world.allocation().id) == (State.ACTIVE, "1.1.2")


@pytest.mark.parametrize(
    "event",
    [Pause(experiment_id=1), Kill(experiment_id=1), Activate(experiment_id=1),
     KillTrial(trial_id=1)],
)  # fmt: skip
def test_what_would_have_to_reach_its_process_is_refused(world: World, event: Any) -> None:
    with pytest.raises(Conflict, match=r"started by hand.*interrupt process 7 on desk"):
        world.tell(event)


@pytest.mark.parametrize("event", [Kill(experiment_id=1), Cancel(experiment_id=1)])
def test_a_silent_run_can_be_killed(world: World, event: Any) -> None:
    world.tell(silent())
    with pytest.raises(Conflict, match="by hand"):
        world.tell(Pause(experiment_id=1))
    commands = world.tell(event)
    assert world.experiment().state == State.CANCELED
    orders = [one.command for one in commands if isinstance(one, ToAgent)]
    assert not [one for one in orders if isinstance(one, SignalGang)]


@pytest.mark.parametrize(
    "end",
    [
        [failed(), exited(codes={0: 1}, first_failed=0)],
        [exited(codes={0: None}, error="process 7 on desk was killed")],
        [exited(codes={0: None}, lost=True)],
        [failed(no_room=True), exited(codes={0: 1}, first_failed=0)],
    ],
)
def test_a_run_that_failed_is_not_started_again(world: World, end: list[Any]) -> None:
    world.tell(*end)
    assert world.experiment().state == State.ERROR
    assert world.trial().failure is not None
    world.tell(start("two"))
    assert (world.experiment().state, world.trial().failure) == (State.ACTIVE, None)


def test_it_can_be_continued_only_by_its_own_program(world: World) -> None:
    world.tell(*left())
    with pytest.raises(Conflict, match=r"by hand.*start its program again, with name='base'"):
        world.tell(ContinueRequested(experiment_id=1, config=world.experiment().config))
    world.tell(Archive(experiment_id=1))
    with pytest.raises(Conflict, match="'base', is archived; unarchive it"):
        world.tell(start("two"))


def test_another_metric_is_refused(world: World) -> None:
    world.tell(*left())
    other = start("two")
    other.config["searcher"]["metric"] = "accuracy"
    with pytest.raises(ConfigError, match=r"searcher.metric: got 'accuracy', expected 'loss'"):
        world.tell(other)


@pytest.mark.parametrize(
    "codes", [{0: 1, 1: 0}, {0: 0, 1: 1}, {0: None, 1: None}], ids=["chief", "other", "killed"]
)
def test_a_rank_that_has_ended_well_hides_no_failure_of_another(codes: Any) -> None:
    world = World()
    other = PROCESS.model_copy(update={"rank": 1})
    world.tell(start(slots=[PLACE] * 2, ranks=[PROCESS, other]))
    world.tell(GangStarted(allocation_id="1.1.1", at=51.0, ranks=[PROCESS, other]))
    ended = RunEnded(at=70.0, reason="stopped", steps_completed=30)
    world.tell(RecordArrived(allocation_id="1.1.1", rank=1, record=ended), exited(codes=codes))
    assert world.experiment().state == State.ERROR


def test_a_run_that_is_taken_in_does_not_replace_what_is_further_on(world: World) -> None:
    world.tell(saved(20), *left())
    latest = world.trial().latest_checkpoint
    assert latest is not None
    assert world.tell(start("two", begun_from="")) == []
    assert world.trial().latest_checkpoint == latest
    assert (world.experiment().state, world.trial(2).experiment_id) == (State.COMPLETED, 2)
    world.tell(*left("2.2.1"))
    world.tell(start("three", begun_from=""))  # the newest one has no checkpoint
    assert world.trial(2).runs == 2


def test_a_run_that_is_taken_in_goes_on_from_the_latest_checkpoint(world: World) -> None:
    world.tell(saved(20), *left())
    latest = world.trial().latest_checkpoint
    assert latest is not None
    world.tell(start("two", begun_from=latest.uuid))
    assert world.trial().runs == 2


def test_a_run_that_was_ended_while_it_was_silent_is_not_whole(world: World) -> None:
    world.tell(silent(), start("two"))
    assert world.experiment().cut_keys == ["one"]
    world.tell(silent("1.1.2"), Kill(experiment_id=1))
    assert world.experiment().cut_keys == ["one", "two"]


def test_one_that_runs_is_archived_after_its_program_has_ended(world: World) -> None:
    with pytest.raises(Conflict, match="end its program, or wait until it has ended"):
        world.tell(Archive(experiment_id=1))


def test_a_run_that_says_that_it_is_complete_waits_for_nothing(world: World) -> None:
    ended = RunEnded(at=70.0, reason="completed", steps_completed=30)
    world.tell(RecordArrived(allocation_id="1.1.1", rank=0, record=ended), exited("1.1.1", {0: 0}))
    assert world.experiment().state == State.COMPLETED
