"""Slots and queues as text: what runs on each slot, and which trials wait. Pure.

    [0] ████  used        by a gang
    [1] ▓▓▒▒  leaving     a gang that is preempted or ends
    [2] ····  free
    [3] ▞▞▞▞  occupied    by a process of another program
    [4] !!!!  lost        its device does not work until it is reset
    [5] xxxx  disabled    by the user

With many slots or agents, an agent is one line with a character for each slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.messages import (
    AgentStatus,
    ClusterView,
    DeviceProcess,
    PoolStatus,
    QueueEntry,
    SlotStatus,
)
from det_jupyter.contract.values.reader import Reader
from det_jupyter.contract.values.text import (
    count,
    experiment_title,
    rough_duration,
    short_time,
    shortened,
    size,
)
from det_jupyter.view.making.slot_bars import counts_line, facts_of, note_of, rules_of

BARS = {
    "used": "████",
    "leaving": "▓▓▒▒",
    "free": "····",
    "occupied": "▞▞▞▞",
    "lost": "!!!!",
    "disabled": "xxxx",
}
MOST_LINES = 64  # slots of all agents that are listed one by one
MOST_AGENTS = 40
_MOST_SIGNS = 64
_IDLE_S = 60.0  # a kernel that did not use its device for so long was probably left open


def slots_text(view: ClusterView, reader: Reader, *, with_all: bool = False) -> str:
    """Return all slots, pool by pool and agent by agent, and how to free idle ones."""
    if not view.pools:
        return "There is no pool."
    is_short = sum(len(a.slots) for p in view.pools for a in p.agents) <= MOST_LINES
    lines: list[str] = []
    for pool in view.pools:
        lines.append(pool_line(pool))
        listed = pool.agents if with_all else pool.agents[:MOST_AGENTS]
        for agent in listed:
            has_counts = len(pool.agents) > 1  # otherwise the pool's line has them
            lines.append(f"  {agent_line(agent, view.at, has_counts=has_counts)}")
            if agent.connected and (is_short or with_all):
                lines += _slot_lines(agent, view.at)
        if hidden := pool.agents[len(listed) :]:
            lines.append(f"  … and {count(len(hidden), 'more agent')}: {counts_line(hidden)}")
        if not pool.agents:
            lines.append("  no agents")
        lines += [f"  {agent_title(agent, view.at)}" for agent in pool.lost[:MOST_AGENTS]]
    return "\n".join(lines + [f"\n{hint}" for hint in idle_hints(view, reader)])


def pool_line(pool: PoolStatus) -> str:
    """Return a pool in one line."""
    waiting = f"; {count(pool.num_waiting, 'trial')} waiting" if pool.num_waiting else ""
    counts = counts_line(pool.agents)
    return f"Pool {shortened(pool.name)} ({rules_of(pool)}): {counts}{waiting}"


def slot_signs(agent: AgentStatus) -> str:
    """Return a character for each slot of an agent, such as ██··."""
    text = "".join(BARS[slot.state][0] for slot in agent.slots[:_MOST_SIGNS])
    return f"{text}…" if len(agent.slots) > _MOST_SIGNS else text


def agent_title(agent: AgentStatus, now: float) -> str:
    """Return an agent's name, with its computer and why nothing can start there, if so."""
    note = note_of(agent, now)
    return f"Agent {shortened(agent.id)}{f' ({note})' if note else ''}"


def agent_line(agent: AgentStatus, now: float, *, has_counts: bool = True) -> str:
    """Return an agent with a sign for each slot, and the number of slots by state."""
    counts = counts_line([agent]) if has_counts else ""
    return "  ".join(filter(None, (agent_title(agent, now), slot_signs(agent), counts)))


def _slot_lines(agent: AgentStatus, at: float) -> Iterator[str]:
    groups = [
        (
            f"[{first.slot.id}]" if first is last else f"[{first.slot.id}-{last.slot.id}]",
            first,
            last,
        )
        for first, last in group_slots(agent.slots)
    ]
    width = max((len(numbers) for numbers, *_ in groups), default=0)
    for numbers, first, last in groups:
        facts = " · ".join(facts_of(first, at, last_rank=last.rank))
        yield f"    {numbers:<{width}} {BARS[first.state]}  {facts}"


def group_slots(slots: Iterable[SlotStatus]) -> Iterator[tuple[SlotStatus, SlotStatus]]:
    """Yield the first and the last of neighbouring slots that share a line."""
    for _, group in groupby(slots, key=_group_key):
        members = list(group)
        yield members[0], members[-1]


def _group_key(slot: SlotStatus) -> tuple[object, ...]:
    # Ranks of a gang in ascending order share a line; a slot with foreign processes has its own.
    offset = None if slot.rank is None else slot.slot.id - slot.rank
    alone = slot.slot.id if slot.processes or slot.lost else None
    return slot.state, slot.is_draining, slot.allocation_id, offset, alone


def _notebook(process: DeviceProcess) -> str:
    return shortened(process.notebook) if process.notebook else "an unknown notebook"


def idle_hints(view: ClusterView, reader: Reader) -> list[str]:
    """Return a hint for each idle kernel that holds a device: how to free it."""
    hints: dict[tuple[str, int], str] = {}
    agents = [agent for pool in view.pools for agent in pool.agents]
    processes = [(p, agent) for agent in agents for slot in agent.slots for p in slot.processes]
    for process, agent in processes:
        idle_s = 0.0 if process.idle_since is None else view.at - process.idle_since
        identity = (agent.id if agent.is_remote else agent.hostname, process.pid)
        if process.kernel_id is not None and idle_s >= _IDLE_S and identity not in hints:
            where = f"pid {process.pid} on agent {shortened(agent.id)}"
            is_here = (
                not agent.is_remote and ProcessIdentity(process.pid, "", agent.hostname).is_here
            )
            kill = f", or free it with:  {reader.shell}kill {process.pid}" if is_here else "."
            hints[identity] = (
                f"The kernel of {_notebook(process)} ({where}) holds "
                f"{size(process.memory_bytes)} and has been idle for {rough_duration(idle_s)}. "
                f"Shut it down in Jupyter{kill}"
            )
    return list(hints.values())


def queue_text(view: ClusterView) -> str:
    """Return the waiting trials in order, each with its reason."""
    if not view.num_waiting:
        return "No trial waits for slots."
    lines: list[str] = []
    for pool in view.pools:
        entries = [entry for entry in view.queue if entry.pool == pool.name]
        if not pool.num_waiting:
            continue
        lines.append(f"{pool_line(pool)}")
        lines += [
            line
            for first, last in group_entries(entries)
            for line in _entry_lines(first, last, view.at)
        ]
        if (more := pool.num_waiting - len(entries)) > 0:
            lines.append(f"  … and {more:,} more")
    return "\n".join(lines)


def group_entries(entries: Sequence[QueueEntry]) -> Iterator[tuple[QueueEntry, QueueEntry]]:
    """Yield the first and the last of the entries that share a line.

    Of consecutive trials of an experiment, the first has its own line, and the others, which wait
    for it, share one.
    """
    for _, group in groupby(entries, key=lambda entry: entry.experiment_id):
        first, *others = group
        yield first, first
        if len(others) == 1:
            yield others[0], others[0]
        elif others:
            yield others[0], others[-1]


def _entry_lines(first: QueueEntry, last: QueueEntry, at: float) -> list[str]:
    if first is last:
        return [
            f"  {first.position + 1}. {entry_title(first, at)}",
            f"     {first.reason.sentence}",
        ]
    return [f"  {first.position + 1}-{last.position + 1}. {followers_title(first, last)}"]


def followers_title(first: QueueEntry, last: QueueEntry) -> str:
    """Return several trials of one experiment in one line."""
    more = count(last.position - first.position + 1, "more trial")
    return f"{more} of experiment {first.experiment_id}, up to trial {last.trial_id}"


def entry_title(entry: QueueEntry, at: float) -> str:
    """Return a waiting trial in one line; `at` is the present time."""
    return (
        f"trial {entry.trial_id} of {experiment_title(entry.experiment_id, entry.experiment_name)}"
        f" · {count(entry.slots, 'slot')} · priority {entry.priority}"
        f" · since {short_time(entry.queued_at, at)}"
    )
