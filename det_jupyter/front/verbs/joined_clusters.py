"""Verbs about clusters whose nodes offer slots."""

from __future__ import annotations

from pathlib import Path

from det_jupyter.contract.messages import ClusterStatus
from det_jupyter.contract.values.text import count
from det_jupyter.front.verbs.grammar import Call
from det_jupyter.front.verbs.listings import Listing, form_of, is_arranged, render

_SETTINGS = (
    "name", "idle_minutes", "python", "bridge_python", "token_file", "without_token",
    "master_address",
)  # fmt: skip


def add_cluster(call: Call) -> str:
    """Make the nodes of a cluster agents."""
    given = vars(call.options)
    config = {name: given[name] for name in ("engine", "address", "slots")}
    config |= {name: given[name] for name in _SETTINGS if given[name]}
    if file := config.get("token_file"):  # the master has another working directory
        config["token_file"] = str(Path(file).expanduser().absolute())
    added = call.client.add_cluster(config, given["pool"])
    offered = "their GPUs" if added.slots == "gpu" else f"{added.slots} CPU places each"
    lines = [
        f"cluster {added.name} is connected: {count(added.num_nodes, 'node')}, which join pool "
        f"{added.pool} with {offered} as their agents start, in some seconds"
    ]
    if call.options.without_token:
        lines.append(
            "Note: it has no token: everyone who reaches its port can run programs as you."
        )
    return "\n".join([*lines, *(f"Note: {problem}" for problem in added.problems)])


def list_clusters(call: Call) -> str:
    """Return a row for each cluster, and below what is wrong with them."""
    clusters = call.client.clusters()
    table = render(_listing(clusters), call.options)
    if form_of(call.options) or is_arranged(call.options):
        return table
    notes = [f"{each.name}: {problem}" for each in clusters for problem in each.problems]
    return "\n".join([table, *notes])


def _listing(clusters: list[ClusterStatus]) -> Listing:
    header = ("Name", "Engine", "Address", "State", "Nodes", "Agents", "Slots", "Slots per Node",
              "Asked For", "Resource Pool")  # fmt: skip
    rows = [
        (
            each.name,
            each.engine,
            each.address,
            each.state,
            each.num_nodes,
            each.num_agents,
            each.num_slots,
            each.slots,
            each.num_asked,
            each.pool,
        )
        for each in clusters
    ]
    return Listing(header=header, rows=rows, if_empty="No cluster was added.")


def remove_cluster(call: Call) -> str:
    """End a cluster's agents; return what becomes of their trials."""
    name = call.options.name
    removed = call.client.remove_cluster(name)
    agents = count(removed.num_agents, "agent")
    if removed.problem:
        lines = [
            f"cluster {name} is removed. Its agents could not be ended in order, because "
            f"{removed.problem}. They cannot connect any more, end what runs there within 25 s, "
            "and exit a minute later"
        ]
    else:
        lines = [f"cluster {name} is removed, and {agents} of it ended"]
    if removed.trial_ids:
        ids = ", ".join(map(str, removed.trial_ids))
        word = "trial" if len(removed.trial_ids) == 1 else "trials"
        lines.append(f"{word} {ids}: queued again, from the last checkpoint, for other agents")
    return "\n".join(lines)
