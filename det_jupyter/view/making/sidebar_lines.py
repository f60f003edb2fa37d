"""Makes the news of the sidebar, the status bar and the Running panel of JupyterLab. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from det_jupyter.contract.messages import (
    AgentStatus,
    AllocationView,
    ClusterView,
    ExperimentRow,
    QueueEntry,
    RankView,
    Series,
    SeriesPage,
    SlotStatus,
    SlotView,
    State,
    TrialView,
)
from det_jupyter.contract.messages.leaving_words import end_now, leaving_sentence
from det_jupyter.contract.messages.status import with_alarm
from det_jupyter.contract.values.text import count, shortened
from det_jupyter.view.making.experiment_facts import (
    finite,
    fraction,
    slot_label,
    status_word,
    steps_of,
    trial_status,
)
from det_jupyter.view.making.experiment_view import build_action
from det_jupyter.view.making.slot_bars import note_of, slot_bar
from det_jupyter.view.making.trial_view import build_rank
from det_jupyter.view.making.waits import MAX_SENTENCE, build_remedies, disk_sentence, summary
from det_jupyter.view.model.sidebar import (
    AgentLine,
    ClusterNews,
    DiskLine,
    ExperimentLine,
    RankLine,
    SlotLine,
    TrialLine,
    TrialNews,
    Usage,
)
from det_jupyter.view.model.status_looks import STATUS_WORDS, VERBS, Status

IN_LINE = "waits for its turn"
_MAX_DESCRIPTION = 400
_NO_EXPERIMENT = -1
_HOLDING: tuple[Status, ...] = ("running", "starting", "pausing", "stopping")

UTILIZATION, FREE_MEMORY, CPU = "gpu_util", "gpu_free_memory", "cpu_util_simple"
NAMES = [UTILIZATION, FREE_MEMORY, CPU]
NO_GPU = "CPU slots: only total CPU is measured"
NO_SAMPLE = "no samples yet"
_MOST_LOST = 8  # agents that have left, and are listed
_MAX_AGE_S = 5.0  # older samples of the whole computer are not used

Points = Mapping[float, float]


def build_line(row: ExperimentRow, entry: QueueEntry | None, now: float) -> ExperimentLine:
    """Return an experiment's line; `entry` is its first trial in the fetched queue, if any."""
    status = row.status
    is_waiting = status == "queued"
    wait, remedies = "", []
    if row.leaving is not None:
        wait, remedies = leaving_sentence(row.leaving, now), end_now(row.leaving)
    elif is_waiting:
        has_own = row.alarm_kind == "waits for room"  # which its alarm says
        wait = entry.reason.sentence if entry is not None else "" if has_own else IN_LINE
        remedies = entry.reason.remedies if entry is not None else []
    return ExperimentLine.built_from(
        row,
        key=f"{row.id}@{row.created_at}",
        status_word=with_alarm(STATUS_WORDS[status], row.alarm_kind),
        progress=fraction(row.progress),
        best_metric=finite(row.best_metric),
        description=shortened(row.description, _MAX_DESCRIPTION),
        queue_place=entry.position if is_waiting and entry is not None else None,
        wait=shortened(wait, MAX_SENTENCE),
        remedies=build_remedies(remedies),
        failure=shortened(row.failure, MAX_SENTENCE),
        alarm=shortened(row.alarm, MAX_SENTENCE),
        actions=[] if row.state.is_terminal else [build_action(v, row.state) for v in VERBS],
    )


def first_entries(cluster: ClusterView | None) -> dict[int, QueueEntry]:
    """Return the first entry of each experiment in the queues, by experiment."""
    queue = [] if cluster is None else sorted(cluster.queue, key=lambda entry: entry.position)
    return {entry.experiment_id: entry for entry in reversed(queue)}


def build_cluster_news(
    cluster: ClusterView, rows: Iterable[ExperimentRow], now: float
) -> ClusterNews:
    """Return all slots, and the numbers of running and waiting experiments."""
    statuses = [row.status for row in rows if not row.state.is_terminal]
    slots = [slot for pool in cluster.pools for agent in pool.agents for slot in agent.slots]
    lost = [(agent, pool.name) for pool in cluster.pools for agent in pool.lost]
    lost.sort(key=lambda one: one[0].left_at or 0.0, reverse=True)
    num_more = max(0, len(lost) - _MOST_LOST)
    return ClusterNews(
        agents=[
            *(_agent(agent, pool.name, now) for pool in cluster.pools for agent in pool.agents),
            *(_agent(agent, pool, now) for agent, pool in lost[:_MOST_LOST]),
        ],
        more_lost=f"{count(num_more, 'more agent')} left" if num_more else "",
        disks=[
            DiskLine(
                key=f"{disk.agent_id}:{disk.folder}",
                is_full=disk.state == "full",
                sentence=disk_sentence(disk),
            )
            for disk in cluster.disks
        ],
        summary=summary(cluster),
        num_running=sum(status in _HOLDING for status in statuses),
        num_waiting=statuses.count("queued"),
        num_slots=len(slots),
        num_slots_used=sum(slot.experiment_id is not None for slot in slots),
    )


def _agent(agent: AgentStatus, pool: str, now: float) -> AgentLine:
    return AgentLine(
        id=agent.id,
        hostname=shortened(agent.hostname),
        pool=shortened(pool),
        is_connected=agent.connected,
        note="; ".join(filter(None, (note_of(agent, now), agent.problem))),
        facts=_agent_facts(agent),
        slots=[_slot(agent, slot, now) for slot in agent.slots],
    )


def _agent_facts(agent: AgentStatus) -> list[str]:
    facts = [
        agent.id,
        f"computer {agent.hostname}" if agent.hostname else "",
        f"address {agent.address}" if agent.address else "",
        *(f"{name} {version}" for name, version in sorted(agent.versions.items()) if version),
    ]
    return [shortened(fact) for fact in facts if fact]


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


def build_trials(
    trials: Sequence[TrialView], experiments: Mapping[int, ExperimentRow]
) -> TrialNews:
    return TrialNews(trials=[_trial(t, experiments.get(t.experiment_id)) for t in trials])


def _trial(trial: TrialView, experiment: ExperimentRow | None) -> TrialLine:
    state = State.ACTIVE if experiment is None else experiment.state
    status = trial_status(trial, state)
    run = trial.allocation
    return TrialLine(
        id=trial.id,
        experiment_id=trial.experiment_id,
        experiment="" if experiment is None else shortened(experiment.name),
        status=status,
        status_word=status_word(trial, status),
        alarm=trial.alarm.sentence,
        alarm_kind=trial.alarm.kind,
        steps_completed=steps_of(trial),
        progress=fraction(trial.progress),
        ranks=[] if run is None else [_rank(trial, run, rank, status) for rank in run.ranks],
    )


def _rank(trial: TrialView, run: AllocationView, rank: RankView, status: Status) -> RankLine:
    agent_id = run.agent_ids[rank.rank] if rank.rank < len(run.agent_ids) else run.agent_id
    return {
        **build_rank(trial, rank, status),
        "agent_id": agent_id or "",
        "has_kernel": bool(rank.device and rank.connection_file),
    }


def build_usage(agent: AgentStatus, page: SeriesPage, after: float) -> Usage:
    """Return an agent's samples that were taken after `after`, oldest first.

    Each device has a series of its own; these become the columns of one table, whose rows are the
    times at which any device was sampled. The CPU is sampled at other times: a row has its newest
    sample before.
    """
    series = {(one.source, one.name): one for one in page.series}
    slots = [slot.slot for slot in agent.slots]
    utilization = [_points(series, source_of(slot), UTILIZATION) for slot in slots]
    free = [_points(series, source_of(slot), FREE_MEMORY) for slot in slots]
    cpu = _points(series, "host", CPU)
    moments = sorted({at for points in (*utilization, *free) for at in points} or cpu)
    at = [moment for moment in moments if moment > after]
    return Usage(
        agent_id=agent.id,
        at=at,
        slot_ids=[slot.id for slot in slots],
        utilization=[[points.get(moment) for moment in at] for points in utilization],
        memory_used=[
            [_used(slot.memory_bytes, points.get(moment)) for moment in at]
            for slot, points in zip(slots, free, strict=True)
        ],
        memory_total=[float(slot.memory_bytes) if slot.memory_bytes else None for slot in slots],
        cpu=_newest_before(cpu, at),
        missing=[_missing(series, slot, utilization[i]) for i, slot in enumerate(slots)],
        dropped=0,
    )


def source_of(slot: SlotView) -> str:
    """Return the source of a slot's series; empty for a CPU slot."""
    if slot.kind != "cuda" or not slot.uuid:
        return ""
    return f"{'mig' if slot.uuid.startswith('MIG-') else 'gpu'}:{slot.uuid}"


def _points(series: Mapping[tuple[str, str], Series], source: str, name: str) -> Points:
    one = series.get((source, name))
    return {} if one is None else dict(zip(one.x, one.mid, strict=True))


def _used(total: int, free: float | None) -> float | None:
    return None if free is None or not total else max(0.0, total - free)


def _newest_before(points: Points, at: Sequence[float]) -> list[float | None]:
    moments = sorted(points)
    places = [bisect_right(moments, moment) - 1 for moment in at]
    return [
        points[moments[place]] if place >= 0 and moment - moments[place] < _MAX_AGE_S else None
        for place, moment in zip(places, at, strict=True)
    ]


def _missing(series: Mapping[tuple[str, str], Series], slot: SlotView, utilization: Points) -> str:
    if not source_of(slot):
        return NO_GPU
    one = series.get((source_of(slot), UTILIZATION)) or series.get(("gpu", UTILIZATION))
    if one is not None and one.missing:
        return one.missing
    return "" if utilization else NO_SAMPLE
