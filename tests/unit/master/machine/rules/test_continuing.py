"""An experiment that is over is continued under its own number."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from det_jupyter.contract.messages import (
    Archive,
    Cancel,
    CheckpointRef,
    Delete,
    Kill,
    KillTrial,
    SetRetention,
    State,
)
from det_jupyter.contract.values.lengths import Length
from det_jupyter.errors import ConfigError, Conflict
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.machine.model.events import ContentSetAside, ContinueRequested
from det_jupyter.master.machine.model.state import MachineState
from det_jupyter.master.machine.rules.continuing import changed_values
from det_jupyter.master.machine.rules.trial_orders import changes_of
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
    validated,
)

LR = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}, "global_batch_size": 8}


def single(**changes: Any) -> World:
    world = World()
    world.tell(registered(), submitted(**changes), *running())
    return world


def search(name: str = "random", slots: int = 4, **searcher: Any) -> World:
    """Return a search of one-slot trials, at most 2 at a time."""
    world = World()
    section = {
        "name": name,
        "metric": "error",
        "max_length": {"batches": 100},
        "max_concurrent_trials": 2,
    }
    if name == "random":
        section["max_trials"] = 4
    lr = LR if name == "random" else LR | {"lr": LR["lr"] | {"count": 4}}  # type: ignore[operator]
    world.tell(
        registered(slots), submitted(slots=1, searcher=section | searcher, hyperparameters=lr)
    )
    return world


def again(world: World, experiment_id: int = 1, **changes: Any) -> ContinueRequested:
    """Return the request to continue, with sections of the configuration changed."""
    config = copy.deepcopy(world.experiment(experiment_id).config)
    for key, value in changes.items():
        config[key] = config[key] | value if isinstance(value, dict) else value
    return ContinueRequested(experiment_id=experiment_id, config=config)


def complete(world: World, trial_id: int, run: int = 1) -> None:
    name = f"1.{trial_id}.{run}"
    world.tell(*running(name, 1), *completed(allocation_id=name), exited(name, codes={0: 0}))


def fail(world: World, trial_id: int, run: int = 1, *, final: bool = True) -> None:
    name = f"1.{trial_id}.{run}"
    world.tell(*running(name, 1), failed(final=final, allocation_id=name))
    world.tell(exited(name, codes={0: 1}, first_failed=0))


def states(world: World) -> list[State]:
    return [world.trial(trial_id).state for trial_id in world.experiment().trial_ids]


def at_work(world: World) -> list[int]:
    """Return the trials that queue or hold slots."""
    return [
        trial.id
        for trial in world.machine.state.trials.values()
        if not (trial.state.is_terminal or trial.is_resting)
    ]


# single


def test_a_canceled_trial_goes_on_from_its_last_checkpoint() -> None:
    world = single()
    world.tell(validated(30, 0.3), saved(30), Cancel(experiment_id=1))
    world.tell(saved(40), ended("preempted", 40), exited())
    assert world.experiment().state is State.CANCELED
    world.tell(again(world))
    assert (world.experiment().state, world.trial().state) == (State.ACTIVE, State.ACTIVE)
    assert world.experiment().ended_at is None
    assert world.trial().ended_at is None
    assert world.trial().exit_reason is None
    assert world.allocation().id == "1.1.2"
    assert world.allocation().starts_from == CheckpointRef(
        uuid="ckpt40", path="/checkpoints/ckpt40", steps_completed=40
    )
    world.tell(*running("1.1.2"), *completed(allocation_id="1.1.2"), exited("1.1.2"))
    assert world.experiment().state is State.COMPLETED
    assert world.experiment().trial_ids == [1]


def test_a_trial_that_failed_is_given_all_its_restarts_again() -> None:
    world = single(max_restarts=1)
    for run in (1, 2):
        world.tell(failed(f"ValueError: {run}", allocation_id=f"1.1.{run}"))
        world.tell(exited(f"1.1.{run}", codes={0: 1, 1: -9}, first_failed=0))
    assert world.experiment().state is State.ERROR
    world.tell(again(world))
    assert world.trial().restarts == 0
    assert world.trial().failure is None
    assert world.trial().message == world.experiment().message == ""


def test_a_completed_trial_trains_on_to_a_farther_end() -> None:
    world = single()
    world.tell(saved(100), *completed(), exited())
    world.tell(again(world, searcher={"max_length": {"batches": 150}}))
    assert world.trial().target == Length("batches", 150)
    assert world.allocation().starts_from is not None
    assert world.experiment().config["searcher"]["max_length"] == {"batches": 150}
    assert world.experiment().origins["searcher.max_length.batches"] == "you"
    world.tell(*running("1.1.2"), *completed(150, "1.1.2"), exited("1.1.2"))
    assert world.experiment().state is State.COMPLETED


@pytest.mark.parametrize("batches", [100, 50])
def test_a_completed_trial_with_nothing_more_to_train_is_not_continued(batches: int) -> None:
    world = single()
    world.tell(saved(100), *completed(), exited())
    with pytest.raises(Conflict) as caught:
        world.tell(again(world, searcher={"max_length": {"batches": batches}}))
    assert str(caught.value) == (
        "experiment 1 has been completed, cannot continue this experiment; give it more to "
        "train: a greater max_length"
    )
    assert world.experiment().state is State.COMPLETED


def test_the_hyperparameters_that_are_overridden_change_and_drawn_ones_stay() -> None:
    drawn = {"type": "double", "minval": 0.0, "maxval": 1.0}
    world = single(hyperparameters={"global_batch_size": 8, "lr": 0.1, "momentum": drawn})
    momentum, seed = world.trial().hparams["momentum"], world.trial().seed
    world.tell(failed(final=True), exited(codes={0: 1, 1: -9}, first_failed=0))
    world.tell(again(world, hyperparameters={"lr": 0.5}))
    assert world.trial().hparams == {"global_batch_size": 8, "lr": 0.5, "momentum": momentum}
    assert world.trial().seed == seed
    (change,) = world.trial().changes
    assert change.sentence == "lr 0.1 → 0.5 after batch 0"
    assert change.former_hparams == {"lr": 0.1}
    assert changes_of(world.trial()) == []  # nothing that its ranks repeat


def test_what_was_without_effect_before_is_in_nobody_s_way() -> None:
    world = single(workspace="lab", project="vision")
    world.tell(Cancel(experiment_id=1), ended("preempted", 0), exited())
    world.tell(again(world, max_restarts=9))
    assert world.experiment().config["max_restarts"] == 9


def test_priority_and_limits_follow_the_override() -> None:
    world = single()
    world.tell(saved(10), Cancel(experiment_id=1), ended("preempted", 10), exited())
    world.tell(again(world, resources={"priority": 7, "max_slots": 2, "weight": 3.0}))
    experiment = world.experiment()
    assert (experiment.priority, experiment.max_slots, experiment.weight) == (7, 2, 3.0)


def test_more_slots_than_there_are_cannot_be_asked_for() -> None:
    world = single()
    world.tell(saved(10), Cancel(experiment_id=1), ended("preempted", 10), exited())
    with pytest.raises(ConfigError, match="slots_per_trial"):
        world.tell(again(world, resources={"slots_per_trial": 64}))
    assert world.experiment().state is State.CANCELED


@pytest.mark.parametrize(
    ("section", "change", "problem"),
    [
        ("searcher", {"metric": "loss"}, "searcher.metric: got 'loss', expected 'error'"),
        ("entrypoint", "Other", "entrypoint: got 'Other', expected 'Digits'"),
        ("checkpoint_storage", {"host_path": "/else"}, "checkpoint_storage.host_path: got"),
        ("resources", {"resource_pool": "big"}, "resources.resource_pool: got 'big'"),
    ],
)
def test_what_its_past_depends_on_cannot_be_overridden(
    section: str, change: Any, problem: str
) -> None:
    world = single()
    world.tell(Cancel(experiment_id=1), ended("preempted", 0), exited())
    with pytest.raises(ConfigError, match=problem):
        world.tell(again(world, **{section: change}))


def test_a_trial_whose_checkpoints_were_deleted_is_not_begun_anew_in_secret() -> None:
    world = single()
    world.tell(saved(30), Cancel(experiment_id=1), ended("preempted", 30), exited())
    world.tell(
        SetRetention(
            experiment_id=1, save_experiment_best=0, save_trial_best=0, save_trial_latest=0
        )
    )
    with pytest.raises(Conflict, match="trial 1: the checkpoints to go on from were deleted"):
        world.tell(again(world))


def test_a_trial_goes_on_from_the_newest_checkpoint_that_was_kept() -> None:
    world = single(checkpoint_storage={"save_trial_latest": 0})
    world.tell(validated(10, 0.1), saved(10), validated(20, 0.2), saved(20))
    world.tell(Cancel(experiment_id=1), ended("preempted", 20), exited())
    world.tell(again(world))
    starts_from = world.allocation().starts_from
    assert starts_from is not None
    assert starts_from.uuid == "ckpt10"
    assert world.trial().metrics_by_step == {10: 0.1}


def test_a_trial_that_never_saved_begins_anew() -> None:
    world = single()
    world.tell(failed(final=True), exited(codes={0: 1, 1: -9}, first_failed=0))
    world.tell(again(world))
    assert world.allocation().starts_from is None


def test_what_is_not_over_or_was_put_away_or_deleted_is_not_continued() -> None:
    world = single()
    with pytest.raises(Conflict, match="experiment 1 is active; only one that is over"):
        world.tell(again(world))
    world.tell(Cancel(experiment_id=1), ended("preempted", 0), exited())
    world.tell(Archive(experiment_id=1))
    with pytest.raises(Conflict, match="experiment 1 is archived"):
        world.tell(again(world))
    world.tell(Delete(experiment_id=1))
    with pytest.raises(Conflict, match="experiment 1 is being deleted; only one that is over"):
        world.tell(again(world))


# random and grid


@pytest.mark.parametrize("name", ["random", "grid"])
def test_a_canceled_search_goes_on_with_its_trials_and_then_makes_the_others(name: str) -> None:
    undisturbed = search(name)
    for trial_id in (1, 2, 3, 4):
        complete(undisturbed, trial_id)
    world = search(name)
    complete(world, 1)
    world.tell(*running("1.2.1", 1), saved(30, allocation_id="1.2.1"))
    world.tell(Cancel(experiment_id=1))
    for trial_id in (2, 3):
        run = f"1.{trial_id}.1"
        world.tell(ended("preempted", 30, allocation_id=run), exited(run, codes={0: 0}))
    assert states(world) == [State.COMPLETED, State.CANCELED, State.CANCELED]
    world.tell(again(world))
    assert states(world) == [State.COMPLETED, State.ACTIVE, State.ACTIVE]
    starts_from = world.allocation(2).starts_from
    assert starts_from is not None
    assert starts_from.uuid == "ckpt30"
    assert world.allocation(3).starts_from is None
    complete(world, 2, run=2)
    assert at_work(world) == [3, 4]
    complete(world, 3, run=2)
    complete(world, 4)
    assert world.experiment().state is State.COMPLETED
    for trial_id in (1, 2, 3, 4):
        theirs, ours = undisturbed.trial(trial_id), world.trial(trial_id)
        assert (ours.hparams, ours.seed) == (theirs.hparams, theirs.seed)


def test_no_more_trials_go_on_at_a_time_than_the_search_allows() -> None:
    world = search(max_trials=4)
    for trial_id in (1, 2, 3, 4):
        fail(world, trial_id)
    assert world.experiment().state is State.ERROR
    world.tell(again(world))
    assert states(world) == [State.ACTIVE] * 4
    assert at_work(world) == [1, 2]
    complete(world, 2, run=2)
    assert at_work(world) == [1, 3]
    for trial_id in (1, 3, 4):
        complete(world, trial_id, run=2)
    assert world.experiment().state is State.COMPLETED


def test_a_search_that_goes_on_survives_a_restart_of_the_master() -> None:
    world = search(max_trials=4)
    for trial_id in (1, 2, 3, 4):
        fail(world, trial_id)
    world.tell(again(world))
    world.machine = Machine(MachineState.model_validate_json(world.machine.dump()))
    for trial_id in (1, 2, 3, 4):
        complete(world, trial_id, run=2)
    assert world.experiment().state is State.COMPLETED


def test_a_trial_that_waits_for_its_turn_to_go_on_can_be_killed() -> None:
    world = search(max_trials=3)
    for trial_id in (1, 2, 3):
        fail(world, trial_id)
    world.tell(again(world), KillTrial(trial_id=3))
    assert states(world) == [State.ACTIVE, State.ACTIVE, State.CANCELED]
    for trial_id in (1, 2):
        complete(world, trial_id, run=2)
    assert world.experiment().state is State.COMPLETED


def test_a_search_that_goes_on_can_be_canceled_again() -> None:
    world = search(max_trials=3)
    for trial_id in (1, 2, 3):
        fail(world, trial_id)
    world.tell(again(world), Cancel(experiment_id=1))
    for trial_id in (1, 2):
        world.tell(exited(f"1.{trial_id}.2", codes={0: 0}))
    assert states(world) == [State.CANCELED] * 3
    assert world.experiment().state is State.CANCELED


def test_a_search_of_which_every_trial_was_completed_is_not_continued() -> None:
    world = search()
    for trial_id in (1, 2, 3, 4):
        complete(world, trial_id)
    with pytest.raises(Conflict) as caught:
        world.tell(again(world))
    assert str(caught.value) == (
        "experiment 1 has been completed, cannot continue this experiment"
    )


def test_a_trial_with_invalid_hyperparameters_and_its_replacement_are_skipped() -> None:
    world = search()
    world.tell(*running("1.1.1", 1), ended("invalid_hp", 0))
    world.tell(exited(codes={0: 1}, first_failed=0))
    for trial_id in (2, 3, 4):
        complete(world, trial_id)
    fail(world, 5)
    assert world.experiment().state is State.COMPLETED
    world.tell(again(world))
    assert at_work(world) == [5]
    complete(world, 5, run=2)
    assert world.experiment().state is State.COMPLETED
    assert len(world.experiment().trial_ids) == 5


def test_a_search_with_many_completed_trials_goes_on_where_it_was() -> None:
    most = 1200  # more than the recursion limit
    world = search(max_trials=most, max_concurrent_trials=1)
    handle = world.machine.handle
    for trial_id in range(1, most):
        name = f"1.{trial_id}.1"
        for event in (*completed(allocation_id=name), exited(name, codes={0: 0})):
            handle(event, now=200.0 + trial_id)
    fail(world, most)
    world.tell(again(world))
    assert at_work(world) == [most]
    complete(world, most, run=2)
    assert world.experiment().state is State.COMPLETED


def test_only_the_configuration_of_a_single_one_can_be_overridden() -> None:
    world = search(max_trials=1)
    fail(world, 1)
    with pytest.raises(Conflict, match="only that of a single one can be overridden"):
        world.tell(again(world, max_restarts=9))


@pytest.mark.parametrize("name", ["async_halving", "adaptive_asha"])
def test_a_search_that_compares_trials_is_not_continued(name: str) -> None:
    world = World()
    section = {"name": name, "metric": "error", "max_length": {"batches": 9}, "max_trials": 2}
    if name == "async_halving":
        section |= {"num_rungs": 2}
    space = dict(LR)
    world.tell(registered(), submitted(slots=1, searcher=section, hyperparameters=space))
    world.tell(Cancel(experiment_id=1))
    for trial in list(world.machine.state.trials.values()):
        if trial.allocation is not None and trial.holds_slots:
            world.tell(exited(trial.allocation.id, codes={0: 0}))
    assert world.experiment().state is State.CANCELED
    with pytest.raises(Conflict, match=f"a search by {name}, which cannot be continued"):
        world.tell(again(world))


def test_what_began_with_a_checkpoint_that_is_gone_is_not_continued_from_scratch() -> None:
    world = World()
    world.tell(registered(), submitted(), *running(), saved(50), *completed(), exited())
    second = submitted("second")
    second.config["searcher"]["source_trial_id"] = 1
    world.tell(second, Kill(experiment_id=2), exited("2.2.1"))
    world.tell(Delete(experiment_id=1))

    with pytest.raises(Conflict, match="the checkpoints to go on from were deleted"):
        world.tell(ContinueRequested(experiment_id=2, config=world.experiment(2).config))


def test_nothing_begins_with_a_checkpoint_of_an_experiment_that_is_being_deleted() -> None:
    world = World()
    world.tell(registered(), submitted(), *running(), saved(50), *completed(), exited())
    world.tell(Delete(experiment_id=1))

    second = submitted("second")
    second.config["searcher"]["source_trial_id"] = 1
    with pytest.raises(ConfigError, match="trial 1 has no checkpoint to begin with"):
        world.tell(second)


def test_an_experiment_that_was_given_up_is_judged_again_once_it_is_continued() -> None:
    world = single()
    world.tell(ContentSetAside(experiment_id=1, what="x", is_fatal=True), exited())
    assert world.experiment().state is State.ERROR
    world.tell(again(world), *running("1.1.2"), *completed(allocation_id="1.1.2"))
    world.tell(exited("1.1.2"))
    assert world.experiment().state is world.trial().state is State.COMPLETED


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, {"b": 3}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": 1, "y": 3}}, {"a": {"y": 3}}),
        ({"a": {"x": 1}}, {"a": {"x": 1}}, {}),
        ({"a": {"x": 1}}, {"a": 5}, {"a": 5}),
        ({"a": 5}, {"a": {"x": 1}}, {"a": {"x": 1}}),
        ({}, {"a": None, "b": {"x": 1}}, {"b": {"x": 1}}),
    ],
)
def test_what_of_a_configuration_is_not_as_it_was(old: Any, new: Any, changed: Any) -> None:
    assert changed_values(old, new) == changed
