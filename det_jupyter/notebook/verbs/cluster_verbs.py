"""What `%det slot`, `agent`, `task`, `job`, `pool`, `queue` and `why` do."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence, Set

from IPython.core.error import UsageError

from det_jupyter.client.asking import ask_for
from det_jupyter.errors import NotFound
from det_jupyter.notebook.handles import cluster, handles
from det_jupyter.notebook.verbs import job_verbs
from det_jupyter.notebook.verbs.pool_verbs import set_pools
from det_jupyter.notebook.verbs.steering_verbs import print_why
from det_jupyter.verbs.cluster_tables import (
    Listing,
    agents_listing,
    pools_listing,
    slots_listing,
    tasks_listing,
)
from det_jupyter.verbs.cluster_text import agent_title, signs, summary
from det_jupyter.wire import AgentStatus, PoolStatus, SwitchSlots

_MOST_NAMED = 5  # trials, by their numbers


def run(options: argparse.Namespace, cell: str | None) -> None:
    """Carry out one parsed line, with the cell below it if there is one."""
    verb = getattr(options, "verb", None)
    if cell is not None and (options.noun, verb) != ("pool", "set"):
        words = " ".join(word for word in (options.noun, verb) if word)
        raise UsageError(f"%%det {words}: takes no cell; write %det")
    match options.noun:
        case "slots":
            print(cluster.slots(all=options.all))
        case "queue":
            print(cluster.queue(limit=cluster.WHOLE if options.all else cluster.FRONT))
        case "why":
            print_why(experiment_id=options.experiment, trial_id=options.trial)
        case "slot" | "agent":
            _slots_or_agents(options)
        case "task":
            client = handles.client()
            tasks = client.tasks(limit=cluster.WHOLE)
            _print([tasks_listing(tasks, client.pools())], options)
        case "job":
            _job(options)
        case _ if verb == "set":
            set_pools(options, cell)
        case _:
            _print([pools_listing(handles.client().pools())], options, notes=cluster.notes())


def _print(
    listings: Sequence[Listing],
    options: argparse.Namespace,
    *,
    above: str = "",
    data: Listing | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Print tables for people, or for programs one document: `data`, or the only table."""
    if options.csv or options.json:
        whole = data or listings[0]
        print(whole.csv() if options.csv else whole.json(), end="")
        if whole.num_unknown:
            print(f"… and {whole.num_unknown:,} more", file=sys.stderr)
        return
    most = {"most": None} if options.all else {}
    print("\n".join([above + "\n\n".join(table.text(**most) for table in listings), *notes]))


def _slots_or_agents(options: argparse.Namespace) -> None:
    if options.verb in ("enable", "disable"):
        _switch(options)
        return
    view = handles.client().cluster(limit=0)
    if options.noun == "agent":
        _print([agents_listing(view)], options)
        return
    agents = [agent for pool in view.pools for agent in pool.agents]
    bars = "".join(f"{agent_title(a)}  {signs(a)}  {summary(a.slots)}\n" for a in agents[:16])
    _print([slots_listing(view)], options, above=bars and f"{bars}\n")


def _switch(options: argparse.Namespace) -> None:
    client = handles.client()
    is_enabled = options.verb == "enable"
    takes_all = getattr(options, "all", False)
    if takes_all == (options.agent is not None):
        raise UsageError(
            f"%det {options.noun} {options.verb}: give the name of an agent, or --all"
        )
    names = [options.agent]
    if takes_all:
        names = [agent.id for pool in client.pools() for agent in pool.agents]
    request = ask_for(
        SwitchSlots,
        slots=getattr(options, "slots", None) or None,
        enabled=is_enabled,
        drain=getattr(options, "drain", False),
    )
    for name in names:
        print(_describe_agent(client.switch_slots(name, request), is_enabled=is_enabled))


def _describe_agent(agent: AgentStatus, *, is_enabled: bool) -> str:
    """Return how an agent is now; if slots were taken out, also what becomes of the trials."""
    done = f"{agent_title(agent)}: {summary(agent.slots)}."
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
    front, more = sorted(ids)[:_MOST_NAMED], len(ids) - _MOST_NAMED
    words = [*map(str, front), *([f"{more:,} more"] if more > 0 else [])]
    if len(words) == 1:
        return f"Trial {words[0]}"
    return f"Trials {', '.join(words[:-1])} and {words[-1]}"


def _job(options: argparse.Namespace) -> None:
    match options.verb:
        case "list" | "ls":
            jobs = cluster.jobs()
            if options.pool is not None:
                _find_pool(handles.client().pools(), options.pool)
            _print(jobs.listings(options.pool), options, data=jobs.data(options.pool))
        case "move":
            job_verbs.move(options)
        case "update":
            job_verbs.update(options)
        case _:
            job_verbs.update_several(options.operations)


def _find_pool(pools: Sequence[PoolStatus], name: str) -> None:
    if all(pool.name != name for pool in pools):
        known = ", ".join(pool.name for pool in pools)
        raise NotFound(f"there is no pool {name!r}; there are: {known}")
