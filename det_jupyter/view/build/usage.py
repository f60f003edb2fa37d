"""Makes what the slots' meters show, from samples of an agent's machine. Pure.

Each device has a series of its own; they become the columns of one table, whose rows are the
moments at which any device was sampled. The whole computer is sampled by another clock: a row has
its newest sample from before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from det_jupyter.contract.messages import AgentStatus, Series, SeriesPage, SlotView
from det_jupyter.view.model.sidebar import Usage

UTILIZATION, FREE_MEMORY, CPU = "gpu_util", "gpu_free_memory", "cpu_util_simple"
NAMES = [UTILIZATION, FREE_MEMORY, CPU]
NO_GPU = "CPU slots: only total CPU is measured"
NO_SAMPLE = "no samples yet"
_OLD_S = 5.0  # a sample of the computer says nothing about a moment so long after

Points = Mapping[float, float]


def build_usage(agent: AgentStatus, page: SeriesPage, after: float) -> Usage:
    """Return an agent's samples that were taken after a moment, oldest first."""
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
    """Return the source of a slot's samples; empty for a CPU place."""
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
        points[moments[place]] if place >= 0 and moment - moments[place] < _OLD_S else None
        for place, moment in zip(places, at, strict=True)
    ]


def _missing(series: Mapping[tuple[str, str], Series], slot: SlotView, utilization: Points) -> str:
    if not source_of(slot):
        return NO_GPU
    one = series.get((source_of(slot), UTILIZATION)) or series.get(("gpu", UTILIZATION))
    if one is not None and one.missing:
        return one.missing
    return "" if utilization else NO_SAMPLE
