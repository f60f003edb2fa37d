"""Files written for Determined: read, checked, and what has no effect is said."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.config import ExperimentConfig, notices, parse_config, parse_yaml
from det_jupyter.config.storages import location_of
from det_jupyter.contract.schema.key_paths import look_up
from det_jupyter.contract.values.bucket_urls import is_in_bucket
from det_jupyter.errors import ConfigError
from tests.ignored_keys import IGNORED, with_keys
from tests.problems import said

TYPED = {
    "retention_policy", "optimizations.tensor_fusion_cycle_time",
    "optimizations.grad_updates_size_file",
}  # fmt: skip
UNWRITTEN = (
    "which this version cannot write to; submit it with --checkpoint-storage FOLDER, start the "
    "master with DET_JUPYTER_CHECKPOINT_STORAGE=FOLDER, or write {type: directory, "
    "container_path: FOLDER}"
)
EVERYTHING = """
version: 0
name: everything
description: a file that uses all there is
labels: [a, b]
workspace: team
project: mine
debug: true
entrypoint: MyTrial
data: {secrets: {key: abc}, bucket: b}
hyperparameters: {global_batch_size: 64}
records_per_epoch: 1000
scheduling_unit: 50
min_validation_period: {epochs: 1}
min_checkpoint_period: {batches: 10}
perform_initial_validation: true
checkpoint_policy: all
max_restarts: 1
preemption_timeout: 60
searcher: {name: single, metric: loss, max_length: {epochs: 2}, source_trial_id: 3}
reproducibility: {experiment_seed: 5}
resources:
  slots_per_trial: 4
  max_slots: 8
  weight: 2.5
  priority: 10
  native_parallel: true
  shm_size: 1.5 gb
  resource_pool: gpus
  is_single_node: true
  devices: [/dev/a:/dev/b, /dev/c:/dev/d:r, {host_path: /dev/e, container_path: /dev/f}]
  agent_label: x
checkpoint_storage:
  type: shared_fs
  host_path: /checkpoints
  storage_path: mine
  propagation: rshared
  container_path: /here
  tensorboard_path: /logs
  save_trial_latest: 3
optimizations:
  aggregation_frequency: 2
  average_aggregated_gradients: false
  average_training_metrics: false
  gradient_compression: true
  mixed_precision: O1
  tensor_fusion_threshold: 32
  tensor_fusion_cycle_time: 5
  auto_tune_tensor_fusion: true
  grad_updates_size_file: sizes.txt
profiling: {enabled: true, begin_on_batch: 5, end_after_batch: 5, sync_timings: false}
environment:
  image: {cpu: a, gpu: b}
  environment_variables: [A=1, B=]
  ports: {http: 80}
  proxy_ports: [{proxy_port: 8080, proxy_tcp: true}]
  force_pull_image: true
  registry_auth: {username: me, password: secret}
  add_capabilities: [CAP_A]
  drop_capabilities: [CAP_B]
  pod_spec: {spec: {anything: null}}
bind_mounts:
- {host_path: /a, container_path: b}
log_policies:
- {name: oom, pattern: .*out of memory.*, action: cancel_retries}
- {pattern: x, action: {type: exclude_node}}
- name: CUDA OOM
retention_policy: {log_retention_days: -1}
integrations: {webhooks: {webhook_id: [1], webhook_name: [a], exclude: true}}
slurm: {slots_per_node: 4, gpu_type: v100, sbatch_args: [-x]}
pbs: {slots_per_node: 4, pbsbatch_args: [-x]}
security: {kerberos: {config_file: /etc/krb5.conf}}
tensorboard_storage: {type: shared_fs}
data_layer: {type: shared_fs}
internal: null
"""


def minimal(**changes: Any) -> dict[str, Any]:
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 10}}
    return {"entrypoint": "MyTrial", "searcher": searcher} | changes


def test_a_file_that_uses_everything_is_read_and_survives_a_round_trip() -> None:
    config = parse_config(parse_yaml(EVERYTHING))
    assert isinstance(config, ExperimentConfig)
    assert config.resources.max_slots == 8
    assert config.checkpoint_storage.location == "/checkpoints/mine"
    document = config.to_document()
    assert document["environment"]["pod_spec"] == {"spec": {"anything": None}}
    assert document["resources"]["devices"][1] == "/dev/c:/dev/d:r"
    assert document["log_policies"][1]["action"] == "exclude_node"
    assert parse_config(document) == config


def test_all_that_has_no_effect_is_said() -> None:
    found = notices(parse_yaml(EVERYTHING))
    assert [notice.split(":")[0] for notice in found] == [
        "bind_mounts", "checkpoint_storage.container_path", "checkpoint_storage.propagation",
        "checkpoint_storage.tensorboard_path",
        "data_layer", "debug", "environment.add_capabilities", "environment.drop_capabilities",
        "environment.force_pull_image", "environment.image", "environment.pod_spec",
        "environment.ports", "environment.proxy_ports", "environment.registry_auth",
        "integrations", "log_policies[2]",
        "optimizations.grad_updates_size_file",
        "optimizations.tensor_fusion_cycle_time",
        "pbs", "project",
        "resources.agent_label", "resources.devices",
        "resources.native_parallel", "resources.shm_size",
        "retention_policy", "security", "slurm", "tensorboard_storage",
        "workspace",
    ]  # fmt: skip
    assert found[0] == (
        "bind_mounts: ignored: ranks run on this computer as they are, not in containers."
    )


def test_the_effective_document_says_as_much_as_what_it_was_made_of() -> None:
    config = parse_config(parse_yaml(EVERYTHING))
    assert notices(config.to_document()) == notices(parse_yaml(EVERYTHING))


def test_nothing_is_said_of_what_is_as_it_would_be_anyway() -> None:
    assert notices(parse_config(minimal(), default_seed=1).to_document()) == []
    given = {
        "optimizations": {"mixed_precision": "O0", "gradient_compression": False},
        "resources": {"weight": 1, "is_single_node": True},
        "bind_mounts": [], "debug": False, "checkpoint_storage": {"save_trial_best": 1},
    }  # fmt: skip
    assert notices(minimal(**given)) == []


@pytest.mark.parametrize(
    ("changes", "notice"),
    [
        ({"environment": {"environment_variables": {"rocm": ["A=1"]}}},
         "environment.environment_variables.rocm: ignored: slots are of kind cpu or cuda here."),
        ({"resources": {"slots": 4}},
         "resources.slots: a key of notebooks and commands: read as slots_per_trial, if that is "
         "not given."),
        ({"workspace": "team"},
         "workspace: ignored: there are no workspaces here; use labels."),
        ({"project": "mine"}, "project: ignored: there are no projects here; use labels."),
        ({"log_policies": [{"name": "CUDA OOM"}]},
         "log_policies[0]: no policy is built in: a name alone only disables one of the "
         "template."),
        ({"log_policies": [{"name": "ECC", "pattern": "uncorrectable"}]},
         "log_policies[0]: ignored: it has no action; give cancel_retries or exclude_node."),
        ({"searcher": {"name": "adaptive_asha", "time_metric": "s", "max_time": 9, "max_length": 9,
                       "metric": "a", "max_trials": 1}},
         "min_validation_period: trials validate only at their end, so the search judges none "
         "before; set it."),
    ],
)  # fmt: skip
def test_what_depends_on_the_value_is_said_too(changes: dict[str, Any], notice: str) -> None:
    assert notices(minimal(**changes)) == [notice]
    assert parse_config(minimal(**changes), default_seed=1)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["A=1", "HF_TOKEN"], ["A=1", "HF_TOKEN"]),
        ({"cpu": ["A=1"], "cuda": ["A=1"], "rocm": ["A=1"]}, ["A=1"]),
        ({"cpu": ["A=1"], "cuda": ["A=2"]}, {"cpu": ["A=1"], "cuda": ["A=2"]}),
        ({"gpu": ["A=1"]}, {"cuda": ["A=1"]}),
        ({"gpu": ["A=1"], "cuda": ["B=1"]}, {"cuda": ["A=1", "B=1"]}),
        ({"cuda": ["A=1"], "cpu": None}, {"cuda": ["A=1"]}),
        ({"cpu": [], "cuda": []}, []),
        ({}, []),
    ],
)  # fmt: skip
def test_variables_are_a_list_or_lists_by_kind_of_device(given: Any, read: Any) -> None:
    config = parse_config(minimal(environment={"environment_variables": given}), default_seed=1)
    assert config.environment.environment_variables == read
    assert parse_config(config.to_document()) == config


@pytest.mark.parametrize("path", sorted(IGNORED.keys() - TYPED))
@pytest.mark.parametrize("value", [5, -1.5, "anything", True, [None, {}], {"a": {"b": None}}])
def test_what_is_ignored_is_kept_as_it_is_with_one_notice(path: str, value: Any) -> None:
    given = with_keys(minimal(), {path: value})
    config = parse_config(given, default_seed=1)
    document = config.to_document()
    assert look_up(document, path) == value
    assert [n.partition(":")[0] for n in notices(document)] == [path]
    assert notices(given) == notices(document)
    assert parse_config(document) == config


NO_KEYS = (
    "expected none, as configurations are stored; they are read from ~/.aws/credentials, or from "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY where the master and its agents are started"
)


@pytest.mark.parametrize(
    ("storage", "location"),
    [
        ({"type": "s3", "bucket": "b"}, "s3://b"),
        ({"type": "s3", "bucket": "b", "prefix": "/a..b/.c/", "access_key": None}, "s3://b/a..b/.c"),
        ({"type": "s3", "bucket": "b", "endpoint_url": "http://minio:9000/", "prefix": "p"},
         "s3+http://minio:9000/b/p"),
        ({"type": "gcs", "bucket": "b", "prefix": "p"}, "gs://b/p"),
        ({"type": "azure", "container": "c", "account_url": "https://a.blob.core.windows.net"},
         "azure://a.blob.core.windows.net/c"),
    ],
)  # fmt: skip
def test_a_bucket_has_a_location_that_says_where_it_is(
    storage: dict[str, Any], location: str
) -> None:
    config = parse_config(minimal(checkpoint_storage=storage), default_seed=1)
    assert config.checkpoint_storage.location == location
    assert is_in_bucket(location)
    document = config.to_document()
    assert location_of(document["checkpoint_storage"]) == location
    assert parse_config(document) == config


@pytest.mark.parametrize(
    ("storage", "problems"),
    [
        ({"type": "s3", "bucket": "s3://b/p"},
         ["bucket: got 's3://b/p', expected the name of a bucket, without a prefix or address, "
          "such as my-models"]),
        ({"type": "s3", "bucket": "b", "prefix": "a/../b", "access_key": "k", "secret_key": "s"},
         [f"access_key: got '********', {NO_KEYS}",
          "prefix: got 'a/../b', expected the beginning of names, such as team/models, without "
          ".., //, ? and #", f"secret_key: got '********', {NO_KEYS}"]),
        ({"type": "s3", "bucket": "b", "endpoint_url": "minio:9000"},
         ["endpoint_url: got 'minio:9000', expected the address of a server, such as "
          "https://minio.example.org:9000"]),
        ({"type": "s3", "bucket": "b", "endpoint_url": "http://169.254.169.254"},
         ["endpoint_url: got 'http://169.254.169.254', expected another address: this one has "
          "the metadata of a cloud's computer"]),
        ({"type": "gcs", "prefix": "a/.."},
         ["prefix: got 'a/..', expected the beginning of names, such as team/models, without "
          ".., //, ? and #", "bucket: missing (checkpoint_storage.type: gcs)"]),
        ({"type": "azure", "container": "c", "connection_string": "x"},
         ["connection_string: got '********', expected none, as configurations are stored; give "
          "account_url, and set AZURE_STORAGE_ACCOUNT_KEY (or another variable of Azure's) where "
          "the master and its agents are started",
          "account_url: missing (checkpoint_storage.type: azure)"]),
        ({"type": "azure", "container": "c", "account_url": "https://example.org"},
         ["account_url: got 'https://example.org', expected the address of an account, such as "
          "https://ACCOUNT.blob.core.windows.net"]),
        ({"type": "hdfs"}, [f"type: got 'hdfs', {UNWRITTEN}"]),
        ({"type": "nfs"},
         ["type: got 'nfs', expected one of shared_fs, directory, s3, gcs, azure"]),
        ({"host_path": "/a", "storage_path": "/b"},
         ["storage_path: got '/b', expected a relative path, or one within "
          "checkpoint_storage.host_path (/a)"]),
        ({"host_path": "/a", "storage_path": "../b"},
         ["storage_path: got '../b', expected a path without .."]),
        ({"type": "directory"}, ["container_path: missing (checkpoint_storage.type: directory)"]),
        ({"bucket": "b"}, ["bucket: shared_fs does not have it; s3 and gcs have"]),
        ({"container_pat": "b"}, ["container_pat: unknown key; did you mean container_path?"]),
        ({"save_trial_best": -1}, ["save_trial_best: got -1, expected at least 0"]),
    ],
)  # fmt: skip
def test_storage_that_cannot_be_is_refused(storage: dict[str, Any], problems: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(minimal(checkpoint_storage=storage), default_seed=1)
    assert said(caught.value.problems) == [f"checkpoint_storage.{problem}" for problem in problems]


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("prefix", "a//b", "a//b"),
        ("prefix", "./a", "./a"),
        ("prefix", "a\tb", "a\tb"),
        ("bucket", "..", ".."),
        ("bucket", "s3://ann:pa55@b", "********"),
        ("endpoint_url", "HTTPS://minio", "HTTPS://minio"),  # s3+HTTPS:// is no location
        ("endpoint_url", "https://mi nio", "https://mi nio"),
        ("endpoint_url", "https://ann:pa55@minio:9000", "https://minio:9000/********"),
        ("endpoint_url", "https://minio?key=pa55", "https://minio/********"),
    ],
)
def test_address_of_a_bucket_that_cannot_be_is_refused_and_shown_without_keys(
    key: str, value: str, shown: str
) -> None:
    storage = {"type": "s3", "bucket": "b"} | {key: value}
    with pytest.raises(ConfigError) as caught:
        parse_config(minimal(checkpoint_storage=storage), default_seed=1)
    ((problem),) = said(caught.value.problems)
    assert problem.startswith(f"checkpoint_storage.{key}: got {shown!r}, expected ")


@pytest.mark.parametrize(
    ("storage", "folder"),
    [
        ({}, None),
        ({"host_path": "/a"}, "/a"),
        ({"host_path": "/a/", "storage_path": "b/c"}, "/a/b/c"),
        ({"host_path": "/a", "storage_path": "/a/b"}, "/a/b"),
        ({"type": "directory", "container_path": "/a"}, "/a"),
        ({"type": "directory", "host_path": "/a"}, "/a"),
    ],
)
def test_checkpoints_go_to_a_folder(storage: dict[str, Any], folder: str | None) -> None:
    config = parse_config(minimal(checkpoint_storage=storage), default_seed=1)
    assert config.checkpoint_storage.location == folder
    assert parse_config(config.to_document()) == config


@pytest.mark.parametrize(
    ("policies", "problems"),
    [
        ([{"action": "cancel_retries"}],
         ["log_policies[0]: expected a name (to disable a policy), or a pattern"]),
        ([{"name": "a", "action": "cancel_retries"}],
         ["log_policies[0].pattern: missing; an action needs one"]),
        ([{"name": "a"}, {"name": "b"}, {"name": "a"}],
         ["log_policies[2].name: got 'a', which log_policies[0] has too"]),
        ([{"pattern": "(", "action": "retry"}],
         ["log_policies[0].action: got 'retry', expected cancel_retries or exclude_node",
          "log_policies[0].pattern: got '(', expected a regular expression (missing ), "
          "unterminated subpattern at position 0)"]),
    ],
)  # fmt: skip
def test_log_policies_are_checked(policies: list[Any], problems: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(minimal(log_policies=policies), default_seed=1)
    assert said(caught.value.problems) == problems


def test_retention_is_checked_since_a_later_version_will_use_it() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(minimal(retention_policy={"log_retention_days": -2}), default_seed=1)
    assert said(caught.value.problems) == [
        "retention_policy.log_retention_days: got -2, expected at least -1"
    ]
