"""What `%det slot`, `agent`, `task`, `job`, `pool`, `queue` and `why` do."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any

import yaml
from IPython.core.error import UsageError

from det_jupyter.client.asking import ask_for
from det_jupyter.errors import ConfigError, DetError, NotFound
from det_jupyter.notebook import cluster, handles
from det_jupyter.notebook.cluster_tables import (
    Listing,
    agents_listing,
    pools_listing,
    slots_listing,
    tasks_listing,
)
from det_jupyter.notebook.cluster_text import agent_title, signs, summary
from det_jupyter.notebook.det_arguments import OPERATIONS
from det_jupyter.notebook.pool_verbs import set_pools
from det_jupyter.notebook.steering_verbs import describe_place, print_why
from det_jupyter.wire import (
    AgentStatus,
    ChangeResources,
    ExperimentView,
    MoveInQueue,
    PoolStatus,
    SwitchSlots,
)

_OPERATION = re.compile(r"(\d+)\.([a-z-]+)=(.*)", re.DOTALL)


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
            _print([pools_listing(handles.client().pools())], options)


def _print(listings: Sequence[Listing], options: argparse.Namespace, above: str = "") -> None:
    if options.csv or options.json:
        for listing in listings:
            print(listing.csv() if options.csv else listing.json(), end="")
        return
    most = {"most": None} if options.all else {}
    print(above + "\n\n".join(listing.text(**most) for listing in listings))


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
        print(_describe_agent(client.switch_slots(name, request), options))


def _describe_agent(agent: AgentStatus, options: argparse.Namespace) -> str:
    done = f"{agent_title(agent)}: {summary(agent.slots)}"
    holding = [s for s in agent.slots if s.is_draining or s.state == "leaving"]
    if options.verb == "enable" or not holding:
        return f"{done}."
    how = "may finish" if options.drain else "are asked to save their state and leave"
    return f"{done}. The trials on {len(holding)} of them {how}."


def _job(options: argparse.Namespace) -> None:
    match options.verb:
        case "list" | "ls":
            jobs = cluster.jobs()
            if options.pool is not None:
                _find_pool(handles.client().pools(), options.pool)
            _print(jobs.listings(options.pool), options)
        case "move":
            print(describe_place(_move(options.id, options.ahead_of, options.behind)))
        case "update":
            _update(options)
        case _:
            _update_several(options.operations)


def _find_pool(pools: Sequence[PoolStatus], name: str) -> None:
    if all(pool.name != name for pool in pools):
        known = ", ".join(pool.name for pool in pools)
        raise NotFound(f"there is no pool {name!r}; there are: {known}")


def _move(experiment_id: int, ahead_of: int | None, behind: int | None) -> ExperimentView:
    request = ask_for(MoveInQueue, ahead_of=ahead_of, behind=behind)
    return handles.client().move(experiment_id, request)


def _update(options: argparse.Namespace) -> None:
    change = ask_for(
        ChangeResources,
        priority=options.priority,
        weight=options.weight,
        resource_pool=options.resource_pool,
    )
    moves = options.ahead_of is not None or options.behind is not None
    if change == ChangeResources() and not moves:
        raise UsageError(
            "%det job update: nothing to change; give --priority, --weight, --resource-pool, "
            "--ahead-of or --behind-of"
        )
    if change != ChangeResources():
        view = handles.client().change_resources(options.id, change)
    if moves:
        view = _move(options.id, options.ahead_of, options.behind)
    print(describe_place(view))


def _update_several(texts: Sequence[str]) -> None:
    """Read all operations before the first is carried out; then each, whatever becomes of it."""
    problems: list[str] = []
    operations: list[tuple[int, str, Any]] = []
    for text in texts:
        try:
            operations.append(_read_operation(text))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    for experiment_id, name, value in operations:
        try:
            print(describe_place(_carry_out(experiment_id, name, value)))
        except DetError as error:
            field = name.replace("-", "_")
            problems.append(f"{experiment_id}.{name}: {str(error).removeprefix(f'{field}: ')}")
    if problems:
        raise ConfigError(problems)


def _read_operation(text: str) -> tuple[int, str, Any]:
    found = _OPERATION.fullmatch(text)
    if found is None or found[2] not in OPERATIONS:
        raise ConfigError(
            [f"got {text!r}, expected ID.OPERATION=VALUE with one of {', '.join(OPERATIONS)}"]
        )
    value: Any = found[3] if found[2] == "resource-pool" else yaml.safe_load(found[3] or "null")
    if isinstance(value, bool) or not isinstance(value, (int, float, str)) or value == "":
        raise ConfigError([f"{text}: expected a value after the ="])
    return int(found[1]), found[2], value


def _carry_out(experiment_id: int, name: str, value: Any) -> ExperimentView:
    if name in ("ahead-of", "behind-of"):
        ahead, behind = (value, None) if name == "ahead-of" else (None, value)
        return _move(experiment_id, ahead, behind)
    given = {name.replace("-", "_"): value}
    return handles.client().change_resources(experiment_id, ask_for(ChangeResources, **given))
