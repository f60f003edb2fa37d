"""How runs end: lines that log policies match, and failures while a run leaves."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.messages import (
    Cancel,
    CheckpointRef,
    Pause,
    SetPools,
    State,
)
from det_jupyter.master.machine.model.events import (
    Event,
    LogMatched,
)
from tests.unit.master.machine_world import (
    World,
    completed,
    ended,
    exited,
    failed,
    registered,
    running,
    saved,
    submitted,
)


def world_with(*events: Event, **changes: Any) -> World:
    """Return a machine with a running trial, and handle these events."""
    world = World()
    world.tell(registered(), submitted(**changes), *running(), *events)
    return world


def world_after(*events: Event, **changes: Any) -> World:
    """Return a machine whose only experiment had these events, and completed."""
    return world_with(*events, *completed(), exited(), **changes)


POLICIES = [
    {"name": "oom", "pattern": "out of memory", "action": "cancel_retries"},
    {"pattern": "ECC", "action": "exclude_node"},
]


def matched(action: Any, line: str, *, run: str = "1.1.1", rank: int = 1) -> LogMatched:
    pattern = {"cancel_retries": "out of memory", "exclude_node": "ECC"}[action]
    return LogMatched(allocation_id=run, rank=rank, pattern=pattern, action=action, line=line)


def test_a_failing_run_that_printed_what_a_policy_looks_for_is_not_tried_again() -> None:
    world = world_with(
        matched("cancel_retries", "CUDA out of memory, tried 2 GiB"),
        failed("RuntimeError: CUDA"),
        exited(codes={0: 1, 1: -9}, first_failed=0),
        log_policies=POLICIES,
    )
    assert world.trial().state is State.ERROR
    assert world.trial().restarts == 0
    assert world.experiment().state is State.ERROR
    assert world.experiment().message == (
        "trial 1: RuntimeError: CUDA; not tried again: log policy 'oom' (cancel_retries) fits "
        "what rank 1 printed: CUDA out of memory, tried 2 GiB"
    )


def test_a_run_that_ends_well_is_not_touched_by_what_it_printed() -> None:
    both = [matched("cancel_retries", "out of memory"), matched("exclude_node", "ECC")]
    world = world_after(*both, log_policies=POLICIES)
    assert world.trial().state is State.COMPLETED
    assert world.trial().message == ""
    assert world.trial().avoids == []


def test_a_run_that_was_preempted_is_tried_again_whatever_it_printed() -> None:
    world = world_with(matched("cancel_retries", "out of memory"), log_policies=POLICIES)
    world.tell(ended("preempted", 10), exited())
    assert world.trial().state is State.ACTIVE
    assert world.trial().message == ""
    assert not world.allocation().is_hopeless


def test_later_runs_avoid_the_agent_of_the_rank_that_printed_it() -> None:
    world = World()
    world.tell(registered(2), registered(2, agent_id="other"), submitted(log_policies=POLICIES))
    first = world.allocation().agent_id
    assert first is not None
    world.tell(*running(), matched("exclude_node", "uncorrectable ECC error"))
    assert world.trial().avoids == []  # until the run has ended
    world.tell(failed(), exited(codes={0: 1, 1: -9}, first_failed=0))
    assert world.trial().avoids == [first]
    assert world.trial().restarts == 1
    assert world.allocation().agent_id == ({"box", "other"} - {first}).pop()


def test_a_second_line_that_fits_says_nothing_new() -> None:
    world = world_with(matched("exclude_node", "ECC"), log_policies=POLICIES)
    world.tell(matched("exclude_node", "ECC again", rank=0))
    assert world.allocation().excludes == ["box"]
    world.tell(matched("cancel_retries", "out of memory"))
    message = world.trial().message
    world.tell(matched("cancel_retries", "out of memory again", rank=0))
    assert world.trial().message == message


def test_a_line_of_a_run_that_is_over_says_nothing() -> None:
    world = world_after(log_policies=POLICIES)
    assert world.tell(matched("cancel_retries", "out of memory")) == []
    assert world.trial().message == ""


def test_a_long_line_is_shown_in_part() -> None:
    world = world_with(matched("cancel_retries", "out of memory" + "!" * 500))
    assert world.trial().message.endswith("out of memory" + "!" * 187 + "…")


def test_whoever_saved_when_asked_to_leave_is_not_counted_a_failure() -> None:
    world = world_with(Pause(experiment_id=1), saved(30))
    world.tell(failed(rank=1), exited(codes={0: -9, 1: 1}, first_failed=1))
    assert world.trial().state is State.PAUSED
    assert world.trial().restarts == 0
    assert world.trial().failure is None
    assert world.trial().latest_checkpoint == CheckpointRef(
        uuid="ckpt30", path="/checkpoints/ckpt30", steps_completed=30
    )


@pytest.mark.parametrize("has_saved", [True, False])
def test_a_failure_while_making_room_counts_only_before_the_state_is_saved(
    has_saved: bool,
) -> None:
    world = World()
    scheduler = {"type": "priority", "preemption": True}
    world.tell(SetPools(pools=[{"pool_name": "default", "scheduler": scheduler}]))
    world.tell(registered(), submitted(slots=4, resources={"priority": 50}), *running(ranks=4))
    world.tell(submitted(slots=4, resources={"priority": 1}))
    assert world.allocation().preempted_by == 2
    world.tell(*([saved(30)] if has_saved else []), failed(rank=1))
    world.tell(exited(codes={0: -9, 1: 1, 2: -9, 3: -9}, first_failed=1))
    assert world.trial().restarts == (0 if has_saved else 1)
    assert world.allocation().id == "1.1.2"  # it waits for its next run
    assert world.trial(2).holds_slots


def test_a_canceled_trial_that_fails_before_it_has_saved_ends_in_error() -> None:
    world = world_with(Cancel(experiment_id=1), failed("ValueError: no"))
    world.tell(exited(codes={0: 1, 1: -9}, first_failed=0))
    assert world.trial().state is State.ERROR
    assert world.experiment().state is State.CANCELED
    assert world.experiment().message == "failed when it was canceled: ValueError: no"
