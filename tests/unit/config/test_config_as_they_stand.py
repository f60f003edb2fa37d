"""Files that people wrote for a cluster run as they stand; what is ignored is said."""

from __future__ import annotations

import pytest

from det_jupyter.config import (
    check_sanity,
    notices,
    parse_config,
    read_yaml,
    with_default_storage,
    with_storage,
)
from det_jupyter.errors import ConfigError
from tests.unit.config.as_they_stand import FILES, STORAGES

REST = "\nentrypoint: model_def:T\nsearcher: {name: single, metric: e, max_length: {epochs: 1}}"


@pytest.mark.parametrize("name", FILES)
def test_it_is_read_as_it_stands(name: str) -> None:
    text, said = FILES[name]
    reading = read_yaml(text)
    assert reading.problems == check_sanity(reading.document) == []
    config = parse_config(reading.document, default_seed=1)
    assert [notice.partition(":")[0] for notice in notices(reading.document)] == said
    assert parse_config(config.to_document()) == config
    assert config.name not in ("", "experiment")


def test_what_they_say_is_what_they_meant() -> None:
    def read(name: str) -> dict[str, object]:
        (text,) = (FILES[each][0] for each in FILES if each.startswith(name))
        return parse_config(read_yaml(text).document, default_seed=1).to_document()

    steps = read("0.12, steps of its own length")
    assert steps["scheduling_unit"] == 250
    assert steps["min_validation_period"] == {"batches": 1000}
    assert steps["searcher"]["max_length"] == {"batches": 10_000}  # type: ignore[index]
    assert read("a key of")["resources"]["slots_per_trial"] == 2  # type: ignore[index]
    assert read("0.17, variables")["environment"]["environment_variables"] == {  # type: ignore[index]
        "cpu": ["OMP_NUM_THREADS=4"],
        "cuda": ["OMP_NUM_THREADS=1", "NCCL_SOCKET_IFNAME=eth0", "NCCL_DEBUG=INFO"],
    }


@pytest.mark.parametrize("name", STORAGES)
def test_a_storage_without_a_backend_is_replaced_by_a_flag_or_by_the_master(name: str) -> None:
    document = read_yaml(f"checkpoint_storage: {STORAGES[name]}{REST}").document
    kind = document["checkpoint_storage"]["type"]
    with pytest.raises(ConfigError, match=f"got '{kind}', which this version cannot write to"):
        parse_config(document, default_seed=1)
    by_flag = with_storage(document, "/checkpoints")
    by_master, said = with_default_storage(document, {}, "/checkpoints")
    assert by_flag == by_master
    assert said == [
        f"checkpoint_storage: {kind} has no backend here; checkpoints go to /checkpoints, as the "
        "master's DET_JUPYTER_CHECKPOINT_STORAGE says."
    ]
    storage = parse_config(by_flag, default_seed=1).checkpoint_storage
    assert (storage.location, storage.save_trial_best) == ("/checkpoints", 3)


def test_the_storage_of_a_template_is_replaced_too_and_its_numbers_stay() -> None:
    template = {"checkpoint_storage": {"type": "hdfs", "hdfs_path": "b", "save_trial_latest": 4}}
    document = read_yaml(REST).document
    for replaced in (
        with_storage(document, "/c"), with_default_storage(document, template, "/c")[0],
    ):  # fmt: skip
        storage = parse_config(replaced, default_seed=1, template=template).checkpoint_storage
        assert (storage.location, storage.save_trial_latest) == ("/c", 4)


def test_the_master_s_folder_is_for_storages_without_a_backend_only() -> None:
    document = read_yaml(f"checkpoint_storage: {{host_path: /mine}}{REST}").document
    assert with_default_storage(document, {}, "/c") == (document, [])
    template = {"checkpoint_storage": {"type": "hdfs", "hdfs_path": "b"}}
    mine = document | {"checkpoint_storage": {"type": "directory", "container_path": "/mine"}}
    assert with_default_storage(mine, template, "/c") == (mine, [])
    assert with_default_storage({}, template, "") == ({}, [])


def test_a_folder_of_a_flag_has_to_be_absolute() -> None:
    with pytest.raises(ConfigError, match="container_path: got 'c', expected an absolute path"):
        parse_config(with_storage(read_yaml(REST).document, "c"), default_seed=1)


def test_gpu_and_cuda_are_one_kind_of_device_and_the_configuration_s_come_last() -> None:
    mine = read_yaml(REST).document | {"environment": {"environment_variables": {"gpu": ["A=2"]}}}
    for theirs in ({"cuda": ["A=1"]}, {"gpu": ["A=1"]}, ["A=1"]):
        template = {"environment": {"environment_variables": theirs}}
        document = parse_config(mine, default_seed=1, template=template).to_document()
        assert document["environment"]["environment_variables"]["cuda"] == ["A=1", "A=2"]
