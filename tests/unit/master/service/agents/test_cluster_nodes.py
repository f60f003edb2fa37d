"""What is known of the nodes of clusters, for agents that may be on none."""

from __future__ import annotations

import time

import pytest

from det_jupyter.master.service.agents.cluster_nodes import AgentNode, ClusterNodes


@pytest.fixture
def nodes() -> ClusterNodes:
    """Return two agents on nodes of one cluster, of which one node has left."""
    here = AgentNode(cluster="ray", node_id="a")
    gone = AgentNode(cluster="ray", node_id="b", left="node b left", exited_at=100.0)
    return ClusterNodes(of_agents={"here": here, "gone": gone}, notes={"ray": "it is silent"})


def test_of_agents_on_no_node_nothing_is_known(nodes: ClusterNodes) -> None:
    assert (nodes.left("x"), nodes.note_on("x"), nodes.has_exited("x")) == ("", "", False)
    assert (nodes.left("here"), nodes.note_on("here")) == ("", "it is silent")
    assert nodes.left("gone") == "node b left"
    nodes.notes.clear()
    assert nodes.note_on("here") == ""


def test_a_node_has_exited_when_its_processes_had_time_to_end(
    nodes: ClusterNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 105.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert (nodes.has_exited("gone"), nodes.has_exited("here")) == (False, False)
    now = 105.1
    assert (nodes.has_exited("gone"), nodes.has_exited("here")) == (True, False)
