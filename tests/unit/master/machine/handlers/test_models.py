"""The registry of models: what is registered, renamed and refused, and what is kept for it."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.messages import (
    CreateModel,
    Delete,
    DeleteModel,
    DeleteVersion,
    DropCheckpoints,
    EditModel,
    EditVersion,
    RegisterVersion,
    SetAlias,
    SetRetention,
)
from det_jupyter.errors import ConfigError, Conflict, DetError, NotFound
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.machine.model.commands import DeleteCheckpoints
from det_jupyter.master.machine.model.events import CheckpointsDeleted, Event
from det_jupyter.master.machine.model.state import MachineState, Model
from tests.unit.master.machine_world import (
    World,
    completed,
    exited,
    registered,
    running,
    saved,
    submitted,
    validated,
)

KEEP_ALL = {"save_experiment_best": 0, "save_trial_best": 9, "save_trial_latest": 9}


@pytest.fixture
def world() -> World:
    """A machine whose only experiment has completed with checkpoints at 10, 20 and 30."""
    world = World()
    world.tell(
        registered(), submitted(checkpoint_storage=KEEP_ALL), *running(),
        saved(10), validated(10, 0.1), saved(20), validated(20, 0.2), saved(30),
        *completed(), exited(),
        CreateModel(name="digits", labels=["vision"], metadata={"owner": "ada"}),
    )  # fmt: skip
    return world


def register(uuid: str, **fields: Any) -> RegisterVersion:
    return RegisterVersion(model="digits", uuid=uuid, **fields)


def model(world: World) -> Model:
    return world.machine.state.model("digits")


def test_versions_are_numbered_and_a_number_is_not_given_twice(world: World) -> None:
    world.tell(register("ckpt10"), register("ckpt20", comment="better", aliases=["production"]))
    assert [(v.number, v.uuid) for v in model(world).versions] == [(1, "ckpt10"), (2, "ckpt20")]
    assert model(world).aliases == {"production": 2}
    world.tell(DeleteVersion(model="digits", number=2), register("ckpt20"))
    assert [v.number for v in model(world).versions] == [1, 3]
    assert model(world).aliases == {}


def test_an_alias_is_of_one_version_at_a_time(world: World) -> None:
    world.tell(register("ckpt10", aliases=["production", "old"]), register("ckpt20"))
    world.tell(SetAlias(model="digits", alias="production", number=2))
    assert model(world).aliases == {"production": 2, "old": 1}
    world.tell(SetAlias(model="digits", alias="old", number=None))
    assert model(world).aliases == {"production": 2}


def test_details_are_added_to_and_removed_from_what_there_is(world: World) -> None:
    world.tell(
        register("ckpt10", labels=["a"]),
        EditModel(
            model="digits", name="figures", description="reads", add_labels=["good"],
            remove_labels=["vision"], add_metadata={"n": 1}, remove_metadata=["owner"],
        ),
        EditVersion(model="figures", number=1, comment="first", add_labels=["b"]),
    )  # fmt: skip
    found = world.machine.state.model("figures")
    assert (found.description, found.labels, found.metadata) == ("reads", ["good"], {"n": 1})
    assert (found.versions[0].comment, found.versions[0].labels) == ("first", ["a", "b"])
    assert found.updated_at == world.now > found.created_at


@pytest.mark.parametrize(
    ("event", "error", "said"),
    [
        (CreateModel(name="digits"), Conflict, "there is a model digits already"),
        (CreateModel(name=""), ConfigError, r"name: got '', expected 1 to 100 characters"),
        (CreateModel(name="a/b"), ConfigError, r"name: got 'a/b', .* without /"),
        (CreateModel(name=".."), ConfigError, "not only dots"),
        (CreateModel(name=" a"), ConfigError, "without / or spaces"),
        (CreateModel(name="x", labels=["a\n"]), ConfigError, "labels: got"),
        (CreateModel(name="x", metadata={"k": "v" * 100_000}), ConfigError, "metadata: 100,009"),
        (EditModel(model="digits"), ConfigError, "nothing to change"),
        (EditModel(model="digits", name="taken"), Conflict, "there is a model taken already"),
        (EditModel(model="digits", add_metadata={"a": 1}, remove_metadata=["a"]), ConfigError,
         "'a' is both to set and to remove"),
        (register("nope"), NotFound, "there is no checkpoint nope"),
        (register("ckpt10"), Conflict, "ckpt10 is version 1 of model digits already"),
        (register("ckpt30"), Conflict, "ckpt30 is DELETED; only one that is COMPLETED"),
        (register("ckpt20", aliases=["3"]), ConfigError, "alias: got '3', expected a name"),
        (register("ckpt20", aliases=["latest"]), ConfigError, "alias: got 'latest'"),
        (RegisterVersion(model="none", uuid="ckpt20"), NotFound, "there is no model none"),
        (RegisterVersion(model="taken", uuid="ckpt20"), Conflict, "model taken is archived"),
        (SetAlias(model="digits", alias="p", number=7), NotFound, "digits has no version 7"),
        (SetAlias(model="digits", alias="p", number=None), NotFound,
         "model digits has no alias p; it has production"),
        (DeleteVersion(model="digits", number=7), NotFound, "digits has no version 7"),
        (EditVersion(model="digits", number=7, notes="x"), NotFound, "has no version 7"),
        (DeleteModel(model="none"), NotFound, "there is no model none"),
        (DropCheckpoints(uuids=["ckpt10"]), Conflict,
         "^checkpoint ckpt10 is version 1 of model digits; delete that version first$"),
        (DropCheckpoints(uuids=["ckpt10"], globs=["*.pt"]), Conflict, "delete that version"),
        (Delete(experiment_id=1), Conflict,
         "cannot delete experiment 1: its checkpoint ckpt10 is version 1 of model digits"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_in_a_sentence_and_changes_nothing(
    world: World, event: Event, error: type[DetError], said: str
) -> None:
    world.tell(
        register("ckpt10", aliases=["production"]),
        CreateModel(name="taken"),
        EditModel(model="taken", is_archived=True),
        DropCheckpoints(uuids=["ckpt30"]),
        CheckpointsDeleted(experiment_id=1, uuids=["ckpt30"]),
    )
    before = world.machine.dump()
    with pytest.raises(error, match=said):
        world.tell(event)
    assert world.machine.dump() == before


def test_one_that_is_being_deleted_is_not_registered(world: World) -> None:
    world.tell(DropCheckpoints(uuids=["ckpt20"]))
    with pytest.raises(Conflict, match="ckpt20 is being deleted"):
        world.tell(register("ckpt20"))


def test_no_policy_deletes_a_registered_checkpoint_until_its_version_is_deleted(
    world: World,
) -> None:
    keep_none = SetRetention(
        experiment_id=1, save_experiment_best=0, save_trial_best=0, save_trial_latest=0
    )
    world.tell(register("ckpt20"))
    commands = world.tell(keep_none)
    assert [list(c.paths) for c in commands if isinstance(c, DeleteCheckpoints)] == [
        ["ckpt10", "ckpt30"]
    ]
    assert world.tell(DeleteVersion(model="digits", number=1)) == []
    (command,) = world.tell(keep_none)
    assert isinstance(command, DeleteCheckpoints)
    assert list(command.paths) == ["ckpt20"]


def test_a_policy_at_the_end_passes_over_what_was_registered_meanwhile() -> None:
    world = World()
    world.tell(
        registered(), submitted(), *running(), saved(10), saved(20), saved(30),
        CreateModel(name="digits"), register("ckpt10"),
    )  # fmt: skip
    world.tell(*completed(), exited())
    assert world.trial().checkpoints == ["ckpt10", "ckpt30"]


def test_deleting_a_model_releases_its_checkpoints_and_its_name(world: World) -> None:
    world.tell(register("ckpt10"), DeleteModel(model="digits"), Delete(experiment_id=1))
    world.tell(CreateModel(name="digits"))
    assert model(world).id == 2


def test_a_state_of_before_there_were_models_is_taken_over(world: World) -> None:
    stored = world.machine.state.model_dump(mode="json", exclude={"models", "last_model_id"})
    machine = Machine(MachineState.model_validate(stored))
    machine.handle(CreateModel(name="digits"), 500.0)
    assert machine.state.model("digits").id == 1


def test_a_state_keeps_its_models_when_it_is_stored(world: World) -> None:
    world.tell(register("ckpt10", aliases=["production"], metadata={"deep": {"list": [1, None]}}))
    again = MachineState.model_validate_json(world.machine.dump())
    assert again.models == world.machine.state.models
