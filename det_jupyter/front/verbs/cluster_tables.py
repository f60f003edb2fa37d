"""Slots, agents, jobs, tasks and pools as tables, with the columns of Determined's command."""

from __future__ import annotations

import getpass
from collections.abc import Iterator, Sequence

from det_jupyter.contract.messages import (
    AgentStatus,
    ClusterView,
    JobEntry,
    PoolStatus,
    QueueEntry,
    RunEntry,
    SlotStatus,
    State,
)
from det_jupyter.contract.values.text import date, shortened
from det_jupyter.front.verbs.cluster_text import slot_signs
from det_jupyter.front.verbs.listings import SENTENCE, Cell, Listing

_NODE_DIGITS = 12  # of a node's id
_NO_JOBS = "No experiment runs or waits."


def slots_listing(view: ClusterView) -> Listing:
    """Return a row for each slot."""
    header = ("Agent ID", "Resource Pool", "Slot ID", "Enabled", "Draining", "Allocation ID",
              "Task Name", "Type", "Device")  # fmt: skip
    rows = [
        (
            agent.id,
            agent.pool,
            slot.slot.id,
            slot.state != "disabled" and not slot.is_draining,
            slot.is_draining,
            _allocation(slot) if agent.connected else None,
            _task_name(slot),
            slot.slot.kind,
            slot.slot.name,
        )
        for pool in view.pools
        for agent in pool.agents
        for slot in agent.slots
    ]
    return Listing(
        header=header,
        rows=rows,
        names=("Agent ID", "Slot ID"),
        if_empty="No agent is connected, so there are none.",
    )


def _allocation(slot: SlotStatus) -> str | None:
    if slot.allocation_id is not None:
        return slot.allocation_id
    return {"occupied": "OCCUPIED", "lost": "LOST", "disabled": None}.get(slot.state, "FREE")


def _task_name(slot: SlotStatus) -> str | None:
    if slot.trial_id is not None:
        leaving = " (leaving)" if slot.state == "leaving" else ""
        return f"Trial {slot.trial_id} (Experiment {slot.experiment_id}){leaving}"
    words = [p.command if p.claim else f"pid {p.pid} {p.command}" for p in slot.processes]
    return ", ".join([*([str(slot.lost)] if slot.lost else []), *words]) or None


def agents_listing(view: ClusterView) -> Listing:
    """Return a row for each agent; with its cluster and node, if any is on a node of one."""
    agents = [agent for pool in view.pools for agent in (*pool.agents, *pool.lost)]
    on_nodes = ("Cluster", "Node") if any(agent.cluster for agent in agents) else ()
    header = ("Agent ID", "Hostname", "Address", "State", "Resource Pool", "Connected", "Enabled",
              "Draining", "Slots", "Used", "Free", "Versions", *on_nodes, "")  # fmt: skip
    rows = [_agent_row(agent, view.at, with_node=bool(on_nodes)) for agent in agents]
    return Listing(header=header, rows=rows, if_empty="No agent is connected.")


def _agent_row(agent: AgentStatus, now: float, *, with_node: bool) -> tuple[Cell, ...]:
    states = [slot.state for slot in agent.slots]
    off = [slot for slot in agent.slots if slot.state == "disabled" or slot.is_draining]
    node = (agent.cluster or None, agent.node[:_NODE_DIGITS] or None) if with_node else ()
    return (
        agent.id,
        agent.hostname,
        agent.address or None,
        agent.state(now),
        agent.pool,
        agent.connected,
        len(off) < len(agent.slots) or not agent.slots,
        any(slot.is_draining for slot in agent.slots),
        len(states),
        states.count("used") + states.count("leaving"),
        states.count("free"),
        ", ".join(f"{name} {version}" for name, version in sorted(agent.versions.items())) or None,
        *node,
        " ".join([slot_signs(agent), *_losses(agent, now)]),
    )


def _losses(agent: AgentStatus, now: float) -> list[str]:
    return [slot.lost.sentence(now) for slot in agent.slots if slot.lost is not None]


def tasks_listing(view: ClusterView) -> Listing:
    """Return a row for each trial that holds slots or waits for them."""
    header = ("Task ID", "Allocation ID", "Name", "Slots Needed", "Registered Time", "Agent",
              "Priority", "Resource Pool", "Ports", "Waits For")  # fmt: skip
    policies = {pool.name: pool.policy for pool in view.pools}
    rows = [
        (
            task.trial_id,
            task.allocation_id,
            f"Trial {task.trial_id} (Experiment {task.experiment_id})",
            task.slots,
            date(task.queued_at),
            ", ".join(task.agent_ids) or "unassigned",
            task.priority if policies.get(task.pool, "priority") == "priority" else None,
            task.pool,
            None,
            _waits_for(task),
        )
        for task in view.runs
    ]
    return Listing(
        header=header,
        rows=rows,
        if_empty="No trial runs or waits.",
        below=list(_first_sentences(view.runs)),
        num_unknown=view.num_waiting - len(view.queue),
    )


def _waits_for(task: RunEntry) -> str | None:
    return task.reason.sentence if isinstance(task, QueueEntry) else None


def _first_sentences(tasks: Sequence[RunEntry]) -> Iterator[str]:
    """Yield why each task waits; "" if the task before is a waiting one of the same experiment."""
    last_id = 0
    for task in tasks:
        sentence = _waits_for(task)
        is_repeated = sentence is not None and task.experiment_id == last_id
        last_id = task.experiment_id if sentence is not None else 0
        yield "" if is_repeated else shortened(sentence or "", SENTENCE)


def jobs_listings(
    jobs: Sequence[JobEntry], pools: Sequence[PoolStatus], user: str, pool: str | None = None
) -> list[Listing]:
    """Return a table of active experiments for each pool, or for the pool of that name."""
    chosen = [p for p in pools if pool in (None, p.name)]
    busy = [p for p in chosen if any(job.pool == p.name for job in jobs)]
    return [_jobs_of(p, jobs, user, is_alone=len(busy) < 2) for p in busy or chosen[:1]]


def _jobs_of(pool: PoolStatus, jobs: Sequence[JobEntry], user: str, *, is_alone: bool) -> Listing:
    ranked_by = "Priority" if pool.policy == "priority" else "Weight"
    header = ("#", "ID", "Type", "Job Name", ranked_by, "Submitted", "Slots (acquired/needed)",
              "State", "User")  # fmt: skip
    rows = [_job_cells(job, user, header) for job in jobs if job.pool == pool.name]
    title = "" if is_alone else f"Pool {shortened(pool.name)}"
    return Listing(title=title, header=header, rows=rows, if_empty=_NO_JOBS)


def jobs_data(jobs: Sequence[JobEntry], user: str, pool: str | None = None) -> Listing:
    """Return one table of all pools, or of one, for CSV, JSON and YAML."""
    header = ("#", "ID", "Type", "Job Name", "Priority", "Weight", "Submitted", "Slots Acquired",
              "Slots Needed", "State", "User", "Resource Pool")  # fmt: skip
    rows = [_job_cells(job, user, header) for job in jobs if pool in (None, job.pool)]
    return Listing(header=header, rows=rows, names=("ID",), if_empty=_NO_JOBS)


def _job_cells(job: JobEntry, user: str, header: Sequence[str]) -> tuple[Cell, ...]:
    cells: dict[str, Cell] = {
        "#": job.jobs_ahead,
        "ID": job.experiment_id,
        "Type": "EXPERIMENT",
        "Job Name": job.name,
        "Priority": job.priority,
        "Weight": job.weight,
        "Submitted": date(job.created_at),
        "Slots (acquired/needed)": f"{job.slots_held}/{job.slots_wanted}",
        "Slots Acquired": job.slots_held,
        "Slots Needed": job.slots_wanted,
        "State": job_state(job),
        "User": user,
        "Resource Pool": job.pool,
    }
    return tuple(cells[name] for name in header)


def job_state(job: JobEntry) -> str:
    """Return SCHEDULED or QUEUED for an active experiment, otherwise its state."""
    if job.state is not State.ACTIVE:
        return str(job.state)
    return "SCHEDULED" if job.num_running else "QUEUED"


def pools_listing(pools: Sequence[PoolStatus]) -> Listing:
    """Return a row for each pool."""
    header = ("Name", "Scheduler", "Preemption", "Default Priority", "Agents", "Slots", "Free",
              "Waiting", "Description")  # fmt: skip
    rows = [
        (
            pool.name,
            pool.policy,
            pool.preemption,
            pool.default_priority if pool.policy == "priority" else None,
            len(pool.agents),
            pool.num_slots,
            pool.num_free,
            pool.num_waiting,
            pool.description or None,
        )
        for pool in pools
    ]
    return Listing(header=header, rows=rows, if_empty="There is no pool.")


def user_name() -> str:
    """Return the name of this process's user, who is the master's only user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a user id without a name, as in containers
        return "-"
