"""Finds the rank for which others wait: a straggler, as opposed to uneven steps.

At each exchange all ranks wait for the last one. Over a window:

    waits of ranks 0..3     30 %  31 %   1 %  29 %     rank 2 is always the last: a straggler
                            12 %  11 %  13 %  12 %     each is sometimes the last: uneven steps
                            31 %  42 %  12 %  40 %     both: 12 % uneven, 28 % because of rank 2

Ranks are slow if they wait much less than the longest wait (SLOW_WAITS_AT_MOST), are at most half
of all ranks (several may be on one slow machine), and wait less in nearly all slices of the
window. Jitter and a load that moves from core to core make no straggler.

Why a rank is slow:

    data        it waits for data longer than others, which explains at least half of the
    difference machine     its GPU's clock is throttled or lower; other processes use its GPU; its
    GPU is of
                another kind; its computer's CPU is full, and that of the others is not
    compute     otherwise: it computes more, or is slower for a reason that is not measured

On a computer whose CPU is full, a rank is late because it computes more or gets less CPU time:

    CPU time    cpu_wait                        of the late rank, beside the others
    1.3 times   any                             it computes more, as ranks train equally many
                                                batches; that increases cpu_wait too
    about as    more, by half of what it is     it gets less: no straggler, as another rank may be
    much        late, or not measured           late a minute later
    about as    about as much                   slow for a reason that is not measured
    much
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import fmean, median
from typing import Literal

from det_jupyter.diagnosis.run_facts import RankFacts, RankSite, RunMeasurements, Setting, mean_of

SLOW_WAITS_AT_MOST = 0.4  # share of the longest wait
SLOW_IN_SLICES = 0.85
MIN_SLICES = 5  # fewer do not distinguish a straggler from uneven steps
NOTABLE_WAIT = 0.1  # share of the time; less waiting is no cause
MIN_LAST_SLICES = 3  # the same minimum for a run that has ended
EXPLAINS = 0.5  # share of the difference in waiting
CPU_FULL = 90.0  # %
MORE_CPU_TIMES = 1.3  # multiple of the others' CPU time
LOWER_CLOCK = 0.9  # share of the others' clock rate
THROTTLED = 0.2  # share of the time, above that of the others

Because = Literal["data", "compute", "machine"]


@dataclass(frozen=True, slots=True)
class Straggler:
    """The slow ranks, the slowest first, and why the first of them is slow."""

    ranks: tuple[int, ...]
    share: float  # of the time, in which the others wait for it
    because: Because
    evidence: tuple[str, ...] = ()


def find_straggler(facts: RunMeasurements, setting: Setting) -> Straggler | None:
    """Return the ranks for which the others wait, if they are always the same."""
    if len(facts.ranks) == 1:
        return None
    if not (slow := _slow_ranks(facts.ranks)):
        return None
    others = [rank for rank in facts.ranks if rank not in slow]
    share = fmean(rank.wait for rank in others) - slow[0].wait
    ranks = tuple(rank.rank for rank in slow)
    if _input_explains(slow[0], others, share):
        return Straggler(ranks, share, "data")
    if machine := _machine_evidence(slow[0], others, facts, setting):
        return Straggler(ranks, share, "machine", tuple(machine))
    if _only_gets_less_cpu(slow[0], others, share, facts, setting):
        return None
    return Straggler(ranks, share, "compute")


def has_too_few_slices(facts: RunMeasurements) -> bool:
    """Return whether ranks wait notably and the slices are too few to find a straggler."""
    slices = min(len(rank.waits) for rank in facts.ranks)
    return slices < MIN_SLICES and max(rank.wait for rank in facts.ranks) >= NOTABLE_WAIT


def _slow_ranks(ranks: Sequence[RankFacts]) -> list[RankFacts]:
    longest = max(rank.wait for rank in ranks)
    slow = [rank for rank in ranks if rank.wait < SLOW_WAITS_AT_MOST * longest]
    if not slow or 2 * len(slow) > len(ranks):
        return []
    names = {rank.rank for rank in slow}
    slices = list(zip(*(rank.waits for rank in ranks), strict=True))
    agreeing = sum(
        fmean(waits[r.rank] for r in slow) < fmean(waits[r.rank] for r in ranks if r not in slow)
        and waits.index(min(waits)) in names
        for waits in slices
    )
    needed = ceil(SLOW_IN_SLICES * len(slices)) if len(slices) > MIN_SLICES else len(slices)
    is_lasting = len(slices) >= MIN_LAST_SLICES and agreeing >= needed
    return sorted(slow, key=lambda rank: rank.wait) if is_lasting else []


def _input_explains(slow: RankFacts, others: Sequence[RankFacts], share: float) -> bool:
    more = slow.share("input") - median(rank.share("input") for rank in others)
    return more >= EXPLAINS * share


def _machine_evidence(
    slow: RankFacts, others: Sequence[RankFacts], facts: RunMeasurements, setting: Setting
) -> list[str]:
    place = setting.places[slow.rank]
    places = [setting.places[rank.rank] for rank in others]
    found = _clock_evidence(place, places, facts)
    if place.other_processes and not any(other.other_processes for other in places):
        found.append(f"other processes use its GPU: {', '.join(place.other_processes[:3])}")
    kinds = {other.kind for other in places}
    if place.kind not in kinds:
        found.append(f"it runs on {place.kind}, the others on {', '.join(sorted(kinds))}")
    agents = {other.agent_id for other in places} - {place.agent_id}
    own = facts.host(place.agent_id, "cpu_util_simple")
    rest = mean_of(facts.host(agent_id, "cpu_util_simple") for agent_id in agents)
    if own is not None and rest is not None and own >= CPU_FULL > rest:
        found.append(
            f"the CPU of {place.agent_id} is full ({own:.0f} %), that of the others {rest:.0f} %"
        )
    return found


def _clock_evidence(
    place: RankSite, others: Sequence[RankSite], facts: RunMeasurements
) -> list[str]:
    def own_and_rest(name: str) -> tuple[float | None, float | None]:
        return facts.gpu(place, name), mean_of(facts.gpu(other, name) for other in others)

    found = []
    for name, why in (
        ("gpu_throttled_thermal", "its temperature"),
        ("gpu_throttled_power", "its power limit"),
        ("gpu_throttled_hardware", "the hardware"),
    ):
        own, rest = own_and_rest(name)
        if own is not None and own - (rest or 0.0) > THROTTLED:
            found.append(f"its GPU's clock is lowered {own:.0%} of the time, because of {why}")
    own, rest = own_and_rest("gpu_clock")
    if own and rest and own < LOWER_CLOCK * rest:
        found.append(f"its GPU's clock is {own:.0f} MHz, that of the others {rest:.0f} MHz")
    return found


def _only_gets_less_cpu(
    slow: RankFacts,
    others: Sequence[RankFacts],
    share: float,
    facts: RunMeasurements,
    setting: Setting,
) -> bool:
    def own_and_rest(name: str) -> tuple[float | None, float | None]:
        own, *rest = (facts.process(setting, r.rank, "rank", name) for r in (slow, *others))
        return own, mean_of(rest)

    place = setting.places[slow.rank]
    full = facts.host(place.agent_id, "cpu_util_simple")
    if place.gpu or full is None or full < CPU_FULL:
        return False
    own, rest = own_and_rest("cpu_util")
    if own is not None and rest is not None and own >= MORE_CPU_TIMES * rest > 0:
        return False
    own, rest = own_and_rest("cpu_wait")
    return own is None or rest is None or own - rest >= EXPLAINS * 100 * share
