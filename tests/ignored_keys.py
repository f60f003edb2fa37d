"""Every key that is accepted and ignored, with a value that Determined accepts."""

from __future__ import annotations

from typing import Any

IGNORED: dict[str, Any] = {
    "version": 1,
    "internal": {"native": {"command": ["train.py"]}},
    "workspace": "team",
    "project": "mine",
    "debug": True,
    "bind_mounts": [{"host_path": "/a", "container_path": "b"}],
    "integrations": {"webhooks": {"webhook_id": [1], "webhook_name": ["a"], "exclude": True}},
    "slurm": {"slots_per_node": 4, "gpu_type": "v100", "sbatch_args": ["-x"]},
    "pbs": {"slots_per_node": 4, "pbsbatch_args": ["-x"]},
    "security": {"kerberos": {"config_file": "/etc/krb5.conf"}},
    "tensorboard_storage": {"type": "shared_fs", "host_path": None},
    "data_layer": {"type": "shared_fs", "container_storage_path": None},
    "retention_policy": {"log_retention_days": 30},
    "resources.native_parallel": True,
    "resources.shm_size": "1.5 gb",
    "resources.devices": ["/dev/a:/dev/b"],
    "resources.agent_label": "x",
    "environment.image": {"cpu": "a", "gpu": "b"},
    "environment.ports": {"http": 80},
    "environment.proxy_ports": [{"proxy_port": 8080, "proxy_tcp": True}],
    "environment.force_pull_image": True,
    "environment.registry_auth": {"username": "me", "password": "secret"},
    "environment.add_capabilities": ["CAP_A"],
    "environment.drop_capabilities": ["CAP_B"],
    "environment.pod_spec": {"spec": {"anything": None}},
    "checkpoint_storage.propagation": "rshared",
    "checkpoint_storage.container_path": "/here",
    "checkpoint_storage.checkpoint_path": "there",
    "checkpoint_storage.tensorboard_path": "/logs",
    "optimizations.tensor_fusion_cycle_time": 5,
    "optimizations.grad_updates_size_file": "sizes.txt",
}


def with_keys(document: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the document with values at these paths of one or two keys."""
    whole = dict(document)
    for path, value in given.items():
        section, _, key = path.rpartition(".")
        whole |= {section: whole.get(section, {}) | {key: value}} if section else {key: value}
    return whole
