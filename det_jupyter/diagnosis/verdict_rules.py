"""The rules that find the causes which limit a trial's speed.

Every second of a rank is in one part (measures.py); parts belong to kinds (run_facts.py). Time
that is not compute could be gained:

    share of the time          NOTABLE       BOUND
    of a kind          ----------|-------------|---------------
                       nothing   | a cause that  | a cause that names the verdict;
                                 | is mentioned  | so do several smaller ones that are
                                 |               | together more than compute

    no notable cause, and nothing to try about compute      healthy: nothing to gain
    else                                                    compute

Shares are means over ranks. If the ranks wait for a straggler (stragglers.py), the means are over
the others, and the time they wait for it is its share. A cause below its threshold is not named: a
late verdict is better than a wrong one. A kind of the last verdict is dropped only clearly below
its threshold (MARGIN).

Prior art: TraceML's verdicts on shares of the step with fixed thresholds. It compares ranks by
their worst step; here a rank has to be the last one in nearly all slices of the window.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from det_jupyter.contract.messages.verdicts import Cause, CauseKind, NetworkUse, VerdictKind
from det_jupyter.diagnosis.advice import advise, advise_memory, compute_gains
from det_jupyter.diagnosis.memory import Creep, find_creep
from det_jupyter.diagnosis.network import find_network
from det_jupyter.diagnosis.run_facts import PERIODIC, RunMeasurements, Setting
from det_jupyter.diagnosis.stragglers import Straggler, find_straggler

NOTABLE = 0.10
BOUND = 0.25
# Higher: short steps of some 100 us have time between the parts, and ranks are never quite even.
NOTABLE_OF: Mapping[CauseKind, float] = {"residual": 0.20, "uneven": 0.15}
BOUND_OF: Mapping[CauseKind, float] = {"residual": 0.35, "uneven": 0.30}
MARGIN = 0.03
FULL_SOON_S = 1800.0  # memory that is full by then is named first
MAX_FULL_S = 7 * 86_400.0  # memory that is full later is not mentioned


@dataclass(frozen=True, slots=True)
class Findings:
    """The causes, of which the first gives the verdict its name, and the shares of the time."""

    kind: VerdictKind
    causes: tuple[Cause, ...]
    shares: Mapping[CauseKind, float]
    creep: Creep | None = None
    network: NetworkUse | None = None


def find_causes(
    facts: RunMeasurements, setting: Setting, shown: Collection[CauseKind] = ()
) -> Findings:
    """Return what limits the run; `shown` has the kinds of causes of the last verdict."""
    straggler = find_straggler(facts, setting)
    shares = divide(facts, straggler)
    losses = [
        advise(kind, share, facts, setting, straggler)
        for kind, share in sorted(shares.items(), key=lambda item: -item[1])
        if kind != "compute" and share >= _threshold(NOTABLE_OF, NOTABLE, kind, shown)
    ]
    evidence, advice = compute_gains(facts, setting)
    compute = Cause(kind="compute", share=shares["compute"], evidence=evidence, advice=advice)
    if _names_the_verdict(losses, shares, shown):
        causes = losses
    elif losses or advice:
        causes = [compute, *losses]
    else:
        causes = []
    creep = find_creep(facts.growths)
    if creep is not None and creep.full_in_s is not None and creep.full_in_s > MAX_FULL_S:
        creep = None
    if creep is not None:
        grown = advise_memory(creep)
        is_first = not causes or (creep.full_in_s is not None and creep.full_in_s < FULL_SOON_S)
        causes = [grown, *causes] if is_first else [*causes, grown]
    kind: VerdictKind = causes[0].kind if causes else "healthy"
    named = tuple(_without_repetition(causes)) or (compute,)
    return Findings(kind, named, shares, creep, find_network(facts, setting))


def _without_repetition(causes: Iterable[Cause]) -> Iterator[Cause]:
    """Yield the causes without evidence and advice that an earlier cause has."""
    lines = set[str]()
    for cause in causes:
        evidence = [line for line in cause.evidence if line not in lines]
        advice = [line for line in cause.advice if line not in lines]
        lines.update(evidence, advice)
        yield cause.model_copy(update={"evidence": evidence, "advice": advice})


def divide(facts: RunMeasurements, straggler: Straggler | None) -> dict[CauseKind, float]:
    """Return the shares of the time by kind, which sum to 1.

    Checkpoints and validations have their shares of whole cycles; the rest is divided by the
    ranks' shares.
    """
    slow = () if straggler is None else straggler.ranks
    ranks = [rank for rank in facts.ranks if rank.rank not in slow]
    kinds: tuple[CauseKind, ...] = (
        "compute", "input", "transfer", "communication", "uneven", "residual",
    )  # fmt: skip
    shares = {kind: fmean(rank.share(kind) for rank in ranks) for kind in kinds}
    if straggler is not None:
        lost = min(straggler.share, shares["uneven"])
        shares["straggler"] = lost
        shares["uneven"] -= lost
    held = {kind: facts.periodic[kind].share for kind in PERIODIC if kind in facts.periodic}
    whole = max(1.0, sum(held.values()))
    left = 1 - sum(held.values()) / whole
    total = sum(shares.values()) or 1.0
    divided = {kind: left * share / total for kind, share in shares.items()}
    divided |= {kind: share / whole for kind, share in held.items()}
    return {kind: share for kind, share in divided.items() if share > 0 or kind == "compute"}


def _names_the_verdict(
    losses: list[Cause], shares: Mapping[CauseKind, float], shown: Collection[CauseKind]
) -> bool:
    return bool(losses) and (
        losses[0].share >= _threshold(BOUND_OF, BOUND, losses[0].kind, shown)
        or sum(cause.share for cause in losses) > shares["compute"]
    )


def _threshold(
    of: Mapping[CauseKind, float], usual: float, kind: CauseKind, shown: Collection[CauseKind]
) -> float:
    return of.get(kind, usual) - (MARGIN if kind in shown else 0.0)
