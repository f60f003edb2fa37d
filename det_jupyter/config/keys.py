"""Special keys: those that select a section's kind, are of free form, or have no effect here."""

from __future__ import annotations

import re
from typing import Any

from det_jupyter.config.tracker_section import open_address
from det_jupyter.contract.schema.key_paths import enclosing_paths
from det_jupyter.contract.values.addresses import HIDDEN, shown
from det_jupyter.searcher.methods import FREE_FIELDS

TAGS = {"searcher": "name", "checkpoint_storage": "type"}  # key that selects a section's kind
NO_CONTAINERS = "ignored: ranks run on this computer as they are, not in containers"
_NO_CLUSTER = "ignored: there is no cluster manager here"
NO_MEANING = {
    "workspace": "ignored: there are no workspaces here; use labels",
    "project": "ignored: there are no projects here; use labels",
    "bind_mounts": NO_CONTAINERS,
    "debug": "ignored: the programs keep their logs as they are",
    "integrations": "ignored: no other services are called",
    "slurm": _NO_CLUSTER,
    "pbs": _NO_CLUSTER,
    "security": "ignored: ranks run with your own rights",
    "tensorboard_storage": "ignored: metrics are kept by det_jupyter itself",
    "data_layer": "ignored, as in Determined since 0.19.10",
    "internal": "ignored: it is Determined's own",
    "version": "ignored: there is one version of these keys",
    "resources.native_parallel": "ignored, as in Determined",
    "resources.shm_size": NO_CONTAINERS,
    "resources.devices": NO_CONTAINERS,
    "resources.agent_label": "ignored, as in Determined since 0.20",
    "resources.slots": "a key of notebooks and commands: read as slots_per_trial, if that is not "
    "given",
    "environment.image": NO_CONTAINERS,
    "environment.ports": NO_CONTAINERS,
    "environment.proxy_ports": NO_CONTAINERS,
    "environment.force_pull_image": NO_CONTAINERS,
    "environment.registry_auth": NO_CONTAINERS,
    "environment.add_capabilities": NO_CONTAINERS,
    "environment.drop_capabilities": NO_CONTAINERS,
    "environment.pod_spec": NO_CONTAINERS,
    "checkpoint_storage.propagation": NO_CONTAINERS,
    "checkpoint_storage.checkpoint_path": "ignored: its name is storage_path now",
    "checkpoint_storage.tensorboard_path": "ignored: metrics are kept by det_jupyter itself",
    "optimizations.tensor_fusion_cycle_time": "ignored: torch exchanges a bucket when it is full",
    "optimizations.grad_updates_size_file": "ignored: it was for debugging Horovod",
}
NOT_YET = {
    "retention_policy": "not in this version: logs are kept with their experiment",
}
NO_EFFECT = NO_MEANING | NOT_YET
# A null in them is a value, and their keys are chosen by the user.
FREE_FORM = {
    "hyperparameters",
    "data",
    *FREE_FIELDS,
    "checkpoint_storage.container_path",  # ignored with shared_fs; with directory it is text
    *NO_MEANING,
}


def is_free(path: str) -> bool:
    """Return whether a null at this path is a value; elsewhere it counts as absent."""
    return any(place in FREE_FORM for place in enclosing_paths(path))


_SECRET = re.compile(
    r"data\.secrets\..*"
    r"|checkpoint_storage\.(access_key|secret_key|connection_string|credential)"
    r"|environment\.registry_auth\.(password|auth|identitytoken|registrytoken)"
    r"|integrations\.pachyderm\.dataset\.token"
)
_BUCKET = re.compile(r"checkpoint_storage\.(endpoint_url|account_url|bucket|container)")
_ADDRESS = re.compile(r"alerts(\[\d+\](\.(slack|ntfy|webhook|command))?)?")
_TRACKER = re.compile(r"trackers(\[\d+\](\..*)?)?")


def masked(path: str, value: Any) -> Any:
    """Return a value as it may be shown: secrets are masked."""
    if value is None:
        return value
    if _ADDRESS.fullmatch(path):  # also where a text is in the place of a list or mapping
        return shown(value) if isinstance(value, str) else HIDDEN
    if path.startswith("alerts["):  # an address in the wrong place
        if not isinstance(value, str):
            return HIDDEN if isinstance(value, (list, dict)) else value
        is_address = "://" in value or ("/" in value and not path.endswith(".name"))
        return shown(value) if is_address else value
    if _TRACKER.fullmatch(path):
        return HIDDEN if isinstance(value, (list, dict)) else _tracker_value(path, value)
    if _BUCKET.fullmatch(path) and isinstance(value, str) and set(value) & set("@?"):
        return shown(value)  # it may have keys
    return HIDDEN if _SECRET.fullmatch(path) else value


def _tracker_value(path: str, value: Any) -> Any:
    """Return a value of a tracker as it may be shown; an address may be in the wrong place."""
    is_address = isinstance(value, str) and "://" in value
    return open_address(value) if is_address else value
