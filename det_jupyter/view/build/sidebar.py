"""Makes what the sidebar and the status bar show, from the master's list and its slots. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from det_jupyter.view.build.experiment import build_action
from det_jupyter.view.build.facts import finite, fraction, slot_label, state_status
from det_jupyter.view.build.slots import note_of, slot_bar
from det_jupyter.view.build.waits import MAX_SENTENCE, build_remedies, summary
from det_jupyter.view.model.experiment import STATUS_WORDS, VERBS, Status
from det_jupyter.view.model.sidebar import AgentLine, ClusterNews, ExperimentLine, SlotLine
from det_jupyter.wire import AgentStatus, ClusterView, ExperimentRow, QueueEntry, SlotStatus
from det_jupyter.words import shortened

IN_LINE = "waits for its turn"
_MAX_DESCRIPTION = 400
_NO_EXPERIMENT = -1
_HOLDING: tuple[Status, ...] = ("running", "starting", "pausing", "stopping")


def build_line(row: ExperimentRow, entry: QueueEntry | None) -> ExperimentLine:
    """Return an experiment's line in the list.

    Args:
        row: What the master lists of it.
        entry: Its first trial in the front of a queue, if one is there.
    """
    status = row_status(row)
    is_waiting = status == "queued"
    sentence = entry.reason.sentence if entry is not None else IN_LINE
    return ExperimentLine(
        id=row.id,
        key=f"{row.id}@{row.created_at}",
        name=row.name,
        status=status,
        status_word=STATUS_WORDS[status],
        progress=fraction(row.progress),
        metric=row.metric,
        smaller_is_better=row.smaller_is_better,
        best=finite(row.best_metric),
        num_trials=row.num_trials,
        num_slots=row.num_slots,
        slots_per_trial=row.slots_per_trial,
        labels=row.labels,
        description=shortened(row.description, _MAX_DESCRIPTION),
        notebook=row.notebook or "",
        entrypoint=row.entrypoint,
        created_at=row.created_at,
        ended_at=row.ended_at,
        is_archived=row.is_archived,
        wait=shortened(sentence, MAX_SENTENCE) if is_waiting else "",
        remedies=build_remedies(entry.reason) if is_waiting and entry is not None else [],
        failure=shortened(row.failure, MAX_SENTENCE),
        actions=[] if row.state.is_terminal else [build_action(v, row.state) for v in VERBS],
    )


def row_status(row: ExperimentRow) -> Status:
    """Return the status of an experiment: what its ranks do."""
    status = state_status(row.state, row.gangs)
    is_exchange = status == "pausing" and row.state == "ACTIVE" and row.num_trials > 1
    return "running" if is_exchange else status


def first_entries(cluster: ClusterView | None) -> dict[int, QueueEntry]:
    """Return the entry of each experiment that is first in a queue."""
    queue = [] if cluster is None else sorted(cluster.queue, key=lambda entry: entry.position)
    return {entry.experiment_id: entry for entry in reversed(queue)}


def build_cluster_news(
    cluster: ClusterView, rows: Iterable[ExperimentRow], now: float
) -> ClusterNews:
    """Return all slots, and how many experiments run and wait."""
    statuses = [row_status(row) for row in rows if not row.state.is_terminal]
    slots = [slot for pool in cluster.pools for agent in pool.agents for slot in agent.slots]
    return ClusterNews(
        agents=[_agent(agent, pool.name, now) for pool in cluster.pools for agent in pool.agents],
        summary=summary(cluster),
        num_running=sum(status in _HOLDING for status in statuses),
        num_waiting=statuses.count("queued"),
        num_slots=len(slots),
        num_slots_used=sum(slot.experiment_id is not None for slot in slots),
    )


def _agent(agent: AgentStatus, pool: str, now: float) -> AgentLine:
    parts = [part for part in (note_of(agent), agent.problem) if part]
    return AgentLine(
        id=agent.id,
        hostname=shortened(agent.hostname),
        pool=shortened(pool),
        is_connected=agent.connected,
        note="; ".join(parts),
        slots=[_slot(agent, slot, now) for slot in agent.slots],
    )


def _slot(agent: AgentStatus, slot: SlotStatus, now: float) -> SlotLine:
    bar = slot_bar(agent, slot, _NO_EXPERIMENT, now)
    return SlotLine(
        id=slot.slot.id,
        device=shortened(slot_label(slot.slot)),
        state=bar["state"],
        who=bar["who"],
        facts=bar["facts"],
        experiment_id=slot.experiment_id,
        trial_id=slot.trial_id,
        rank=slot.rank,
    )
