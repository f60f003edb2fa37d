"""Configurations derived from templates, and from trials that are trained further."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.config import parse_config
from det_jupyter.contract.messages import (
    AllocationState,
    CheckpointRef,
)
from det_jupyter.contract.values.lengths import Length
from det_jupyter.errors import ConfigError, Conflict
from det_jupyter.master.machine.model.allocations import Allocation
from det_jupyter.master.machine.model.state import Experiment, Trial
from det_jupyter.master.machine.rules.configurations import (
    check_template,
    continuation_config,
    effective_config_view,
    resolve_config,
)
from tests.unit.view.view_samples import capsule

DOCUMENT: dict[str, Any] = {
    "entrypoint": "Cat",
    "hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1}},
    "searcher": {
        "name": "random", "metric": "error", "max_trials": 4, "max_length": {"epochs": 8},
    },
}  # fmt: skip


def experiment(**changes: Any) -> Experiment:
    settings, origins = resolve_config(DOCUMENT | changes, {"max_restarts": 1}, default_seed=7)
    config = settings.to_document()
    return Experiment(
        id=3, config=config, origins=origins, template="base", capsule=capsule(),
        python="python", cwd="/", notebook=None, created_at=1.0,
    )  # fmt: skip


def trial(**changes: Any) -> Trial:
    fields: dict[str, Any] = {
        "id": 5,
        "experiment_id": 3,
        "hparams": {"lr": 0.5},
        "seed": 9,
        "created_at": 1.0,
    }
    return Trial(**fields | changes)


def test_the_whole_says_who_gave_what() -> None:
    settings, origins = resolve_config(DOCUMENT, {"max_restarts": 1}, default_seed=7)
    config = settings.to_document()
    assert config["max_restarts"] == 1
    assert config["reproducibility"] == {"experiment_seed": 7}
    assert origins["max_restarts"] == "template"
    assert origins["searcher.max_trials"] == "you"
    assert set(origins.values()) == {"you", "template"}


def test_an_effective_configuration_names_its_origins() -> None:
    found = effective_config_view(experiment(environment={"image": "some/image"}))
    assert found.template == "base"
    (line,) = [line for line in found.yaml.splitlines() if line.startswith("max_restarts")]
    assert line.split() == ["max_restarts:", "1", "#", "template"]
    assert [notice.split(":")[0] for notice in found.notices] == ["environment.image"]


@pytest.mark.parametrize("name", ["a", "ä1", "team.base-2_x+y", "9" * 100])
def test_names_are_like_those_of_files(name: str) -> None:
    check_template(name, {})


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".a", "-a", "_a", "a/b", "a\\b", "a b", "a\n", "9" * 101]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^name: got .* at most 100 characters$"):
        check_template(name, {})


def test_a_trial_is_trained_on_with_constants() -> None:
    hparams = {"lr": 0.5, "net": {"depth": 2}, "table": {"type": "a value", "of": 1}}
    settings, origins = continuation_config(experiment(), trial(hparams=hparams), {"epochs": 12})
    config = settings.to_document()
    assert config["searcher"]["name"] == "single"
    assert config["searcher"]["max_length"] == {"epochs": 12}
    assert config["name"] == "Cat, trial 5 trained on"
    assert config["hyperparameters"] == {
        "lr": 0.5, "net": {"depth": 2},
        "table": {"type": "const", "val": {"type": "a value", "of": 1}},
    }  # fmt: skip
    assert config["max_restarts"] == 1
    assert origins["max_restarts"] == "template"
    assert parse_config(config) == settings


def test_a_trial_is_trained_on_of_a_search_that_this_version_has_not() -> None:
    old = experiment()
    old.config["searcher"] |= {"name": "of another version", "smaller_is_better": False}
    old.config["hyperparameters"]["lr"]["type"] = "of another version"
    config, _ = continuation_config(old, trial(), None)
    assert (config.searcher.metric, config.searcher.smaller_is_better) == ("error", False)
    assert (config.searcher.name, config.searcher.max_length) == ("single", Length("epochs", 8))


def test_without_a_length_a_trial_is_trained_as_far_as_its_search_goes() -> None:
    config, _ = continuation_config(experiment(), trial(), None)
    assert config.searcher.max_length == Length("epochs", 8)
    by_time = {
        "name": "async_halving", "metric": "error", "max_trials": 4, "num_rungs": 2,
        "time_metric": "batches", "max_time": 90,
    }  # fmt: skip
    config, _ = continuation_config(experiment(searcher=by_time), trial(), None)
    assert config.searcher.max_length == Length("batches", 90)
    by_tokens = by_time | {"time_metric": "tokens", "max_length": {"epochs": 3}}
    config, _ = continuation_config(experiment(searcher=by_tokens), trial(), None)
    assert config.searcher.max_length == Length("epochs", 3)


def test_a_trial_that_trains_or_a_length_that_is_none_is_refused() -> None:
    running = Allocation(id="3.5.1", run=1, state=AllocationState.RUNNING, queued_at=1.0)
    with pytest.raises(Conflict, match="trial 5 trains now; kill it first"):
        continuation_config(experiment(), trial(allocation=running), 4)
    with pytest.raises(
        ConfigError, match=r"length: got \{'parsecs': 1\}, expected exactly one of"
    ):
        continuation_config(experiment(), trial(), {"parsecs": 1})
    with pytest.raises(ConfigError, match=r"searcher.max_length: "):
        continuation_config(experiment(), trial(), 0)


def test_a_trial_is_not_trained_to_where_it_is() -> None:
    trained = CheckpointRef(uuid="c", path="/c", steps_completed=64)
    done = trial(latest_checkpoint=trained, target=Length("epochs", 8), is_resting=True)
    for length in (4, {"batches": 64}, {"epochs": 8}):
        with pytest.raises(Conflict, match=r"trial 5 has trained (64 batches|8 epochs) already"):
            continuation_config(experiment(), done, length)
    continuation_config(experiment(), done, {"batches": 65})
