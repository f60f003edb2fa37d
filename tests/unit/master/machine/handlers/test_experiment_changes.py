"""Requests of users: submit, pause, activate, cancel, kill; and which trials get slots."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from det_jupyter.contract.messages import (
    Activate,
    AllocationState,
    Cancel,
    CheckpointRef,
    CloseRun,
    GangPlan,
    Kill,
    KillGang,
    KillTrial,
    Pause,
    SignalGang,
    StartGang,
    State,
)
from det_jupyter.contract.values.lengths import Length
from det_jupyter.errors import ConfigError, Conflict, NotFound
from det_jupyter.master.machine.machine import TruncateMetrics
from det_jupyter.master.machine.model.events import Event
from tests.problems import said
from tests.unit.master.machine_invariants import check_machine
from tests.unit.master.machine_world import (
    CAPSULE,
    World,
    completed,
    ended,
    exited,
    make_config,
    registered,
    running,
    saved,
    slot,
    submitted,
    validated,
)

PREEMPT = SignalGang(allocation_id="1.1.1", signal="preempt", timeout_s=3600.0)
AT_ONCE = KillGang(allocation_id="1.1.1")
KILL = KillGang(allocation_id="1.1.1", gives_up_uploads=True)
CLOSE = CloseRun(allocation_id="1.1.1")


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    check_machine(world.machine)


def make_plan(run: int = 1, checkpoint: CheckpointRef | None = None) -> GangPlan:
    return GangPlan(
        allocation_id=f"1.1.{run}",
        experiment_id=1,
        trial_id=1,
        run=run,
        python="/usr/bin/python3",
        cwd="/home/user",
        slots=[slot(0), slot(1)],
        agent_ids=["box", "box"],
        config=make_config(),
        hparams={"global_batch_size": 8, "lr": 0.1},
        seed=887852006,
        capsule=CAPSULE,
        checkpoint=checkpoint,
        target=Length("batches", 100),
    )


# Submission


def test_a_submitted_experiment_starts_at_once_where_slots_are_free(world: World) -> None:
    world.tell(registered())
    assert world.tell(submitted()) == [world.order(StartGang(plan=make_plan()))]
    assert world.experiment().state is State.ACTIVE
    assert world.trial().state is State.ACTIVE
    assert world.allocation_state() is AllocationState.STARTING
    assert world.allocation().started_at == world.now
    assert world.machine.changes().experiments == {1}
    assert world.machine.changes().trials == {1}


@pytest.mark.parametrize(
    ("profiling", "interval_s"),
    [
        ({}, 1.0),
        ({"enabled": True, "sampling_interval": 0.1}, 0.1),
        ({"enabled": False, "sampling_interval": 0.1}, None),
    ],
)
def test_a_gang_s_plan_says_how_often_its_machine_is_sampled(
    world: World, profiling: dict[str, object], interval_s: float | None
) -> None:
    world.tell(registered())
    (start,) = world.tell(submitted(profiling=profiling))
    assert start.command.plan.sampling_interval_s == interval_s  # type: ignore[union-attr]


def test_an_experiment_that_is_submitted_paused_holds_no_slots_until_it_is_activated(
    world: World,
) -> None:
    world.tell(registered())
    paused = submitted().model_copy(update={"is_paused": True})
    assert world.tell(paused) == []
    states = (world.machine.state.experiment(1).state, world.machine.state.trial(1).state)
    assert states == (State.PAUSED, State.PAUSED)
    assert world.tell(Activate(experiment_id=1)) == [world.order(StartGang(plan=make_plan()))]


def test_before_any_agent_is_there_a_trial_waits_and_says_so(world: World) -> None:
    assert world.tell(submitted()) == []
    assert world.allocation_state() is AllocationState.QUEUED
    assert world.waiting_for() == (
        "needs 2 slots; no agent of pool default is connected; starts when one comes that has them"
    )
    assert world.tell(registered()) == [world.order(StartGang(plan=make_plan()))]
    assert world.waiting_for() is None


def test_an_experiment_that_can_never_run_is_refused_with_what_could(world: World) -> None:
    world.tell(registered(slots=2))
    with pytest.raises(ConfigError) as refusal:
        world.tell(submitted(slots=8))
    assert said(refusal.value.problems) == [
        "resources.slots_per_trial: got 8, but pool default has 1 agent with 2 slots; "
        "values that can run: 1, 2"
    ]
    assert world.machine.state.experiments == {}
    world.tell(submitted())
    assert world.experiment(1).name == "digits"


def test_hyperparameters_are_drawn_from_the_experiment_s_seed(world: World) -> None:
    drawn = {"type": "double", "minval": 0.0, "maxval": 1.0}
    hparams = {"global_batch_size": 8, "lr": drawn}
    for seed in (3, 3, 4):
        world.tell(submitted(hyperparameters=hparams, reproducibility={"experiment_seed": seed}))
    first, twin, other = (world.trial(i) for i in (1, 2, 3))
    assert (first.seed, first.hparams) == (twin.seed, twin.hparams)
    assert first.hparams["lr"] != other.hparams["lr"]


# Slots


def test_who_does_not_fit_waits_and_starts_when_the_holder_has_ended(world: World) -> None:
    world.tell(registered(slots=2), submitted("first"))
    assert world.tell(submitted("second", slots=1)) == []
    assert world.waiting_for(2) == (
        "needs 1 slot; none of 2 is free; experiment 1 “first” (trial 1, priority 42, since "
        "00:01, notebook digits.ipynb) holds 2; starts when it ends or is paused"
    )
    world.tell(*running(), *completed())
    close, start = world.tell(exited())
    assert close == world.order(CLOSE)
    assert start.command.plan.allocation_id == "2.2.1"  # type: ignore[union-attr]
    assert world.waiting_for(2) is None


def test_the_more_urgent_experiment_goes_first_whenever_it_came(world: World) -> None:
    world.tell(
        submitted("usual", slots=2),
        submitted("urgent", slots=2, resources={"priority": 1}),
        registered(slots=2),
    )
    assert world.allocation_state(1) is AllocationState.QUEUED
    assert world.allocation_state(2) is AllocationState.STARTING


def test_a_smaller_later_trial_does_not_take_what_is_kept_for_one_ahead(world: World) -> None:
    world.tell(registered(slots=4), submitted(slots=3), submitted(slots=2), submitted(slots=1))
    states = [world.allocation_state(i) for i in (1, 2, 3)]
    assert states == [AllocationState.STARTING, AllocationState.QUEUED, AllocationState.QUEUED]


def test_a_smaller_later_trial_runs_where_the_one_ahead_could_not(world: World) -> None:
    world.tell(registered(slots=4), registered(slots=1, agent_id="small", session="s2"))
    world.tell(submitted(slots=3), submitted(slots=2), submitted(slots=1))
    assert world.allocation_state(2) is AllocationState.QUEUED
    assert world.allocation(3).agent_id == "small"


def test_the_reason_to_wait_is_told_anew_when_it_changes(world: World) -> None:
    world.tell(registered(slots=2), submitted("first"), submitted("second"))
    world.tell(Pause(experiment_id=1))
    assert world.waiting_for(2) == (
        "needs 2 slots; none of 2 is free; experiment 1 “first” (trial 1, priority 42, since "
        "00:01, notebook digits.ipynb) holds 2 and is leaving; starts when it has left, "
        "at the latest about 01:01"
    )


# Pause and activate


def test_a_running_trial_is_asked_to_leave_and_keeps_its_slots_until_it_has(world: World) -> None:
    world.tell(registered(slots=2), submitted(), *running())
    assert world.tell(Pause(experiment_id=1)) == [world.order(PREEMPT)]
    assert (world.experiment().state, world.trial().state) == (State.PAUSING, State.PAUSING)
    assert world.allocation_state() is AllocationState.STOPPING
    assert world.tell(submitted("second")) == []
    world.tell(saved(40), ended("preempted", 40))
    assert (world.experiment().state, world.trial().state) == (State.PAUSING, State.PAUSING)
    close, _ = world.tell(exited())
    assert (world.experiment().state, world.trial().state) == (State.PAUSED, State.PAUSED)
    assert close == world.order(CLOSE)
    assert world.allocation_state(1) is AllocationState.ENDED
    assert world.allocation_state(2) is AllocationState.STARTING


def test_a_pause_at_once_kills_the_ranks_and_counts_no_restart(world: World) -> None:
    world.tell(registered(), submitted(), *running(), saved(20))
    commands = world.tell(Pause(experiment_id=1, at_once=True))
    assert commands == [world.order(PREEMPT), world.order(AT_ONCE)]
    assert world.experiment().state is State.PAUSING
    world.tell(exited(codes={0: -9, 1: -9}, killed=True))
    assert (world.experiment().state, world.trial().state) == (State.PAUSED, State.PAUSED)
    assert (world.trial().restarts, world.trial().failure) == (0, None)
    world.tell(Activate(experiment_id=1))
    starts_from = world.allocation().starts_from
    assert starts_from is not None
    assert starts_from.steps_completed == 20


def test_ranks_that_do_not_leave_are_killed_by_a_second_pause_at_once(world: World) -> None:
    world.tell(registered(), submitted(), *running(), Pause(experiment_id=1))
    assert world.tell(Pause(experiment_id=1)) == []
    assert world.tell(Pause(experiment_id=1, at_once=True)) == [world.order(AT_ONCE)]
    assert world.allocation().asked_at is None
    world.tell(exited(killed=True))
    assert world.experiment().state is State.PAUSED
    assert world.tell(Pause(experiment_id=1, at_once=True)) == []


@pytest.mark.parametrize(
    ("request_", "state", "last"),
    [
        (Cancel(experiment_id=1), State.STOPPING_CANCELED, State.CANCELED),
        (Kill(experiment_id=1), State.STOPPING_KILLED, State.CANCELED),
    ],
)
def test_what_is_pausing_can_be_ended(
    world: World, request_: Cancel | Kill, state: State, last: State
) -> None:
    world.tell(registered(), submitted(), *running(), Pause(experiment_id=1), request_)
    assert (world.experiment().state, world.trial().state) == (state, state)
    world.tell(exited(killed=True))
    assert (world.experiment().state, world.trial().state) == (last, last)


def test_the_time_to_leave_is_the_configuration_s(world: World) -> None:
    world.tell(registered(), submitted(preemption_timeout=20), *running())
    (order,) = world.tell(Pause(experiment_id=1))
    assert order == world.order(PREEMPT.model_copy(update={"timeout_s": 20.0}))


def test_a_trial_that_is_starting_is_asked_to_leave_too(world: World) -> None:
    world.tell(registered(), submitted())
    assert world.tell(Pause(experiment_id=1)) == [world.order(PREEMPT)]
    assert world.allocation_state() is AllocationState.STOPPING


def test_a_waiting_trial_that_is_paused_leaves_the_queue(world: World) -> None:
    world.tell(submitted(), Pause(experiment_id=1))
    assert world.allocation_state() is AllocationState.ENDED
    assert world.waiting_for() is None
    assert world.tell(registered()) == []


def test_an_activated_trial_goes_on_from_its_latest_checkpoint(world: World) -> None:
    world.tell(registered(), submitted(), *running(), validated(20, 0.5), saved(20))
    world.tell(Pause(experiment_id=1), saved(40), ended("preempted", 40), exited())
    latest = CheckpointRef(uuid="ckpt40", path="/checkpoints/ckpt40", steps_completed=40)
    plan = make_plan(run=2, checkpoint=latest).model_copy(update={"best_metric": 0.5})
    assert world.tell(Activate(experiment_id=1)) == [
        TruncateMetrics(
            experiment_id=1,
            trial_id=1,
            run=2,
            steps_completed=40,
            cause=world.machine.state.seq,
        ),
        world.order(StartGang(plan=plan)),
    ]
    assert world.experiment().state is State.ACTIVE
    assert world.trial().state is State.ACTIVE
    assert world.trial().restarts == 0


def test_a_trial_activated_while_it_leaves_queues_when_it_has_left(world: World) -> None:
    world.tell(registered(), submitted(), *running(), Pause(experiment_id=1))
    assert world.tell(Activate(experiment_id=1)) == []
    assert world.allocation_state() is AllocationState.STOPPING
    world.tell(saved(40), ended("preempted", 40))
    commands = world.tell(exited())
    assert commands[0] == world.order(CLOSE)
    assert world.allocation().id == "1.1.2"
    assert world.allocation_state() is AllocationState.STARTING


def test_pausing_again_while_it_leaves_repeats_the_signal(world: World) -> None:
    world.tell(registered(), submitted(), *running())
    world.tell(Pause(experiment_id=1), Activate(experiment_id=1))
    assert world.tell(Pause(experiment_id=1)) == [world.order(PREEMPT)]
    world.tell(exited(killed=True))
    assert world.trial().state is State.PAUSED
    assert world.allocation_state() is AllocationState.ENDED


def test_a_paused_trial_that_was_at_its_end_is_completed(world: World) -> None:
    world.tell(registered(), submitted(), *running(), Pause(experiment_id=1))
    world.tell(*completed(), exited())
    assert world.trial().state is State.COMPLETED
    assert world.experiment().state is State.COMPLETED


# Cancel and kill


def test_a_canceled_trial_saves_its_state_before_it_ends(world: World) -> None:
    world.tell(registered(), submitted(), *running())
    assert world.tell(Cancel(experiment_id=1)) == [world.order(PREEMPT)]
    assert world.experiment().state is State.STOPPING_CANCELED
    assert world.trial().state is State.STOPPING_CANCELED
    world.tell(saved(40), ended("preempted", 40))
    assert world.tell(exited()) == [world.order(CLOSE)]
    assert world.trial().state is State.CANCELED
    assert world.experiment().state is State.CANCELED
    assert world.experiment().ended_at == world.trial().ended_at == world.now


def test_a_killed_trial_is_ended_at_once(world: World) -> None:
    world.tell(registered(), submitted(), *running())
    assert world.tell(Kill(experiment_id=1)) == [world.order(KILL)]
    assert world.experiment().state is State.STOPPING_KILLED
    assert world.tell(exited(killed=True)) == [world.order(CLOSE)]
    assert world.experiment().state is State.CANCELED
    assert world.trial().failure is None


def test_a_kill_overtakes_a_pause_and_each_is_told_as_it_is(world: World) -> None:
    world.tell(registered(), submitted(preemption_timeout=600), *running())
    assert world.waiting_for() is None
    world.tell(Pause(experiment_id=1))
    assert world.waiting_for() == (
        "pausing: asked 0 s ago to save its state; frees 2 slots then; killed at 00:11 "
        "(in 10 min) otherwise"
    )
    assert world.tell(Kill(experiment_id=1)) == [world.order(KILL)]
    assert world.waiting_for() == "stopping: it is being killed, which frees 2 slots"
    world.tell(exited(codes={0: -9, 1: -9}, killed=True))
    assert world.experiment().state is State.CANCELED
    assert world.waiting_for() is None


def test_a_cancel_may_be_followed_by_a_kill(world: World) -> None:
    world.tell(registered(), submitted(), *running(), Cancel(experiment_id=1))
    assert world.tell(Kill(experiment_id=1)) == [world.order(KILL)]
    assert world.trial().state is State.STOPPING_KILLED
    world.tell(exited(killed=True))
    assert world.experiment().state is State.CANCELED


def test_a_cancel_does_not_soften_a_kill(world: World) -> None:
    world.tell(registered(), submitted(), *running(), Kill(experiment_id=1))
    assert world.tell(Cancel(experiment_id=1)) == []
    assert world.experiment().state is State.STOPPING_KILLED


@pytest.mark.parametrize("request_", [Cancel, Kill])
@pytest.mark.parametrize("is_paused", [False, True])
def test_without_ranks_the_end_is_immediate(
    world: World, request_: type[Cancel | Kill], is_paused: bool
) -> None:
    world.tell(submitted())
    if is_paused:
        world.tell(Pause(experiment_id=1))
    assert world.tell(request_(experiment_id=1)) == []
    assert world.trial().state is State.CANCELED
    assert world.experiment().state is State.CANCELED
    assert world.tell(registered()) == []


def test_a_failure_on_the_way_out_is_none(world: World) -> None:
    world.tell(registered(), submitted(), *running(), Cancel(experiment_id=1))
    world.tell(exited(codes={0: 1, 1: -9}, first_failed=0))
    assert world.experiment().state is State.CANCELED
    assert world.trial().failure is None
    assert world.trial().restarts == 0


# Repetition, and requests that the state does not allow


def state_of(world: World) -> str:
    return world.machine.state.model_dump_json(exclude={"seq"})


@pytest.mark.parametrize(
    ("before", "request_"),
    [
        ([Pause(experiment_id=1)], Pause(experiment_id=1)),
        ([], Activate(experiment_id=1)),
        ([Cancel(experiment_id=1)], Cancel(experiment_id=1)),
        ([Kill(experiment_id=1)], Kill(experiment_id=1)),
        ([Kill(experiment_id=1)], Cancel(experiment_id=1)),
        ([Kill(experiment_id=1), exited(killed=True)], Kill(experiment_id=1)),
        ([*completed(), exited()], Cancel(experiment_id=1)),
        ([*completed(), exited()], Kill(experiment_id=1)),
    ],
)
def test_asking_for_what_is_so_already_changes_nothing(
    world: World, before: list[Event], request_: Event
) -> None:
    world.tell(registered(), submitted(), *running(), *before)
    state = state_of(world)
    assert world.tell(request_) == []
    assert state_of(world) == state
    assert world.machine.changes().trials == set()


@pytest.mark.parametrize(
    ("before", "request_", "sentence"),
    [
        ([Kill(experiment_id=1), exited(killed=True)], Pause(experiment_id=1),
         "experiment 1 is over (canceled) and cannot be paused; only one that is active can"),
        ([*completed(), exited()], Activate(experiment_id=1),
         "experiment 1 is over (completed) and cannot be activated; "
         "only one that is pausing or paused can"),
        ([Cancel(experiment_id=1)], Pause(experiment_id=1),
         "experiment 1 is stopping and cannot be paused; only one that is active can"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_and_changes_nothing(
    world: World, before: list[Event], request_: Event, sentence: str
) -> None:
    world.tell(registered(), submitted(), *running(), *before)
    state = world.machine.state.model_dump_json()
    with pytest.raises(Conflict) as refusal:
        world.tell(request_)
    assert str(refusal.value) == sentence
    assert world.machine.state.model_dump_json() == state


@pytest.mark.parametrize("request_", [Pause, Activate, Cancel, Kill])
def test_an_experiment_that_is_not_there_is_not_found(world: World, request_: type[Pause]) -> None:
    with pytest.raises(NotFound, match="there is no experiment 9"):
        world.tell(request_(experiment_id=9))
    assert world.machine.state.seq == 0


def test_one_experiment_s_requests_leave_the_others_alone(world: World) -> None:
    world.tell(registered(), submitted(), submitted(), *running(), *running("2.2.1"))
    world.tell(Kill(experiment_id=1), exited(killed=True))
    assert world.experiment(2).state is State.ACTIVE
    assert world.allocation_state(2) is AllocationState.RUNNING


def test_a_trial_can_tell_its_story(world: World) -> None:
    world.tell(registered(), submitted(), Pause(experiment_id=1), exited(killed=True))
    assert world.trial().story == [
        "#2 run 1 queued",
        "#2 to train to 100 batches",
        "#2 run 1 starts on box",
        "#3 asked to pause",
        "#4 run 1 ended: preempted",
    ]
    world.tell(Kill(experiment_id=1))
    assert world.trial().story == []  # a search may have a million trials


def test_all_trials_leave_though_one_is_killed_already() -> None:
    world = World()
    searcher = {"name": "random", "metric": "error", "max_trials": 3, "max_length": {"batches": 9}}
    world.tell(registered(slots=2), submitted(slots=1, searcher=searcher))
    world.tell(*running("1.1.1", ranks=1), *running("1.2.1", ranks=1))
    world.tell(KillTrial(trial_id=1), Cancel(experiment_id=1))
    assert [world.trial(number).state for number in (1, 2, 3)] == [
        State.STOPPING_KILLED, State.STOPPING_CANCELED, State.CANCELED,
    ]  # fmt: skip
