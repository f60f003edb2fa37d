"""Restarts at the last step, after a rank was killed and the others have saved it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from det_jupyter.contract.messages import MemoryShortage, State
from det_jupyter.contract.run.journal import CheckpointSaved, LastStepSaved
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.master.machine.model.commands import DeleteCheckpoints
from det_jupyter.master.machine.model.events import Event, RecordArrived
from det_jupyter.master.machine.rules import recovering
from tests.unit.master.machine_invariants import check_machine
from tests.unit.master.machine_world import (
    World,
    exited,
    first_step,
    registered,
    running,
    saved,
    submitted,
)


@pytest.fixture
def world() -> Iterator[World]:
    """Return a machine with a trial of 2 ranks that trains, and may not be restarted."""
    world = World()
    world.tell(registered(), submitted(max_restarts=0), *running())
    yield world
    check_machine(world.machine)


def death(run: int, steps: int, *, is_saved: bool = True, **facts: Any) -> list[Event]:
    """Return the events of the death of rank 1 in batch `steps` of a run."""
    name = f"1.1.{run}"
    record = LastStepSaved(at=79.5, steps_completed=steps, repeats=1)
    last = RecordArrived(allocation_id=name, rank=0, record=record)
    checkpoint = [saved(steps, allocation_id=name)] if is_saved else []
    codes = {0: 1, 1: -9}
    facts = {"first_failed": 1, "batch": steps, "ended_at": 79.0} | facts
    return [*checkpoint, last, exited(name, codes=codes, **facts)]


def later(event: RecordArrived, by_s: float) -> RecordArrived:
    """Return the event with a record that was written later."""
    assert isinstance(event.record, CheckpointSaved)
    record = replace(event.record, at=event.record.at + by_s)
    return RecordArrived(allocation_id=event.allocation_id, rank=event.rank, record=record)


def test_a_recovery_is_no_restart_and_says_what_happened_and_what_it_cost(world: World) -> None:
    world.tell(*death(1, 1204, memory=MemoryShortage()))
    trial = world.trial()
    assert (trial.state, trial.restarts, trial.num_recoveries) == (State.ACTIVE, 0, 1)
    what = "rank 1 was killed (out of memory) at batch 1,204"
    assert trial.recoveries[0].sentence == f"{what}; 1 batch to be repeated"
    world.tell(*running("1.1.2"))
    changes = world.machine.handle(first_step(79.7, "1.1.2"), 90.0)
    assert changes == []
    sentence = f"{what}; went on after 0.7 s, 1 batch repeated"
    assert world.trial().recoveries[0].sentence == sentence
    alerts = world.machine.changes().alerts
    assert [(one.kind, one.text) for one in alerts] == [
        (AlertKind.RECOVERED, f"trial 1: {sentence}")
    ]


def test_the_third_death_in_the_same_batch_ends_the_trial_with_its_reason(world: World) -> None:
    for run in (1, 2):  # the second time, the checkpoint is there
        world.tell(*death(run, 30, is_saved=run == 1), *running(f"1.1.{run + 1}"))
    assert world.trial().num_recoveries == 2
    world.tell(*death(3, 30, is_saved=False))
    trial = world.trial()
    assert (trial.state, trial.num_recoveries) == (State.ERROR, 2)
    assert trial.message.startswith("rank 1 was killed by SIGKILL (by hand, or out of memory)")
    assert trial.message.endswith("in batch 30. Failed 3 times with the same error.")


def test_deaths_with_progress_are_no_restarts_up_to_a_bound(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovering, "MAX_RECOVERIES", 4)
    for run in range(1, 5):
        world.tell(*death(run, 10 * run), *running(f"1.1.{run + 1}"))
        assert world.trial().state is State.ACTIVE
    world.tell(*death(5, 50))
    assert world.trial().state is State.ERROR


def test_of_two_computers_that_save_the_last_step_one_checkpoint_is_kept(world: World) -> None:
    world.tell(saved(20))
    *both, end = death(1, 30)
    again = [saved(30, "of rank 1"), both[1]]
    commands = world.tell(*both, *again)
    assert [one.paths for one in commands if isinstance(one, DeleteCheckpoints)] == [
        {"ckpt30": "/checkpoints/ckpt30"}
    ]
    world.tell(end)
    trial = world.trial()
    assert (trial.checkpoints, trial.num_recoveries) == (["ckpt20", "of rank 1"], 1)


@pytest.mark.parametrize("is_noted", [True, False])
def test_ranks_that_save_an_earlier_step_later_do_not_take_the_trial_back(
    world: World, is_noted: bool
) -> None:
    world.tell(saved(20))
    checkpoint, note, end = death(1, 30)
    late = later(saved(29, "of rank 1"), by_s=2.0)
    late_note = death(1, 29)[1]
    arrived = [note, late, late_note] if is_noted else [late, note, late_note]
    commands = world.tell(checkpoint, *arrived)
    assert [one.paths for one in commands if isinstance(one, DeleteCheckpoints)] == [
        {"of rank 1": "/checkpoints/of rank 1"}
    ]
    world.tell(end)
    trial = world.trial()
    assert (trial.checkpoints, trial.num_recoveries) == (["ckpt20", "ckpt30"], 1)
    assert trial.latest_checkpoint is not None
    assert trial.latest_checkpoint.steps_completed == 30


@pytest.mark.parametrize(
    "events",
    [
        death(1, 30, is_saved=False),
        [saved(30), exited(codes={0: 1, 1: -9}, first_failed=1)],
        [*death(1, 30)[:-1], exited(codes={0: 1, 1: 1}, first_failed=1)],
    ],
    ids=["its checkpoint is not stored", "no step was saved", "an error of its own"],
)
def test_other_failures_are_no_recoveries(world: World, events: list[Event]) -> None:
    world.tell(*events)
    assert (world.trial().state, world.trial().recoveries) == (State.ERROR, [])
