"""A node provider for Ray's autoscaler: it looks like a cloud, and its nodes are machines.

It runs in Ray's monitor on the master's machine; `provider` in the autoscaler's file contains the
place and the head's address. Nodes that are given back are switched off.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tests.machines.machine import Machine
from tests.machines.ray_world import node_command
from tests.machines.world import SLOTS, place_from
from tests.ray_node import SETTINGS

_HEAD = "head"
_NodeProvider: Any = import_module("ray.autoscaler.node_provider").NodeProvider


class Provider(_NodeProvider):  # type: ignore[misc]  # a base class of Ray, which may be absent
    """Starts and ends nodes. All methods are part of Ray's interface."""

    def __init__(self, provider_config: dict[str, Any], cluster_name: str) -> None:
        super().__init__(provider_config, cluster_name)
        self._head: str = provider_config["head"]
        self._place = place_from(provider_config["place"])
        self._machines = {machine.name: machine for machine in self._place.agents}
        head = {"ray-node-type": "head", "ray-user-node-type": "head"}
        self._tags: dict[str, dict[str, str]] = {
            _HEAD: head | {"ray-node-status": "up-to-date", "ray-node-name": _HEAD}
        }

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        return [id for id, tags in self._tags.items() if tag_filters.items() <= tags.items()]

    def is_running(self, node_id: str) -> bool:
        return node_id in self._tags

    def is_terminated(self, node_id: str) -> bool:
        return node_id not in self._tags

    def node_tags(self, node_id: str) -> dict[str, str]:
        return self._tags[node_id]

    def set_node_tags(self, node_id: str, tags: dict[str, str]) -> None:
        self._tags[node_id] |= tags

    def external_ip(self, node_id: str) -> str:
        return self.internal_ip(node_id)

    def internal_ip(self, node_id: str) -> str:
        machine = self._place.master if node_id == _HEAD else self._machines[node_id]
        return machine.address

    def create_node(self, node_config: object, tags: dict[str, str], count: int) -> None:
        free = [machine for name, machine in self._machines.items() if name not in self._tags]
        for machine in free[:count]:
            self._start(machine)
            self._tags[machine.name] = tags | {"ray-node-status": "up-to-date"}

    def _start(self, machine: Machine) -> None:
        machine.popen(
            node_command(machine.address, "--join", self._head, "--cpus", str(SLOTS)),
            log=self._place.shared / f"ray-{machine.name}.log",
            variables=SETTINGS,
        )

    def terminate_node(self, node_id: str) -> None:
        del self._tags[node_id]
        self._machines[node_id].switch_off()
