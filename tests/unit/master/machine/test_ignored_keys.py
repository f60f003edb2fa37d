"""Keys that are accepted and ignored change nothing, up to the deletion of the experiment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from det_jupyter.config import parse_config
from det_jupyter.config.keys import NO_EFFECT
from det_jupyter.contract.messages import Delete, SetRetention, StartGang, State
from det_jupyter.master.machine.model.commands import DeleteCheckpoints, DeleteExperiment, ToAgent
from det_jupyter.master.machine.model.events import CheckpointsDeleted, ExperimentDeleted
from tests.ignored_keys import IGNORED, with_keys
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

TOGETHER = {key: IGNORED[key] for key in ("workspace", "project")}
ALL_ALONE = [
    TOGETHER, *({path: value} for path, value in IGNORED.items() if path not in TOGETHER)
]  # fmt: skip
STORED = {"type": "shared_fs", "host_path": "/checkpoints", "save_trial_latest": 2}


def ids(given: dict[str, Any]) -> str:
    return "all" if given is IGNORED else next(iter(given))


def test_the_table_has_every_key_that_a_notice_names() -> None:
    assert NO_EFFECT.keys() - {"resources.slots"} <= IGNORED.keys()  # that one may count


def told(commands: Iterable[Any], kind: type) -> Any:
    (command,) = [one for one in commands if isinstance(one, kind)]
    return command


@pytest.mark.parametrize("given", [*ALL_ALONE, IGNORED], ids=ids)
@pytest.mark.parametrize("folder", [None, "/checkpoints"])
def test_an_experiment_with_it_trains_ends_is_thinned_out_and_deleted(
    given: dict[str, Any], folder: str | None
) -> None:
    storage = {"checkpoint_storage": STORED} if folder else {}
    world = World()
    world.tell(registered())
    started = world.tell(submitted(**with_keys(storage, given)))
    plan = told([c.command for c in started if isinstance(c, ToAgent)], StartGang).plan
    assert parse_config(plan.config).checkpoint_storage.location == folder
    steps = range(10, 60, 10)
    for step in steps:
        world.tell(validated(step, step / 100), saved(step))
    world.tell(*running(), *completed())
    thinned = told(world.tell(exited()), DeleteCheckpoints)
    assert world.experiment().state is State.COMPLETED
    assert thinned.location == folder
    assert "ckpt10" not in thinned.paths, "the best"
    assert "ckpt20" in thinned.paths
    world.tell(CheckpointsDeleted(experiment_id=1, uuids=list(thinned.paths)))
    fewer = SetRetention(
        experiment_id=1, save_experiment_best=1, save_trial_best=0, save_trial_latest=0
    )
    assert told(world.tell(fewer), DeleteCheckpoints).location == folder
    removed = told(world.tell(Delete(experiment_id=1)), DeleteExperiment)
    assert removed.location == folder
    world.tell(ExperimentDeleted(experiment_id=1))
    assert not world.machine.state.experiments


@pytest.mark.parametrize("given", [*ALL_ALONE, IGNORED], ids=ids)
def test_the_effective_document_has_what_was_given_and_no_key_besides(
    given: dict[str, Any],
) -> None:
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 10}}
    plain = {"entrypoint": "MyTrial", "searcher": searcher}
    without = parse_config(plain, default_seed=1).to_document()
    document = parse_config(with_keys(plain, given), default_seed=1).to_document()
    assert set(paths_of(document)) == set(paths_of(without)) | set(given)
    assert parse_config(document).to_document() == document


def paths_of(document: dict[str, Any]) -> list[str]:
    sections = ("resources", "environment", "checkpoint_storage", "optimizations", "profiling")
    found = [key for key in document if key not in sections]
    return found + [f"{section}.{key}" for section in sections for key in document[section]]


@pytest.mark.parametrize("kind", ["shared_fs", "directory"])
def test_a_stored_section_of_an_earlier_version_is_found_all_the_same(kind: str) -> None:
    world = World()
    world.tell(registered(), submitted(), *running(), saved(10), *completed(), exited())
    experiment = world.experiment()
    old = {"type": kind, "host_path": "/old", "propagation": None, "container_path": "/old"}
    if kind == "directory":  # whose folder was called host_path
        del old["container_path"]
    experiment.config["checkpoint_storage"] = experiment.config["checkpoint_storage"] | old
    removed = told(world.tell(Delete(experiment_id=1)), DeleteExperiment)
    assert removed.location == "/old"
