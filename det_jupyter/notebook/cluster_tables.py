"""Slots, agents, jobs, tasks and pools as tables; their columns are those that Determined had."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from det_jupyter.notebook.cluster_text import one_line, signs
from det_jupyter.notebook.tables import plain_table, shown
from det_jupyter.wire import (
    AgentStatus,
    AllocationState,
    ClusterView,
    JobEntry,
    PoolStatus,
    SlotStatus,
    State,
    TaskEntry,
)

MOST_ROWS = 50
_SENTENCE = 400  # that much of one goes into a table


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A table that can be written in several ways.

    Args:
        title: A line above it.
        header: Names of the columns.
        rows: Cells as text.
        if_empty: What to say if there are no rows.
        num_unknown: How many rows there are that are not at hand.
        below: If not empty, as text each row has this line below it instead of the last column.
    """

    title: str = ""
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    if_empty: str = ""
    num_unknown: int = 0
    below: Sequence[str] = ()

    def text(self, most: int | None = MOST_ROWS) -> str:
        """Return it as lines; of many rows only the front, and how many there are."""
        title = f"{self.title}\n" if self.title else ""
        if not self.rows:
            return f"{title}{self.if_empty}"
        front = self.rows if most is None else self.rows[:most]
        rest = ""
        if more := len(self.rows) - len(front) + self.num_unknown:
            hint = "; --all lists more" if len(front) < len(self.rows) else ""
            rest = f"\n… and {more:,} more{hint}"
        return f"{title}{self._table(front)}{rest}"

    def _table(self, rows: Sequence[Sequence[str]]) -> str:
        if not self.below:
            return plain_table(self.header, rows)
        head, *lines = plain_table(self.header[:-1], [row[:-1] for row in rows]).splitlines()
        below = [f"\n    {text}" if text else "" for text in self.below[: len(rows)]]
        return "\n".join([head, *map("".join, zip(lines, below, strict=True))])

    def csv(self) -> str:
        """Return it as comma-separated values."""
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows([self.header, *self.rows])
        return file.getvalue()

    def json(self) -> str:
        """Return its rows as JSON."""
        rows = [dict(zip(self.header, row, strict=True)) for row in self.rows]
        return json.dumps(rows, indent=2, ensure_ascii=False)


def slots_listing(view: ClusterView) -> Listing:
    """Return a row for each slot."""
    header = ("Agent ID", "Resource Pool", "Slot ID", "Enabled", "Draining", "Allocation ID",
              "Task Name", "Type", "Device")  # fmt: skip
    rows = [
        (
            agent.id,
            agent.pool,
            str(slot.slot.id),
            shown(slot.state != "disabled" and not slot.is_draining),
            shown(slot.is_draining),
            _allocation(slot) if agent.connected else "-",
            _task_name(slot),
            slot.slot.kind,
            slot.slot.name,
        )
        for pool in view.pools
        for agent in pool.agents
        for slot in agent.slots
    ]
    return Listing(header=header, rows=rows, if_empty="No agent is connected, so there are none.")


def _allocation(slot: SlotStatus) -> str:
    if slot.allocation_id is not None:
        return slot.allocation_id
    return "OCCUPIED" if slot.state == "occupied" else "-" if slot.state == "disabled" else "FREE"


def _task_name(slot: SlotStatus) -> str:
    if slot.trial_id is not None:
        leaving = " (leaving)" if slot.state == "leaving" else ""
        return f"Trial {slot.trial_id} (Experiment {slot.experiment_id}){leaving}"
    return one_line(", ".join(f"pid {p.pid} {p.command}" for p in slot.processes)) or "-"


def agents_listing(view: ClusterView) -> Listing:
    """Return a row for each agent."""
    header = ("Agent ID", "Hostname", "Resource Pool", "Connected", "Enabled", "Draining", "Slots",
              "Used", "Free", "")  # fmt: skip
    rows = [_agent_row(agent) for pool in view.pools for agent in pool.agents]
    return Listing(header=header, rows=rows, if_empty="No agent is connected.")


def _agent_row(agent: AgentStatus) -> tuple[str, ...]:
    states = [slot.state for slot in agent.slots]
    off = [slot for slot in agent.slots if slot.state == "disabled" or slot.is_draining]
    return (
        agent.id,
        agent.hostname,
        agent.pool,
        shown(agent.connected),
        shown(len(off) < len(agent.slots) or not agent.slots),
        shown(any(slot.is_draining for slot in agent.slots)),
        str(len(states)),
        str(states.count("used") + states.count("leaving")),
        str(states.count("free")),
        signs(agent),
    )


def tasks_listing(tasks: Sequence[TaskEntry], pools: Sequence[PoolStatus]) -> Listing:
    """Return a row for each trial that holds slots or waits for them."""
    header = ("Task ID", "Allocation ID", "Name", "Slots Needed", "Registered Time", "Agent",
              "Priority", "Resource Pool", "Ports", "Waits For")  # fmt: skip
    policies = {pool.name: pool.policy for pool in pools}
    rows = [
        (
            str(task.trial_id),
            task.allocation_id,
            f"Trial {task.trial_id} (Experiment {task.experiment_id})",
            str(task.slots),
            moment(task.registered_at),
            ", ".join(dict.fromkeys(task.agent_ids)) or "unassigned",
            str(task.priority) if policies.get(task.pool, "priority") == "priority" else "N/A",
            task.pool,
            "-",
            one_line(task.waiting_for or "-", _SENTENCE),
        )
        for task in tasks
    ]
    waiting = sum(task.state == AllocationState.QUEUED for task in tasks)
    return Listing(
        header=header,
        rows=rows,
        if_empty="No trial runs or waits.",
        below=list(_first_sentences(tasks)),
        num_unknown=max(0, sum(pool.num_waiting for pool in pools) - waiting),
    )


def _first_sentences(tasks: Sequence[TaskEntry]) -> Iterator[str]:
    """Yield what each trial waits for; of an experiment's trials in a row only the first's."""
    told = 0
    for task in tasks:
        is_told = task.waiting_for is not None and task.experiment_id == told
        told = task.experiment_id if task.waiting_for is not None else 0
        yield "" if is_told else one_line(task.waiting_for or "", _SENTENCE)


def jobs_listings(
    jobs: Sequence[JobEntry], pools: Sequence[PoolStatus], user: str, pool: str | None = None
) -> list[Listing]:
    """Return for each pool a table with a row for each experiment that is not over.

    Args:
        user: Whose they are.
        pool: Only this one.
    """
    shown_pools = [p for p in pools if pool in (None, p.name)]
    busy = [p for p in shown_pools if any(job.pool == p.name for job in jobs)]
    return [_jobs_of(p, jobs, user, is_alone=len(busy) < 2) for p in busy or shown_pools[:1]]


def _jobs_of(pool: PoolStatus, jobs: Sequence[JobEntry], user: str, *, is_alone: bool) -> Listing:
    ranks_by = "Priority" if pool.policy == "priority" else "Weight"
    header = ("#", "ID", "Type", "Job Name", ranks_by, "Submitted", "Slots (acquired/needed)",
              "State", "User")  # fmt: skip
    rows = [
        (
            "N/A" if job.jobs_ahead is None else str(job.jobs_ahead),
            str(job.experiment_id),
            "EXPERIMENT",
            one_line(job.name),
            str(job.priority) if ranks_by == "Priority" else f"{job.weight:g}",
            moment(job.created_at),
            f"{job.slots_held}/{job.slots_wanted}",
            job_state(job),
            user,
        )
        for job in jobs
        if job.pool == pool.name
    ]
    title = "" if is_alone else f"Pool {pool.name}"
    return Listing(title=title, header=header, rows=rows, if_empty="No experiment runs or waits.")


def job_state(job: JobEntry) -> str:
    """Return whether an active experiment holds slots, or what else it is."""
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
            shown(pool.preemption),
            str(pool.default_priority) if pool.policy == "priority" else "N/A",
            str(len(pool.agents)),
            str(pool.num_slots),
            str(pool.num_free),
            str(pool.num_waiting),
            one_line(pool.description or "-"),
        )
        for pool in pools
    ]
    return Listing(header=header, rows=rows, if_empty="There is no pool.")


def moment(at: float) -> str:
    """Return a date and time of this computer's time zone."""
    return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")
