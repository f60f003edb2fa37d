"""What the bridge reports of the nodes that Ray lists."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from det_jupyter.contract.schema.clusters import ClusterConfig
from det_jupyter.engine.ray.hosts import Hosts


@pytest.mark.parametrize(
    ("reason", "has_exited"),
    [
        (1, True),  # expected termination: the raylet was stopped
        (2, False),  # unexpected termination
        (3, False),  # preempted: Ray infers it when a node does not answer any more
        (4, True),  # drained, because it was idle
        (None, False),
    ],
)
def test_a_dead_node_has_exited_only_if_its_raylet_has_said_so(
    reason: int | None, has_exited: bool
) -> None:
    found = {
        "NodeID": "a1",
        "NodeManagerHostname": "node-a",
        "Resources": {},
        "Alive": False,
        "DeathReason": reason,
    }
    ray = SimpleNamespace(
        cloudpickle=SimpleNamespace(register_pickle_by_value=lambda _: None),
        remote=lambda kind: kind,
        util=SimpleNamespace(list_named_actors=lambda **_: []),
        nodes=lambda: [found],
    )
    config = ClusterConfig(engine="ray", address="head:6379")
    (node,) = Hosts(ray, config, "m", "n").nodes()
    assert (node.is_alive, node.has_exited) == (False, has_exited)
