"""Verbs about clusters whose nodes offer slots."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from det_jupyter.contract.messages import AgentCheck, ClusterStatus, PeerMeasured
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
    """Return a row for each cluster, and their problems below."""
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
    """End a cluster's agents; return what happens to their trials."""
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


def check(call: Call) -> str:
    """Measure the connections of agents on other computers; return problems and results."""
    folder = call.options.folder and str(Path(call.options.folder).expanduser().absolute())
    found = call.client.check_agents(folder)
    if call.options.json:
        return found.model_dump_json(indent=2)
    if not found.agents:
        return "\n".join(["There is no agent on another computer.", *found.problems])
    lines = [*found.problems] or ["Nothing is wrong."]
    return "\n".join([*lines, "", _agents(found.agents), "", *_between(found.agents)]).rstrip()


def _agents(checks: list[AgentCheck]) -> str:
    header = ("Agent ID", "Hostname", "Latency (ms)", "From Master (MB/s)", "To Master (MB/s)",
              "Clock Ahead (ms)")  # fmt: skip
    rows = [
        (
            each.agent,
            each.hostname,
            None if (got := each.measured) is None else round(1000 * got.latency_s, 1),
            None if got is None else round(got.down_bytes_per_s / 1e6, 1),
            None if got is None else round(got.up_bytes_per_s / 1e6, 1),
            round(1000 * each.clock_ahead_s, 1),
        )
        for each in checks
    ]
    return Listing(header=header, rows=rows, if_empty="").text()


def _between(checks: list[AgentCheck]) -> list[str]:
    """Return latency and speed between each two agents, as tables below a line each."""
    measured = [(each.agent, each.measured) for each in checks if each.measured is not None]
    if len(measured) < 2:
        return []
    names = [name for name, _ in measured]

    def table(of: Callable[[PeerMeasured], float | None]) -> str:
        rows = []
        for agent, got in measured:
            closed = {cut.to_agent for cut in got.closed}
            values = (
                of(got.peers[name]) if name in got.peers else "closed" if name in closed else None
                for name in names
            )
            rows.append((agent, *values))
        return Listing(header=("From \\ To", *names), rows=rows, if_empty="").text()

    return [
        "Round trip through the agents, ms:",
        table(lambda peer: round(1000 * peer.latency_s, 2)),
        "Speed through the agents (TLS), MB/s:",
        table(lambda peer: None if peer.bytes_per_s is None else round(peer.bytes_per_s / 1e6, 1)),
    ]
