"""Makes the documents of the sidebar, the status bar and the Running panel of JupyterLab. Pure."""

from __future__ import annotations

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
    SlotView,
    State,
    TrialView,
)
from det_jupyter.contract.messages.leaving_words import end_now, leaving_sentence
from det_jupyter.contract.messages.status import VERBS, Status
from det_jupyter.contract.values.text import count, shortened
from det_jupyter.view.making.experiment_facts import (
    finite,
    fraction,
    status_word,
    steps_of,
    trial_status,
)
from det_jupyter.view.making.experiment_view import build_action, obstacle_by_hand
from det_jupyter.view.making.slot_bars import build_agent
from det_jupyter.view.making.trial_view import build_rank
from det_jupyter.view.making.waits import MAX_SENTENCE, build_remedies, disk_sentence, summary
from det_jupyter.view.model.sidebar import (
    AgentUsage,
    ClusterState,
    DiskLine,
    RankLine,
    SlotUsage,
    TrialLine,
    TrialList,
)

IN_LINE = "waits for its turn"
_MAX_DESCRIPTION = 400
_NO_EXPERIMENT = -1
_HOLDING: tuple[Status, ...] = ("running", "starting", "pausing", "stopping")

UTILIZATION, FREE_MEMORY, CPU = "gpu_util", "gpu_free_memory", "cpu_util_simple"
NAMES = [UTILIZATION, FREE_MEMORY, CPU]
NO_GPU = "CPU slots: only total CPU is measured"
NO_SAMPLE = "no samples yet"
_MOST_LOST = 8  # most agents listed that have left


def build_row(row: ExperimentRow, entry: QueueEntry | None, now: float) -> ExperimentRow:
    """Return a row of the sidebar: long texts are shortened, and it has what depends on the queue.

    Args:
        row: The row as the answer to a query.
        entry: Its first trial in the fetched queue; None if it has none there.
        now: UTC seconds.
    """
    is_waiting = row.status == "queued"
    wait, remedies = "", []
    if row.leaving is not None:
        wait, remedies = leaving_sentence(row.leaving, now), end_now(row.leaving)
    elif is_waiting:
        # An alarm of these kinds contains the reason.
        has_own = row.alarm_kind in ("waits for room", "uploads wait")
        wait = entry.reason.sentence if entry is not None else "" if has_own else IN_LINE
        remedies = entry.reason.remedies if entry is not None else []
    is_over = row.state.is_terminal
    return row.model_copy(
        update={
            "key": f"{row.id}@{row.created_at}",
            "progress": fraction(row.progress),
            "best_metric": finite(row.best_metric),
            "description": shortened(row.description, _MAX_DESCRIPTION),
            "queue_place": entry.position if is_waiting and entry is not None else None,
            "wait": shortened(wait, MAX_SENTENCE),
            "remedies": build_remedies(remedies),
            "failure": shortened(row.failure, MAX_SENTENCE),
            "alarm": shortened(row.alarm, MAX_SENTENCE),
            "actions": []
            if is_over
            else [
                build_action(verb, row.state, obstacle_by_hand(verb, row, row.alarm_kind))
                for verb in VERBS
            ],
        }
    )


def first_entries(cluster: ClusterView | None) -> dict[int, QueueEntry]:
    """Return the first entry in the queues of each experiment, by experiment."""
    queue = [] if cluster is None else sorted(cluster.queue, key=lambda entry: entry.position)
    return {entry.experiment_id: entry for entry in reversed(queue)}


def build_cluster_state(
    cluster: ClusterView, rows: Iterable[ExperimentRow], now: float
) -> ClusterState:
    """Return the state of all slots, and the numbers of running and waiting experiments."""
    statuses = [row.status for row in rows if not row.state.is_terminal]
    pools = cluster.pools
    slots = [slot for pool in pools for agent in pool.agents for slot in agent.slots]
    lost = [agent for pool in pools for agent in pool.lost]
    lost.sort(key=lambda agent: agent.left_at or 0.0, reverse=True)
    num_more = max(0, len(lost) - _MOST_LOST)
    return ClusterState(
        agents=[
            *(build_agent(each, _NO_EXPERIMENT, now) for pool in pools for each in pool.agents),
            *(build_agent(each, _NO_EXPERIMENT, now) for each in lost[:_MOST_LOST]),
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


def build_trials(
    trials: Sequence[TrialView], experiments: Mapping[int, ExperimentRow]
) -> TrialList:
    return TrialList(trials=[_trial(t, experiments.get(t.experiment_id)) for t in trials])


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


def build_usage(
    agent: AgentStatus, page: SeriesPage, before: AgentUsage | None = None
) -> AgentUsage:
    """Return the newest utilization of an agent's slots and computer.

    Args:
        page: The newest samples; devices are sampled one after another, at any interval.
        before: The utilization before those samples.
    """
    series = {(one.source, one.name): one for one in page.series}
    cpu = _newest(series.get(("host", CPU)))
    slots = {} if before is None else before["slots"]
    return AgentUsage(
        cpu=cpu if cpu is not None or before is None else before["cpu"],
        slots={
            str(slot.slot.id): _slot_usage(series, slot.slot, slots.get(str(slot.slot.id)))
            for slot in agent.slots
        },
    )


def _slot_usage(
    series: Mapping[tuple[str, str], Series], slot: SlotView, before: SlotUsage | None
) -> SlotUsage:
    source = source_of(slot)
    utilization = _newest(series.get((source, UTILIZATION)))
    free = _newest(series.get((source, FREE_MEMORY)))
    used = None if free is None or not slot.memory_bytes else max(0.0, slot.memory_bytes - free)
    missing = _missing(series, slot, utilization)
    if before is not None and before["missing"] == "" and missing == NO_SAMPLE:
        utilization, missing = before["utilization"], ""
    return SlotUsage(
        utilization=None if missing else utilization,
        used=used if used is not None or before is None else before["used"],
        total=float(slot.memory_bytes) if slot.memory_bytes else None,
        missing=missing,
    )


def source_of(slot: SlotView) -> str:
    """Return the source of a slot's series; "" for a CPU slot."""
    if slot.kind != "cuda" or not slot.uuid:
        return ""
    return f"{'mig' if slot.uuid.startswith('MIG-') else 'gpu'}:{slot.uuid}"


def _newest(series: Series | None) -> float | None:
    """Return the newest value of a series; None if there is none."""
    values = () if series is None else reversed(series.mid)
    return next((value for value in map(finite, values) if value is not None), None)


def _missing(
    series: Mapping[tuple[str, str], Series], slot: SlotView, newest: float | None
) -> str:
    if not source_of(slot):
        return NO_GPU
    one = series.get((source_of(slot), UTILIZATION)) or series.get(("gpu", UTILIZATION))
    if one is not None and one.missing:
        return one.missing
    return NO_SAMPLE if newest is None else ""
