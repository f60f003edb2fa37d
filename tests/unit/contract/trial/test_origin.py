"""The origin of a checkpoint: it is read as written; damage and lacking classes are named."""

from __future__ import annotations

import collections
from pathlib import Path

import pytest

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import Capsule
from det_jupyter.contract.trial.context_dir import pack_context, plan_context
from det_jupyter.contract.trial.origin import LOAD_DATA_FILE, Origin, name_of_class
from det_jupyter.contract.trial.origin_code import find_class, import_class
from det_jupyter.errors import CheckpointError


def test_an_origin_is_read_as_it_was_written(tmp_path: Path) -> None:
    origin = Origin(
        trial_class="model_def:Trial",
        library="lightning",
        hparams={"lr": 0.1},
        config={"name": "a"},
        seed=3,
        experiment_id=4,
        trial_id=5,
    )
    origin.write(tmp_path)
    assert Origin.read(tmp_path) == origin


def test_environment_variables_do_not_go_into_a_checkpoint(tmp_path: Path) -> None:
    capsule = Capsule(entrypoint="model_def:Trial", sources="1" * 64, environment="0" * 64)
    Origin(trial_class="model_def:Trial", capsule=capsule).write(tmp_path)
    assert "0" * 64 not in (tmp_path / LOAD_DATA_FILE).read_text(encoding="utf-8")
    read = Origin.read(tmp_path).capsule
    assert read is not None
    assert (read.entrypoint, read.environment) == ("model_def:Trial", None)


def test_a_folder_without_an_origin_is_no_checkpoint_of_a_trial(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"is not a checkpoint of a trial: no load_data\.json"
    ):
        Origin.read(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"capsule": {"entrypoint": 3}}'])
def test_a_damaged_origin_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / LOAD_DATA_FILE).write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"load_data\.json is damaged"):
        Origin.read(tmp_path)


class Outer:
    class Inner: ...


@pytest.mark.parametrize("found", [Outer.Inner, collections.OrderedDict])
def test_a_class_is_found_by_the_name_that_it_has(found: type) -> None:
    assert import_class(name_of_class(found), "here", "give it") is found


@pytest.mark.parametrize("name", ["no_such_module:Trial", "collections:NoSuchClass"])
def test_a_class_that_cannot_be_imported_is_asked_for(name: str) -> None:
    with pytest.raises(CheckpointError, match=f"here: its class {name} .* imported .*; give it"):
        import_class(name, "here", "give it")


def test_values_of_variables_are_not_in_a_checkpoint(tmp_path: Path) -> None:
    config = {"name": "n", "environment": {"environment_variables": ["TOKEN=secret", "HOME"]}}
    Origin(trial_class="T", config=config).write(tmp_path)
    stored = Origin.read(tmp_path).config
    assert stored == {"name": "n", "environment": {"environment_variables": ["TOKEN", "HOME"]}}


def test_each_context_has_its_own_module_of_a_name(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path / "blobs")

    def width(number: int) -> int:
        folder = tmp_path / str(number)
        folder.mkdir(exist_ok=True)
        (folder / "model_of_contexts.py").write_text(f"class Net:\n    width = {number}\n")
        capsule = Capsule(
            entrypoint="model_of_contexts:Net",
            sources=blobs.put(b"{}"),
            context=pack_context(plan_context(folder), blobs),
        )
        origin = Origin(trial_class="model_of_contexts:Net", capsule=capsule, blobs=blobs)
        found: int = find_class(origin, tmp_path, tmp_path, "give it").width
        return found

    assert [width(number) for number in (1, 2, 1)] == [1, 2, 1]
