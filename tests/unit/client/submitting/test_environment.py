"""Variables that a configuration names without a value: which are sent, which are missing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.client.submitting.environment import (
    find_unset,
    with_environment,
)
from det_jupyter.config import ExperimentConfig, parse_config
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import Capsule
from det_jupyter.contract.values.variables import assigned_values, assigned_variables

CAPSULE = Capsule(entrypoint="Trial", payload="0" * 64, sources="0" * 64)


def document(*lines: Any) -> dict[str, Any]:
    return {"environment": {"environment_variables": list(lines)}}


SEARCHER = {"name": "single", "metric": "loss", "max_length": 1}


def config_of(document: dict[str, Any]) -> ExperimentConfig:
    return parse_config({"entrypoint": "Trial", "searcher": SEARCHER, **document}, default_seed=1)


BY_DEVICE = {
    "environment": {"environment_variables": {"cpu": ["A=1", "TOKEN"], "cuda": ["B=x=y", "TOKEN"]}}
}


@pytest.mark.parametrize(
    ("given", "names", "values"),
    [
        (document("A=1", "B=", "TOKEN", 3, None), {"A", "B", "TOKEN"}, {"A": "1", "B": ""}),
        (document("A=1", "A=2"), {"A"}, {"A": "2"}),
        (BY_DEVICE, {"A", "B", "TOKEN"}, {"A": "1", "B": "x=y"}),
        (document(), set(), {}),
        ({}, set(), {}),
        ({"environment": None}, set(), {}),
        ({"environment": ["A=1"]}, set(), {}),
        ({"environment": {"environment_variables": "A=1"}}, set(), {}),
        ({"environment": {"environment_variables": {"cpu": None}}}, set(), {}),
    ],
)
def test_the_variables_that_a_configuration_gives(
    given: dict[str, Any], names: set[str], values: dict[str, str]
) -> None:
    assert assigned_variables(given) == names
    assert assigned_values(given) == values


def test_the_values_go_along_in_a_blob_whose_name_gives_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    monkeypatch.delenv("UNSET", raising=False)
    blobs = BlobStore(tmp_path)
    config = config_of(document("A=1", "TOKEN", "UNSET"))
    found = [with_environment(CAPSULE, config, blobs) for _ in range(2)]
    assert found[0].environment is not None
    assert found[0].environment != found[1].environment  # though the values are the same
    content = json.loads(blobs.read(found[0].environment))
    assert content["values"] == {"TOKEN": "secret"}
    assert "secret" not in found[0].model_dump_json()


def test_without_a_value_to_take_along_there_is_no_blob(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UNSET", raising=False)
    before = os.umask(0o027)
    try:
        config = config_of(document("A=1", "UNSET"))
        made = with_environment(CAPSULE, config, BlobStore(tmp_path))
    finally:
        os.umask(before)
    assert made == CAPSULE.model_copy(update={"umask": 0o027})
    assert list(tmp_path.iterdir()) == []


def test_each_variable_that_is_not_set_is_told_once_with_what_sets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOKEN", "")
    monkeypatch.delenv("UNSET", raising=False)
    given = config_of(document("TOKEN", "UNSET", "UNSET", "A=1"))
    assert find_unset(given) == [
        "environment.environment_variables: UNSET is not set in this notebook, so ranks get no "
        "value of it; write %env UNSET=... in a cell, and submit again."
    ]
    assert find_unset(given, in_notebook=False) == [
        "environment.environment_variables: UNSET is not set here, so ranks get no "
        "value of it; export UNSET=..., and submit again."
    ]


def test_what_alerts_and_trackers_need_goes_along_apart_from_the_variables_of_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOOK", "MY_MLFLOW", "MLFLOW_TRACKING_TOKEN"):
        monkeypatch.setenv(name, name.lower())
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    services = {
        "alerts": [{"slack": "${HOOK}"}],
        "trackers": [{"type": "mlflow", "tracking_uri": "${MY_MLFLOW}"}],
    }
    blobs = BlobStore(tmp_path)
    found = with_environment(CAPSULE, config_of(services), blobs)
    assert found.environment is not None
    content = json.loads(blobs.read(found.environment))
    assert content["values"] == {}
    assert content["alerts"] == {
        "HOOK": "hook",
        "MY_MLFLOW": "my_mlflow",
        "MLFLOW_TRACKING_TOKEN": "mlflow_tracking_token",
    }
