"""Configurations of Determined are taken over; what is left out of them is named."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.client.imports.determined.configuration import parse_found
from tests.determined_world import ROWS

CONFIG: dict[str, Any] = ROWS["experiments"][0]["config"]


def searcher(**changes: Any) -> dict[str, Any]:
    return {"searcher": {"metric": "error", "smaller_is_better": False, **changes}}


@pytest.mark.parametrize(
    ("changes", "name", "location", "left_out"),
    [
        ({}, "single", "/mnt/determined/checkpoints", []),
        (
            {"checkpoint_storage": {"type": "s3", "bucket": "b", "access_key": "A",
                                    "secret_key": "S", "prefix": "p"}},
            "single", "s3://b/p",
            ["checkpoint_storage.access_key", "checkpoint_storage.secret_key"],
        ),
        (
            {"checkpoint_storage": {"type": "hdfs", "hdfs_url": "x"}},
            "single", None, ["checkpoint_storage.type"],
        ),
        (
            {"checkpoint_storage": {"type": "azure", "container": "c",
                                    "connection_string": "AccountName=ann;AccountKey=S=="}},
            "single", "azure://ann.blob.core.windows.net/c",
            ["checkpoint_storage.connection_string"],
        ),
        (
            {"checkpoint_storage": {"type": "azure", "container": "c", "connection_string": "S"}},
            "single", None,
            ["checkpoint_storage.connection_string", "checkpoint_storage.account_url"],
        ),
        (
            searcher(name="adaptive_asha", max_time=9, time_metric="batches", max_trials=4),
            "adaptive_asha", "/mnt/determined/checkpoints", [],
        ),
        (
            searcher(name="custom", unit="batches"),
            "single", "/mnt/determined/checkpoints", ["searcher.name"],
        ),
        (
            searcher(name="single", max_length={"batches": "many"}),
            "single", "/mnt/determined/checkpoints",
            ["searcher.max_length", "searcher.max_length"],
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_over_is_left_out_and_named(
    changes: dict[str, Any], name: str, location: str | None, left_out: list[str]
) -> None:
    config, notices = parse_found(CONFIG | changes, ["imported"], 20)
    assert config.searcher.name == name
    assert config.checkpoint_storage.location == location
    assert config.labels == ["digits", "imported"]
    assert config.searcher.metric == (changes.get("searcher") or CONFIG["searcher"])["metric"]
    named = [each.split(": ")[1] for each in notices]
    assert [each for each in named if each != "pinned_by_a_later_version"] == left_out
    assert "S" not in str(config.to_document()["checkpoint_storage"].get("secret_key"))


def test_passwords_and_tokens_of_what_does_not_exist_here_are_not_stored() -> None:
    environment = {"registry_auth": {"username": "ann", "password": "SECRET"}}
    integrations = {"pachyderm": {"pachd": {"host": "h", "token": "SECRET"}}}
    changes = {"environment": environment, "integrations": integrations}
    config, notices = parse_found(CONFIG | changes, [], 1)
    assert "SECRET" not in f"{config.to_document()} {notices}"


def test_an_experiment_without_an_entrypoint_has_a_stand_in() -> None:
    config, _ = parse_found(CONFIG | {"entrypoint": None}, [], 1)
    assert config.entrypoint == "imported"
    assert CONFIG["entrypoint"] == "model_def:LineTrial"  # what was found is not changed


@pytest.mark.parametrize("name", ["searcher", "environment", "checkpoint_storage"])
@pytest.mark.parametrize("value", ["SECRET", ["SECRET"], 3])
def test_a_section_of_the_wrong_kind_is_left_out(name: str, value: Any) -> None:
    config, notices = parse_found(CONFIG | {name: value}, ["imported"], 20)
    assert config.searcher.name == "single"
    assert any(each.startswith(f"left out: {name}: got a ") for each in notices)
    assert not any("SECRET" in each for each in notices)


@pytest.mark.parametrize("entrypoint", [None, "", {"a": 1}, 3])
@pytest.mark.parametrize("labels", ["digits", 3, [1, None]])
def test_an_entrypoint_and_labels_of_the_wrong_kind_do_not_matter(
    entrypoint: Any, labels: Any
) -> None:
    found = CONFIG | {"entrypoint": entrypoint, "labels": labels}
    config, _ = parse_found(found, ["imported"], 20)
    assert (config.entrypoint, config.labels) == ("imported", ["imported"])
