"""A run from its start to its end: ranks start, report, and exit in several ways."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from det_jupyter.contract.messages import (
    Activate,
    AllocationState,
    Cancel,
    CheckpointRef,
    CheckpointView,
    CloseRun,
    FailureView,
    GangPlan,
    Kill,
    Loss,
    Pause,
    RankView,
    StartGang,
    State,
)
from det_jupyter.contract.run.journal import Notice
from det_jupyter.contract.values.text import clock
from det_jupyter.master.machine.machine import Command, ToAgent, TruncateMetrics
from det_jupyter.master.machine.model.events import Event, LossReported, RecordArrived, RoomFound
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.master.machine.rules.outcome import LOST_BY_OTHERS, MAX_LOSSES
from tests.unit.master.machine_invariants import check_machine
from tests.unit.master.machine_world import (
    World,
    completed,
    ended,
    exited,
    failed,
    first_step,
    registered,
    running,
    saved,
    slot,
    started,
    submitted,
    up,
    validated,
)


@pytest.fixture
def world() -> Iterator[World]:
    """Return a machine with an agent of 4 slots and a trial of 2 that is started there."""
    world = World()
    world.tell(registered(), submitted())
    yield world
    check_machine(world.machine)


def plan_in(commands: list[Command]) -> GangPlan:
    (plan,) = [
        command.command.plan
        for command in commands
        if isinstance(command, ToAgent) and isinstance(command.command, StartGang)
    ]
    return plan


def checkpoint_ref(steps: int) -> CheckpointRef:
    return CheckpointRef(
        uuid=f"ckpt{steps}", path=f"/checkpoints/ckpt{steps}", steps_completed=steps
    )


# Start


def test_a_run_is_running_when_all_its_ranks_are_up(world: World) -> None:
    world.tell(started(note="forked"))
    assert world.allocation().launch_note == "forked"
    world.tell(up(1))
    assert world.allocation_state() is AllocationState.STARTING
    assert world.tell(up(0)) == []
    assert world.allocation_state() is AllocationState.RUNNING
    assert world.allocation().ranks == [
        RankView(
            rank=rank,
            pid=1000 + rank,
            slot=slot(rank),
            connection_file=f"/runs/kernel-{rank}.json",
            output_file=f"/runs/output-{rank}",
            backend="gloo",
            device="cpu",
        )
        for rank in (0, 1)
    ]


def test_ranks_may_be_up_before_the_agent_has_said_that_they_were_started(world: World) -> None:
    world.tell(up(0), up(1))
    assert world.allocation_state() is AllocationState.STARTING
    world.tell(started())
    assert world.allocation_state() is AllocationState.RUNNING
    assert [rank.device for rank in world.allocation().ranks] == ["cpu", "cpu"]


def test_being_told_twice_of_the_start_is_harmless(world: World) -> None:
    world.tell(*running())
    before = world.allocation().model_dump()
    world.tell(started(), up(0))
    assert world.allocation().model_dump() == before


def test_ranks_that_come_up_while_they_are_asked_to_leave_are_still_leaving(world: World) -> None:
    world.tell(Pause(experiment_id=1), *running())
    assert world.allocation_state() is AllocationState.STOPPING


def test_the_first_step_is_the_first_one_reported(world: World) -> None:
    world.tell(*running(), first_step(at=52.0), first_step(at=53.0))
    assert world.allocation().first_step_at == 52.0


# Metrics and checkpoints


def test_the_best_metric_follows_the_searcher_s_direction() -> None:
    for smaller_is_better, best in ((True, 0.2), (False, 0.7)):
        world = World()
        world.tell(registered(), submitted(smaller_is_better=smaller_is_better))
        world.tell(validated(10, 0.5), validated(20, 0.2), validated(30, 0.7))
        assert world.trial().best_metric == best
        assert world.trial().latest_metric == 0.7


def test_a_metric_that_is_no_number_is_never_the_best(world: World) -> None:
    world.tell(validated(10, math.nan))
    assert world.trial().best_metric is None
    world.tell(validated(20, 0.9), validated(30, math.nan))
    assert world.trial().best_metric == 0.9
    assert math.isnan(world.trial().latest_metric or 0.0)


def test_a_validation_without_the_searcher_s_metric_changes_nothing(world: World) -> None:
    world.tell(validated(10, 0.5), validated(20, None))
    assert world.trial().latest_metric == 0.5


@pytest.mark.parametrize("is_saved_first", [True, False])
def test_a_checkpoint_has_the_metric_of_the_validation_at_its_step(
    world: World, is_saved_first: bool
) -> None:
    both: list[Event] = [saved(20), validated(20, 0.4)]
    world.tell(saved(10), *(both if is_saved_first else both[::-1]))
    assert world.machine.changes().checkpoints == {"ckpt20"}
    assert world.machine.state.checkpoints["ckpt20"] == CheckpointView(
        uuid="ckpt20",
        experiment_id=1,
        trial_id=1,
        steps_completed=20,
        path="/checkpoints/ckpt20",
        size_bytes=1000,
        created_at=80.0,
        searcher_metric=0.4,
    )
    assert world.machine.state.checkpoints["ckpt10"].searcher_metric is None


def test_another_trial_s_validation_is_not_this_checkpoint_s(world: World) -> None:
    world.tell(submitted(), saved(20), validated(20, 0.4, "2.2.1"))
    assert world.machine.state.checkpoints["ckpt20"].searcher_metric is None


# Ends


@pytest.mark.parametrize("reason", ["completed", "stopped"])
def test_a_run_that_was_trained_to_its_end_completes_trial_and_experiment(
    world: World, reason: str
) -> None:
    world.tell(*running(), *(completed() if reason == "completed" else [ended(reason)]))
    assert not world.trial().state.is_terminal  # until its ranks are gone
    assert world.tell(exited()) == [world.order(CloseRun(allocation_id="1.1.1"))]
    assert world.trial().state is State.COMPLETED
    assert world.experiment().state is State.COMPLETED
    assert world.experiment().message == ""
    assert world.experiment().ended_at == world.trial().ended_at == world.now
    assert world.machine.changes().experiments == {1}


def test_hyperparameters_that_cannot_work_end_the_trial_with_the_reason(world: World) -> None:
    why = "width must be divisible by heads"
    world.tell(*running(), ended("invalid_hp", 0, why, rank=1), failed("echo", rank=0))
    world.tell(exited(codes={0: -9, 1: 1}, first_failed=1))
    assert world.trial().state is State.COMPLETED
    assert world.trial().failure is None
    assert world.experiment().state is State.COMPLETED
    assert world.experiment().message == f"invalid hyperparameters: {why}"


def test_an_older_checkpoint_of_another_rank_that_arrives_late_is_not_the_latest(
    world: World,
) -> None:
    by_survivor = saved(25).model_copy(update={"rank": 1})
    world.tell(*running(), by_survivor, saved(20))
    assert world.trial().latest_checkpoint == checkpoint_ref(25)
    assert world.trial().checkpoints == ["ckpt20", "ckpt25"]
    late = saved(10)  # the user's code has gone back to an earlier batch
    world.tell(late.model_copy(update={"record": replace(late.record, at=100.0)}))
    assert world.trial().latest_checkpoint == checkpoint_ref(10)


def test_a_failed_run_is_tried_again_from_the_latest_checkpoint(world: World) -> None:
    world.tell(*running(), validated(20, 0.5), saved(20), validated(30, 0.1))
    world.tell(failed(rank=1))
    close, truncate, start = world.tell(exited(codes={0: -9, 1: 1}, first_failed=1))
    assert close == world.order(CloseRun(allocation_id="1.1.1"))
    assert truncate == TruncateMetrics(
        experiment_id=1,
        trial_id=1,
        run=2,
        steps_completed=20,
        cause=world.machine.state.seq,
    )
    assert plan_in([start]).allocation_id == "1.1.2"
    assert plan_in([start]).checkpoint == checkpoint_ref(20)
    assert plan_in([start]).best_metric == 0.5  # the 0.1 is void: it will be reported again
    assert world.trial().restarts == 1
    assert world.trial().latest_metric == 0.5
    assert world.trial().failure == FailureView(
        rank=1,
        exit_code=1,
        error="ValueError: no",
        where="Cell In[5], line 12, in train_batch",
        traceback="Traceback of ValueError: no",
        at=71.0,
    )


def test_a_run_that_had_saved_nothing_is_tried_again_from_scratch(world: World) -> None:
    world.tell(*running(), validated(20, 0.5))
    _, truncate, start = world.tell(exited(codes={0: -9, 1: None}, first_failed=0))
    assert truncate == TruncateMetrics(
        experiment_id=1,
        trial_id=1,
        run=2,
        steps_completed=0,
        cause=world.machine.state.seq,
    )
    assert plan_in([start]).checkpoint is None
    assert plan_in([start]).best_metric is None
    assert world.trial().best_metric is None


def test_the_latest_metric_that_is_kept_is_that_of_the_last_step(world: World) -> None:
    reports = [validated(20, 0.5), validated(10, 0.9), validated(40, 0.1)]  # out of order
    world.tell(*running(), *reports, saved(20), failed())
    world.tell(exited(codes={0: 1, 1: -9}, first_failed=0))
    assert world.trial().metrics_by_step == {10: 0.9, 20: 0.5}
    assert world.trial().latest_metric == 0.5


def test_the_best_metric_falls_back_to_that_of_a_trial_that_has_ended() -> None:
    world = World()
    length = {"metric": "error", "max_length": {"batches": 100}}
    searcher = {"name": "random", "max_trials": 2, "smaller_is_better": True, **length}
    world.tell(registered(slots=2), submitted(slots=1, searcher=searcher))
    world.tell(*running("1.1.1", 1), *running("1.2.1", 1), validated(50, 0.4, "1.1.1"))
    world.tell(*completed(allocation_id="1.1.1"), exited("1.1.1", codes={0: 0}))
    world.tell(saved(10, allocation_id="1.2.1"), validated(20, 0.2, "1.2.1"))
    assert world.experiment().best_metric == 0.2
    world.tell(failed(allocation_id="1.2.1"), exited("1.2.1", codes={0: 1}, first_failed=0))
    assert world.trial(2).best_metric is None
    assert world.experiment().best_metric == 0.4
    assert world.machine.changes().experiments == {1}


def test_run_whose_last_checkpoint_could_not_be_uploaded_is_not_completed(world: World) -> None:
    world.tell(*running(), ended("completed", 100, rank=1))  # by another rank than the chief
    world.tell(exited(error="no upload", error_is_final=False, no_room=True, not_saved=True))
    assert world.trial().state is State.ACTIVE
    assert world.waiting_for() == "waits for room on a full disk and goes on when there is some"
    world.tell(RoomFound(trial_id=1), *running("1.1.2"), exited("1.1.2"))


@pytest.mark.parametrize(("restarts", "counted"), [(1, "1 restart"), (2, "2 restarts")])
def test_after_the_last_restart_the_experiment_ends_with_the_trial_s_error(
    restarts: int, counted: str
) -> None:
    world = World()
    world.tell(registered(), submitted(max_restarts=restarts))
    for run in range(1, restarts + 2):
        id = f"1.1.{run}"
        assert world.trial().state is State.ACTIVE
        world.tell(*running(id), failed(f"ValueError: no {run}", allocation_id=id))
        world.tell(exited(id, codes={0: 1, 1: -9}, first_failed=0))
    assert world.trial().state is State.ERROR
    assert world.trial().restarts == restarts
    assert world.experiment().state is State.ERROR
    error = f"ValueError: no {restarts + 1}"
    assert world.experiment().message == f"trial 1: {error} (after {counted})"


def test_code_that_fails_twice_at_the_same_place_is_not_tried_again(world: World) -> None:
    for id in ("1.1.1", "1.1.2"):
        world.tell(*running(id), failed(allocation_id=id))
        world.tell(exited(id, codes={0: 1, 1: -9}, first_failed=0))
    assert world.trial().state is State.ERROR
    assert world.trial().restarts == 1
    assert world.experiment().message.endswith("ValueError: no. Failed twice with the same error.")


def test_code_that_fails_in_the_same_batch_is_given_up_though_it_saved_meanwhile(
    world: World,
) -> None:
    for run, id in enumerate(("1.1.1", "1.1.2"), start=1):
        world.tell(*running(id), saved(10 + run, allocation_id=id), failed(allocation_id=id))
        world.tell(exited(id, codes={0: 1, 1: -9}, first_failed=0, first_ended=0, batch=20))
    assert world.trial().state is State.ERROR
    assert world.trial().restarts == 1


def test_code_that_fails_again_after_a_checkpoint_is_tried_again(world: World) -> None:
    for run, id in enumerate(("1.1.1", "1.1.2"), start=1):
        world.tell(*running(id), saved(10 * run, allocation_id=id), failed(allocation_id=id))
        world.tell(exited(id, codes={0: 1, 1: -9}, first_failed=0))
    assert world.trial().state is State.ACTIVE


def test_a_failure_that_would_come_again_is_not_tried_again(world: World) -> None:
    world.tell(*running(), failed("ConfigError: searcher.metric", final=True))
    commands = world.tell(exited(codes={0: 1, 1: -9}, first_failed=0))
    assert commands == [world.order(CloseRun(allocation_id="1.1.1"))]
    assert world.experiment().state is State.ERROR
    assert world.experiment().message == "trial 1: ConfigError: searcher.metric"
    assert world.trial().restarts == 0


def test_a_gang_that_could_not_be_started_ends_the_trial(world: World) -> None:
    world.tell(exited(codes={0: None, 1: None}, error="no module named torch"))
    assert world.experiment().message == "trial 1: no module named torch"
    assert world.trial().state is State.ERROR


def test_a_lost_run_is_tried_again_and_not_counted(world: World) -> None:
    world.tell(*running(), saved(20))
    commands = world.tell(exited(codes={0: None, 1: None}, lost=True))
    assert plan_in(commands).checkpoint == checkpoint_ref(20)
    assert world.trial().restarts == 0
    assert world.trial().failure is None


def lose(world: World, run: int, loss: Loss = Loss.AGENT) -> None:
    world.tell(exited(f"1.1.{run}", codes={0: None, 1: None}, lost=True, loss=loss))


def test_a_trial_whose_runs_are_lost_again_and_again_before_they_train_has_failed(
    world: World,
) -> None:
    seen = [Loss.AGENT, Loss.FORK_SERVER, Loss.SILENCE, Loss.UNKNOWN, Loss.AGENT]
    for run, loss in enumerate(seen[:4], start=1):
        lose(world, run, loss)
        assert world.trial().state is State.ACTIVE
    lose(world, 5)
    assert world.trial().state is State.ERROR
    assert world.trial().restarts == 0
    at = clock(80.0)
    assert world.experiment().message == (
        "trial 1: lost 5 times in a row before the first step: "
        f"run 1 at {at}: agent box died; run 2 at {at}: the fork server of agent box died; "
        f"run 3 at {at}: agent box has not answered any more; "
        f"run 4 at {at}: agent box or its fork server died; run 5 at {at}: agent box died; "
        "the machine may be out of memory; see agent.log"
    )


@pytest.mark.parametrize("loss", LOST_BY_OTHERS)
def test_runs_that_are_lost_by_the_doing_of_others_are_never_too_many(
    world: World, loss: Loss
) -> None:
    for run in range(1, 3 * MAX_LOSSES):
        lose(world, run, loss)
        assert world.trial().state is State.ACTIVE
    assert (world.trial().losses, world.trial().restarts) == ([], 0)
    for run in range(3 * MAX_LOSSES, 4 * MAX_LOSSES):
        lose(world, run)
    assert world.trial().state is State.ERROR


def test_the_story_of_a_trial_says_with_what_a_run_was_lost(world: World) -> None:
    lose(world, 1, Loss.MASTER)
    assert "run 1 ended: lost (agent box was without the master for too long)" in "".join(
        world.trial().story
    )


def test_a_number_of_losses_that_an_older_version_has_stored_is_dropped(world: World) -> None:
    stored = world.trial().model_dump() | {"losses": 4}
    assert Trial.model_validate(stored).losses == []


def test_losses_with_training_in_between_are_never_too_many(world: World) -> None:
    for run in range(1, 5):
        lose(world, run)
    for run in range(5, 12):
        id = f"1.1.{run}"
        world.tell(*running(id), first_step(allocation_id=id))
        lose(world, run)
    assert world.trial().state is State.ACTIVE
    for run in range(12, 16):
        lose(world, run)
    assert world.trial().state is State.ACTIVE


def test_a_start_that_failed_for_a_passing_reason_is_tried_again_and_counted(
    world: World,
) -> None:
    commands = world.tell(
        exited(codes={0: None, 1: None}, error="too many open files", error_is_final=False)
    )
    assert plan_in(commands).allocation_id == "1.1.2"
    assert world.trial().restarts == 1


def test_a_run_killed_at_the_deadline_counts_as_preempted(world: World) -> None:
    world.tell(*running(), saved(20), Pause(experiment_id=1))
    world.tell(exited(codes={0: -9, 1: -9}, killed=True))
    assert world.trial().state is State.PAUSED
    assert world.trial().restarts == 0
    assert plan_in(world.tell(Activate(experiment_id=1))).checkpoint == checkpoint_ref(20)


def test_a_failure_while_paused_counts_and_the_trial_stays_paused(world: World) -> None:
    world.tell(*running(), Pause(experiment_id=1), failed())
    assert world.tell(exited(codes={0: 1, 1: -9}, first_failed=0)) == [
        world.order(CloseRun(allocation_id="1.1.1"))
    ]
    assert world.trial().state is State.PAUSED
    assert world.trial().restarts == 1
    assert plan_in(world.tell(Activate(experiment_id=1))).run == 2


def test_the_last_failure_while_paused_ends_it() -> None:
    world = World()
    world.tell(registered(), submitted(max_restarts=0), *running())
    world.tell(Pause(experiment_id=1), failed())
    world.tell(exited(codes={0: 1, 1: -9}, first_failed=0))
    assert world.experiment().state is State.ERROR
    assert world.experiment().message == "trial 1: ValueError: no"


def test_an_earlier_failure_is_still_told_when_the_trial_completes(world: World) -> None:
    world.tell(*running(), failed(), exited(codes={0: 1, 1: -9}, first_failed=0))
    world.tell(*running("1.1.2"), *completed(allocation_id="1.1.2"), exited("1.1.2"))
    assert world.experiment().state is State.COMPLETED
    assert world.experiment().message == ""
    assert world.trial().failure is not None


# Outdated reports


@pytest.mark.parametrize("id", ["", "1", "1.1", "1.x.1", "1.1.1.1", "2.9.1", "1.1.2"])
def test_a_name_of_no_run_finds_none(world: World, id: str) -> None:
    assert world.machine.state.find_allocation("1.1.1") is not None
    assert world.machine.state.find_allocation(id) is None


@pytest.mark.parametrize(
    "news",
    [
        started(),
        up(0),
        first_step(),
        validated(10, 0.1),
        saved(10),
        *completed(),
        failed(),
        exited(lost=True),
    ],
)
@pytest.mark.parametrize("is_canceled", [False, True])
def test_news_of_a_run_that_is_over_changes_nothing(
    world: World, news: Event, is_canceled: bool
) -> None:
    world.tell(*running())
    if is_canceled:
        world.tell(Cancel(experiment_id=1))
    world.tell(exited(lost=True))
    before = world.machine.state.model_dump_json(exclude={"seq"})
    assert world.tell(news) == []
    assert world.machine.state.model_dump_json(exclude={"seq"}) == before


# Time that a run held slots


def test_slot_seconds_add_up_over_the_runs_of_a_trial(world: World) -> None:
    world.tell(*running())
    started_at = world.allocation().started_at
    assert started_at is not None
    world.tell(Pause(experiment_id=1), exited())
    used = world.trial().slot_seconds
    assert used == 2 * (world.now - started_at) > 0
    world.tell(Activate(experiment_id=1), *running("1.1.2"))
    started_again_at = world.allocation().started_at
    assert started_again_at is not None
    world.tell(*completed(allocation_id="1.1.2"), exited(allocation_id="1.1.2"))
    assert world.trial().slot_seconds == used + 2 * (world.now - started_again_at)
    assert world.trial().held_s == world.trial().slot_seconds / 2


def test_a_pause_is_not_counted_as_time_that_slots_were_held(world: World) -> None:
    world.tell(*running())
    began = world.experiment().held_since
    assert began == world.allocation().started_at
    world.tell(Pause(experiment_id=1), exited())
    held_s = world.experiment().held_s
    assert held_s == world.now - (began or 0.0) > 0
    world.now += 1000.0
    world.tell(Activate(experiment_id=1), *running("1.1.2"))
    again = world.experiment().held_since or 0.0
    world.tell(*completed(allocation_id="1.1.2"), exited(allocation_id="1.1.2"))
    experiment = world.experiment()
    assert experiment.held_s == held_s + (world.now - again) == world.trial().held_s
    assert experiment.held_since is None


# Notices of ranks


def test_alarms_are_kept_apart_from_other_notices_each_once(world: World) -> None:
    world.tell(*running())
    for text, is_alarm in [("slow", False), ("loss is nan", True), ("loss is nan", True)]:
        notice = Notice(at=1.0, rank=1, text=text, is_alarm=is_alarm)
        world.tell(RecordArrived(allocation_id="1.1.1", rank=1, record=notice))
    assert (world.trial().notices, world.trial().alarms) == (["slow"], ["loss is nan"])


def test_a_trainer_without_callback_is_a_fact_of_the_trial_and_no_notice(world: World) -> None:
    world.tell(*running())
    notice = Notice(at=1.0, rank=0, text="`f` calls it plainly", trainer="keras.Model")
    world.tell(RecordArrived(allocation_id="1.1.1", rank=0, record=notice))
    assert (world.trial().plain_trainer, world.trial().notices) == ("keras.Model", [])


# Training that diverges


NAN, INF = math.nan, math.inf


def lost(value: float, steps: int = 41, metric: str = "loss") -> LossReported:
    return LossReported(allocation_id="1.1.1", metric=metric, steps_completed=steps, value=value)


@pytest.mark.parametrize(
    ("reports", "message"),
    [
        ([lost(NAN)], "loss is NaN since batch 40"),
        ([lost(INF, metric="d_loss"), validated(100, 0.5)], "d_loss is infinite since batch 40"),
        ([validated(50, NAN), validated(100, NAN)], "error is NaN since batch 50"),
        ([lost(NAN), lost(NAN, 60), validated(100, NAN)], "loss is NaN since batch 40"),
    ],
)
def test_a_trial_that_diverges_to_its_end_has_failed_and_is_not_tried_again(
    world: World, reports: list[Event], message: str
) -> None:
    world.tell(*running(), *reports)
    assert str(world.trial().divergence) == message
    assert world.trial().state is State.ACTIVE, "training goes on"
    world.tell(*completed(), exited())
    assert (world.trial().state, world.trial().message) == (State.ERROR, message)
    assert world.experiment().state is State.ERROR
    assert world.experiment().message == f"trial 1: {message}"
    assert world.trial().restarts == 0


@pytest.mark.parametrize(
    "reports",
    [
        [lost(NAN), lost(0.5, 60)],
        [validated(50, INF), validated(100, 0.5)],
        [validated(50, 0.5), validated(100, None)],
    ],
)
def test_what_is_finite_at_the_end_is_no_failure(world: World, reports: list[Event]) -> None:
    world.tell(*running(), *reports)
    assert world.trial().divergence is None
    world.tell(*completed(), exited())
    assert world.experiment().state is State.COMPLETED


@pytest.mark.parametrize(
    ("report", "is_over"),
    [
        (lost(NAN, 100), False),  # batch 99 is in the checkpoint
        (lost(NAN, 101), True),  # batch 100 is the first after it
        (validated(100, NAN), False),
        (validated(101, NAN), True),
    ],
)
def test_what_diverged_after_the_checkpoint_is_forgotten_when_it_resumes(
    world: World, report: Event, is_over: bool
) -> None:
    alarm = Notice(at=1.0, rank=0, text="Loss became NaN", is_alarm=True)
    notice = RecordArrived(allocation_id="1.1.1", rank=0, record=alarm)
    world.tell(*running(), saved(100), report, notice, failed(), exited())
    assert world.trial().runs == 2
    assert (world.trial().divergence is None) is is_over
    assert world.trial().alarms == ([] if is_over else ["Loss became NaN"])


def test_a_trial_that_is_canceled_or_invalid_ends_as_that(world: World) -> None:
    world.tell(*running(), lost(NAN), ended("invalid_hp", message="lr"), exited())
    assert world.trial().state is State.COMPLETED
    world.tell(submitted(), *running("2.2.1"))
    report = LossReported(allocation_id="2.2.1", metric="loss", steps_completed=1, value=NAN)
    world.tell(report, Kill(experiment_id=2), exited("2.2.1", killed=True))
    assert world.experiment(2).state is State.CANCELED
