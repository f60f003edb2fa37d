"""Runs of other tools become experiments that are over."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.messages import (
    Capsule,
    Delete,
    DropCheckpoints,
    ImportedCheckpoint,
    ImportedTrial,
    ImportExperiment,
    MoveCheckpoints,
    SearchView,
    SetRetention,
    State,
)
from det_jupyter.errors import ConfigError, Conflict
from det_jupyter.master.machine.model.commands import DeleteExperiment
from det_jupyter.master.machine.model.events import (
    ContinueRequested,
    ExperimentDeleted,
    parse_event,
)
from tests.unit.master.machine_world import CAPSULE, World, make_config, submitted


def imported_trial(source: str, **changes: Any) -> ImportedTrial:
    fields: dict[str, Any] = {
        "source": source,
        "state": "COMPLETED",
        "hparams": {"lr": 0.1},
        "created_at": 10.0,
        "ended_at": 20.0,
        "steps_completed": 100,
    }
    return ImportedTrial(**fields | changes)


def imported(*trials: ImportedTrial, key: str = "key", **changes: Any) -> ImportExperiment:
    fields: dict[str, Any] = {
        "config": make_config(),
        "capsule": Capsule(entrypoint="imported", sources="0" * 64),
        "python": "",
        "cwd": "/",
        "key": key,
        "source": "/logs",
        "trials": list(trials),
    }
    return ImportExperiment(**fields | changes)


@pytest.fixture
def world() -> World:
    """Return a machine with an imported experiment of two trials."""
    world = World()
    first = imported_trial("a", validations={50: 0.5, 100: 0.25})
    second = imported_trial("b", state="ERROR", created_at=5.0, ended_at=40.0)
    assert world.tell(imported(first, second)) == []
    return world


def test_an_imported_experiment_is_over_with_the_times_and_values_of_its_runs(
    world: World,
) -> None:
    experiment = world.experiment()
    assert (experiment.state, experiment.created_at, experiment.ended_at) == (
        State.COMPLETED, 5.0, 40.0,
    )  # fmt: skip
    assert experiment.best_metric == 0.25
    assert [world.trial(number).state for number in (1, 2)] == [State.COMPLETED, State.ERROR]
    first = world.trial()
    assert (first.hparams, first.best_metric, first.latest_metric) == ({"lr": 0.1}, 0.25, 0.25)
    assert (first.created_at, first.ended_at, first.slot_seconds) == (10.0, 20.0, 0.0)
    assert world.trial(2).best_metric is None


def test_the_time_elapsed_is_that_in_which_a_run_trained() -> None:
    world = World()
    times = {"a": (0.0, 10.0), "b": (5.0, 20.0), "c": (6.0, 7.0), "d": (100.0, 130.0)}
    trials = [
        imported_trial(name, created_at=begin, ended_at=end)
        for name, (begin, end) in times.items()
    ]
    world.tell(imported(*trials))
    assert [world.trial(number).held_s for number in (1, 2, 3, 4)] == [10.0, 15.0, 1.0, 30.0]
    assert world.experiment().held_s == 50.0


def test_an_experiment_whose_runs_all_failed_has_failed() -> None:
    world = World()
    world.tell(imported(imported_trial("a", state="ERROR"), imported_trial("b", state="ERROR")))
    assert world.experiment().state is State.ERROR


def test_larger_values_are_better_if_the_configuration_says_so() -> None:
    world = World()
    config = make_config()
    config["searcher"]["smaller_is_better"] = False
    world.tell(imported(imported_trial("a", validations={1: 0.5, 2: 0.25}), config=config))
    assert (world.trial().best_metric, world.trial().latest_metric) == (0.5, 0.25)


def test_another_import_adds_what_is_new_and_doubles_nothing(world: World) -> None:
    again = imported_trial("a", validations={50: 0.5, 100: 0.25, 150: 0.125}, ended_at=60.0)
    world.tell(imported(again, imported_trial("b", state="ERROR"), imported_trial("c")))
    assert list(world.machine.state.experiments) == [1]
    assert [trial.source for trial in world.machine.state.trials.values()] == ["a", "b", "c"]
    experiment = world.experiment()
    assert (experiment.best_metric, experiment.ended_at) == (0.125, 60.0)
    assert experiment.search_view is not None
    assert experiment.search_view.max_trials == 3


def test_another_import_keeps_what_the_user_has_named(world: World) -> None:
    world.experiment().reconfigure(world.experiment().config | {"name": "mine"})
    world.tell(imported(imported_trial("a")))
    assert world.experiment().name == "mine"


def test_another_import_with_another_metric_is_refused(world: World) -> None:
    config = make_config()
    config["searcher"]["metric"] = "accuracy"
    with pytest.raises(Conflict, match=r"searcher.metric error, and this import accuracy"):
        world.tell(imported(imported_trial("a"), config=config))


def test_a_configuration_that_is_not_valid_is_refused() -> None:
    world = World()
    with pytest.raises(ConfigError):
        world.tell(imported(imported_trial("a"), config={"name": "no searcher"}))
    assert not world.machine.state.experiments


def test_it_cannot_be_continued_or_forked_without_its_code(world: World) -> None:
    with pytest.raises(Conflict, match="was imported from /logs and cannot be continued"):
        world.tell(ContinueRequested(experiment_id=1, config=make_config()))
    with pytest.raises(Conflict, match="was imported from /logs and cannot be forked"):
        world.tell(submitted().model_copy(update={"parent_id": 1}))


def test_it_can_be_deleted_and_imported_again(world: World) -> None:
    world.tell(Delete(experiment_id=1), ExperimentDeleted(experiment_id=1))
    world.tell(imported(imported_trial("a")))
    assert list(world.machine.state.experiments) == [2]
    assert world.trial(3).source == "a"


def test_the_event_is_the_same_after_it_was_stored() -> None:
    event = imported(imported_trial("a", validations={50: 0.5}))
    assert parse_event(event.model_dump_json()) == event


def checkpoint(uuid: str, steps: int) -> ImportedCheckpoint:
    return ImportedCheckpoint(
        uuid=uuid, path=f"/c/{uuid}", steps_completed=steps, size_bytes=7, created_at=15.0
    )


def whole(**changes: Any) -> ImportExperiment:
    """Return the import of an experiment with its code and two checkpoints of a trial."""
    trial = imported_trial(
        "7", state="CANCELED", validations={50: 0.5}, runs=2, seed=5, held_s=3.0,
        checkpoints=[checkpoint("old", 50), checkpoint("new", 100)],
    )  # fmt: skip
    return imported(trial, capsule=CAPSULE, **{"source": "digits.zip"} | changes)


def test_an_experiment_with_its_code_goes_on_from_its_latest_checkpoint() -> None:
    world = World()
    world.tell(whole())
    trial = world.trial()
    assert (trial.checkpoints, trial.seed, trial.held_s) == (["old", "new"], 5, 3.0)
    assert trial.latest_checkpoint is not None
    assert (trial.latest_checkpoint.uuid, trial.latest_checkpoint.path) == ("new", "/c/new")
    world.tell(ContinueRequested(experiment_id=1, config=make_config()))
    assert world.experiment().state is State.ACTIVE


def test_importing_it_again_doubles_no_checkpoint() -> None:
    world = World()
    world.tell(whole(), whole())
    assert world.trial().checkpoints == ["old", "new"]


def test_nothing_is_added_to_an_imported_experiment_that_was_continued() -> None:
    world = World()
    world.tell(whole(), ContinueRequested(experiment_id=1, config=make_config()))
    world.trial().runs, world.trial().state = 3, State.CANCELED
    world.experiment().state = State.CANCELED
    with pytest.raises(Conflict, match="was continued here since, so nothing can be added"):
        world.machine.handle(whole(), 200.0)


def test_files_of_another_tools_checkpoints_are_deleted_by_nothing() -> None:
    world, trial = World(), whole().trials[0]
    foreign = [one.model_copy(update={"is_foreign": True}) for one in trial.checkpoints]
    world.tell(whole(trials=[trial.model_copy(update={"checkpoints": foreign})]))
    none = SetRetention(
        experiment_id=1, save_experiment_best=0, save_trial_best=0, save_trial_latest=0
    )
    assert world.tell(none) == []
    with pytest.raises(Conflict, match="checkpoint old was imported: its files, /c/old, belong"):
        world.machine.handle(DropCheckpoints(uuids=["old"]), 200.0)
    with pytest.raises(Conflict, match=r"old was imported.* belong to another tool; copy it"):
        world.machine.handle(MoveCheckpoints(uuids=["old"], location="/elsewhere"), 200.0)
    (deletion,) = world.tell(Delete(experiment_id=1))
    assert isinstance(deletion, DeleteExperiment)
    assert deletion.paths == {}


def test_a_checkpoint_of_another_experiment_is_refused_and_nothing_changes() -> None:
    world = World()
    world.tell(whole())
    with pytest.raises(Conflict, match=r"digits.zip: its checkpoint old is one of experiment 1"):
        world.tell(whole(key="other"))
    assert list(world.machine.state.experiments) == [1]


def test_an_imported_search_keeps_its_state_and_rungs() -> None:
    search = SearchView(name="random", max_trials=9, num_created=1, num_closed=1)
    world = World()
    world.tell(whole(state="CANCELED", search=search))
    assert (world.experiment().state, world.experiment().search_view) == (State.CANCELED, search)
