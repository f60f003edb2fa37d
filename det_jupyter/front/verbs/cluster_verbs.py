"""Verbs about slots, agents, tasks, pools and the queue."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence, Set
from pathlib import Path

from det_jupyter.client import Client
from det_jupyter.client.requests import make_request
from det_jupyter.client.submitting.drafts import located
from det_jupyter.config import parse_yaml, read_yaml
from det_jupyter.config.pools import parse_pools
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import AgentStatus, ClusterView, SetPools, SwitchSlots
from det_jupyter.contract.values.reader import NOTEBOOK, Reader
from det_jupyter.contract.values.text import listed
from det_jupyter.errors import ConfigError, DetError, NotFound, UsageError
from det_jupyter.front.verbs.cluster_tables import (
    agents_listing,
    jobs_data,
    jobs_listings,
    pools_listing,
    slots_listing,
    tasks_listing,
    user_name,
)
from det_jupyter.front.verbs.cluster_text import (
    agent_line,
    agent_title,
    pool_line,
    queue_text,
    slots_text,
)
from det_jupyter.front.verbs.disk_notes import disk_notes
from det_jupyter.front.verbs.grammar import Call
from det_jupyter.front.verbs.listings import Listing, form_of, is_arranged, render
from det_jupyter.front.verbs.yaml_input import set_from_yaml
from det_jupyter.view.making.slot_bars import counts_line

FRONT = 20  # trials of a pool's queue that are listed by default
WHOLE = 1000  # the most that the master returns of a queue
_MOST_AGENTS = 16  # agents with a line above the table of slots
_MOST_NAMED = 5  # most trials that are named by their numbers


def show_slots(call: Call) -> str:
    """Return what runs on each slot, agent by agent."""
    view = call.client.cluster(limit=0)
    ledger = slots_text(view, call.reader, with_all=call.options.all)
    return "\n".join([ledger, *problem_notes(call.client, view, call.reader)])


def problem_notes(client: Client, view: ClusterView, reader: Reader) -> list[str]:
    """Return a line for each problem of the master's files, and of disks."""
    return [f"Note: {note}" for note in [*client.problems(), *disk_notes(view, reader)]]


def show_queue(call: Call) -> str:
    """Return the trials that wait for slots, in order, each with its reason."""
    return queue_text(call.client.cluster(limit=WHOLE if call.options.all else FRONT))


def list_slots(call: Call) -> str:
    """Return a row for each slot, below a line for each of the first agents."""
    view = call.client.cluster(limit=0)
    agents = [agent for pool in view.pools for agent in pool.agents]
    lines = [agent_line(agent, view.at) for agent in agents[:_MOST_AGENTS]]
    notes = problem_notes(call.client, view, call.reader)
    return _written(call, [slots_listing(view)], above=lines, below=notes)


def list_agents(call: Call) -> str:
    """Return a row for each agent."""
    view = call.client.cluster(limit=0)
    notes = problem_notes(call.client, view, call.reader)
    return _written(call, [agents_listing(view)], below=notes)


def add_agent(call: Call) -> str:
    """Return the credentials of agents on other computers: a line of JSON for each.

    With the option `output` they are written to a file, and a sentence about that is returned.
    """
    given = call.options
    if given.output is None and call.reader == NOTEBOOK:
        raise UsageError(
            f"{given.words}: credentials are a secret, and a notebook is saved with its output: "
            "give --output FILE"
        )
    path = None if given.output is None else Path(given.output).expanduser()
    if path is not None and not path.parent.is_dir():  # before tokens become void
        raise UsageError(f"--output: there is no folder {path.parent}")
    names = [given.agent]
    if given.nodes is not None:
        names = [f"{given.agent}-{node}" for node in range(given.nodes)]
    credentials = [call.client.add_agent(name, given.address) for name in names]
    lines = "\n".join(each.model_dump_json() for each in credentials)
    if path is None:
        return lines
    try:
        paths.write_private(path, f"{lines}\n")
    except OSError as error:
        raise DetError(f"--output: {path} cannot be written: {error.strerror}") from None
    agents = f"agent {names[0]}" if len(names) == 1 else f"agents {names[0]} to {names[-1]}"
    return f"{path} has the credentials of {agents}; only you can read it"


def remove_agents(call: Call) -> str:
    """Refuse agents of other computers from now on."""
    lines: list[str] = []
    for agent in call.options.agents:
        try:
            call.client.remove_agent(agent)
        except NotFound as error:
            raise NotFound("\n".join([*lines, str(error)])) from None
        lines.append(
            f"agent {agent} cannot connect any more; what runs there ends, and starts elsewhere"
        )
    return "\n".join(lines)


def list_tasks(call: Call) -> str:
    """Return a row for each trial that holds slots or waits for them."""
    return _written(call, [tasks_listing(call.client.cluster(limit=WHOLE))])


def list_pools(call: Call) -> str:
    """Return a row for each pool."""
    view = call.client.cluster(limit=0)
    notes = problem_notes(call.client, view, call.reader)
    return _written(call, [pools_listing(view.pools)], below=notes)


def list_jobs(call: Call) -> str:
    """Return a row for each experiment that has not ended."""
    jobs, pools, chosen = call.client.jobs(), call.client.pools(), call.options.pool
    known = [pool.name for pool in pools]
    if chosen is not None and chosen not in known:
        raise NotFound(f"there is no pool {chosen!r}; there are: {', '.join(known)}")
    listings = jobs_listings(jobs, pools, user_name(), chosen)
    return _written(call, listings, data=jobs_data(jobs, user_name(), chosen))


def _written(
    call: Call,
    listings: Sequence[Listing],
    *,
    above: Sequence[str] = (),
    below: Sequence[str] = (),
    data: Listing | None = None,
) -> str:
    """Return tables as text; as CSV, JSON or YAML, only one table: `data`, or the first."""
    whole, is_data = data or listings[0], bool(form_of(call.options))
    if is_data and whole.num_unknown:
        print(f"… and {whole.num_unknown:,} more", file=sys.stderr)
    if is_data or is_arranged(call.options):
        return render(whole, call.options)
    tables = "\n\n".join(render(listing, call.options) for listing in listings)
    return "\n".join([*above, *([""] if above else []), tables, *below])


def switch_slots(call: Call) -> str:
    """Disable or enable slots of an agent."""
    return _switch(call, [call.options.agent], call.options.slots or None)


def switch_agents(call: Call) -> str:
    """Disable or enable all slots of an agent, or of all agents."""
    given = call.options
    if given.all == (given.agent is not None):
        raise UsageError(f"{given.words}: give the name of an agent, or --all")
    names = [given.agent]
    if given.all:
        names = [agent.id for agent in call.client.agents()]
    return _switch(call, names, None)


def _switch(call: Call, agents: Sequence[str], slots: Sequence[int] | None) -> str:
    is_enabled = call.options.verb.name == "enable"
    drain = not is_enabled and call.options.drain
    given = {"slots": slots, "enabled": is_enabled, "drain": drain}
    requests = [make_request(SwitchSlots, agent_id=name, **given) for name in agents]
    switched = [call.client.change(request) for request in requests]
    return "\n".join(_describe_agent(agent, is_enabled=is_enabled) for agent in switched)


def _describe_agent(agent: AgentStatus, *, is_enabled: bool) -> str:
    """Return the state of an agent's slots; after disabling also what its trials do."""
    done = f"{agent_title(agent, time.time())}: {counts_line([agent])}."
    if is_enabled:
        return done
    held = [(slot.trial_id, slot) for slot in agent.slots if slot.trial_id is not None]
    leaving = {i for i, slot in held if slot.state == "leaving"}
    staying = {i for i, slot in held if slot.is_draining} - leaving
    if leaving:
        asked = "is asked to save its" if len(leaving) == 1 else "are asked to save their"
        done += f" {_trials(leaving)} {asked} state and leave."
    if staying:
        done += f" {_trials(staying)} may finish first."
    return done


def _trials(ids: Set[int]) -> str:
    return f"Trial{'s' * (len(ids) > 1)} {listed(sorted(ids), most=_MOST_NAMED)}"


def set_pools(call: Call) -> str:
    """Divide the agents into the pools of a cell's YAML, or of a file's."""
    above = f"{call.reader.above_yaml}{call.reader.det} pool set"
    return set_from_yaml(call, lambda text: _set_pools(call.client, text), above)


def _set_pools(client: Client, text: str) -> str:
    document = parse_yaml(text)
    if "pools" not in document:
        raise ConfigError(["expected the key pools with a list: pools: [{pool_name: default}]"])
    try:
        parse_pools(document)
        pools = client.change(make_request(SetPools, pools=document["pools"] or []))
    except ConfigError as error:
        raise located(error.problems, read_yaml(text)) from None
    lines = [pool_line(pool) for pool in pools]
    if document.get("agents"):
        lines.append(
            "Note: agents are simulated only by the file pools.yaml, from the next start on."
        )
    return "\n".join(lines)
