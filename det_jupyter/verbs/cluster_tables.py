"""Slots, agents, jobs, tasks and pools as tables; their columns are those that Determined had."""

from __future__ import annotations

import csv
import getpass
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from det_jupyter.verbs.cluster_text import signs
from det_jupyter.verbs.tables import plain_table, shown
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
from det_jupyter.words import date, shortened

MOST_ROWS = 50
_LONGEST = {"Job Name": 40, "Task Name": 40, "Description": 40}  # in a table for people
_SENTENCE = 400  # that much of any other text goes into one

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A table that can be written in several ways.

    Args:
        title: A line above it.
        header: Names of the columns; one without a name is for people only.
        rows: Cells as what they are; None: there is none.
        if_empty: What to say if there are no rows.
        num_unknown: How many rows there are that are not at hand.
        below: If not empty, as text each row has this line below it instead of the last column.
    """

    title: str = ""
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
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

    def _table(self, rows: Sequence[Sequence[Cell]]) -> str:
        cells = [self.texts(row) for row in rows]
        if not self.below:
            return plain_table(self.header, cells)
        head, *lines = plain_table(self.header[:-1], [row[:-1] for row in cells]).splitlines()
        below = [f"\n    {text}" if text else "" for text in self.below[: len(rows)]]
        return "\n".join([head, *map("".join, zip(lines, below, strict=True))])

    def texts(self, row: Sequence[Cell]) -> list[str]:
        """Return the cells of a row as people read them: each on one line, and not too long."""
        return [
            shortened(shown(cell), _LONGEST.get(name, _SENTENCE))
            for name, cell in zip(self.header, row, strict=True)
        ]

    def csv(self) -> str:
        """Return it as comma-separated values; what there is none of is empty."""
        file = io.StringIO()
        named = [list(row) for row in self._named_rows()]
        rows = [[str(c).lower() if isinstance(c, bool) else c for c in row] for row in named]
        header = [name for name in self.header if name]
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
        return file.getvalue()

    def json(self) -> str:
        """Return its rows as JSON: one list, numbers as numbers."""
        header = [name for name in self.header if name]
        rows = [dict(zip(header, row, strict=True)) for row in self._named_rows()]
        return f"{json.dumps(rows, indent=2, ensure_ascii=False)}\n"

    def _named_rows(self) -> Iterator[list[Cell]]:
        for row in self.rows:
            yield [cell for name, cell in zip(self.header, row, strict=True) if name]


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
    return Listing(header=header, rows=rows, if_empty="No agent is connected, so there are none.")


def _allocation(slot: SlotStatus) -> str | None:
    if slot.allocation_id is not None:
        return slot.allocation_id
    return {"occupied": "OCCUPIED", "disabled": None}.get(slot.state, "FREE")


def _task_name(slot: SlotStatus) -> str | None:
    if slot.trial_id is not None:
        leaving = " (leaving)" if slot.state == "leaving" else ""
        return f"Trial {slot.trial_id} (Experiment {slot.experiment_id}){leaving}"
    return ", ".join(f"pid {p.pid} {p.command}" for p in slot.processes) or None


def agents_listing(view: ClusterView) -> Listing:
    """Return a row for each agent."""
    header = ("Agent ID", "Hostname", "Resource Pool", "Connected", "Enabled", "Draining", "Slots",
              "Used", "Free", "")  # fmt: skip
    rows = [_agent_row(agent) for pool in view.pools for agent in pool.agents]
    return Listing(header=header, rows=rows, if_empty="No agent is connected.")


def _agent_row(agent: AgentStatus) -> tuple[Cell, ...]:
    states = [slot.state for slot in agent.slots]
    off = [slot for slot in agent.slots if slot.state == "disabled" or slot.is_draining]
    return (
        agent.id,
        agent.hostname,
        agent.pool,
        agent.connected,
        len(off) < len(agent.slots) or not agent.slots,
        any(slot.is_draining for slot in agent.slots),
        len(states),
        states.count("used") + states.count("leaving"),
        states.count("free"),
        signs(agent),
    )


def tasks_listing(tasks: Sequence[TaskEntry], pools: Sequence[PoolStatus]) -> Listing:
    """Return a row for each trial that holds slots or waits for them."""
    header = ("Task ID", "Allocation ID", "Name", "Slots Needed", "Registered Time", "Agent",
              "Priority", "Resource Pool", "Ports", "Waits For")  # fmt: skip
    policies = {pool.name: pool.policy for pool in pools}
    rows = [
        (
            task.trial_id,
            task.allocation_id,
            f"Trial {task.trial_id} (Experiment {task.experiment_id})",
            task.slots,
            date(task.registered_at),
            ", ".join(dict.fromkeys(task.agent_ids)) or "unassigned",
            task.priority if policies.get(task.pool, "priority") == "priority" else None,
            task.pool,
            None,
            task.waiting_for,
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
        yield "" if is_told else shortened(task.waiting_for or "", _SENTENCE)


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
    ranked_by = "Priority" if pool.policy == "priority" else "Weight"
    header = ("#", "ID", "Type", "Job Name", ranked_by, "Submitted", "Slots (acquired/needed)",
              "State", "User")  # fmt: skip
    rows = [_job_cells(job, user, header) for job in jobs if job.pool == pool.name]
    title = "" if is_alone else f"Pool {shortened(pool.name)}"
    return Listing(title=title, header=header, rows=rows, if_empty="No experiment runs or waits.")


def jobs_data(jobs: Sequence[JobEntry], user: str, pool: str | None = None) -> Listing:
    """Return one table for programs, of all pools or of one: the same columns in each row."""
    header = ("#", "ID", "Type", "Job Name", "Priority", "Weight", "Submitted", "Slots Acquired",
              "Slots Needed", "State", "User", "Resource Pool")  # fmt: skip
    rows = [_job_cells(job, user, header) for job in jobs if pool in (None, job.pool)]
    return Listing(header=header, rows=rows)


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
    """Return the name of the master's one user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a number without a name, as in containers
        return "-"
