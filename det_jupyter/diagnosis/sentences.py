"""Formats findings as sentences; evidence and advice have their texts from advice.py."""

from __future__ import annotations

from collections.abc import Mapping

from det_jupyter.contract.messages.verdicts import Cause, CauseKind
from det_jupyter.contract.values.text import rough_duration
from det_jupyter.diagnosis.memory import Creep
from det_jupyter.diagnosis.network import over
from det_jupyter.diagnosis.verdict_rules import Findings

# Clauses of the cause that names the verdict.
FIRST: Mapping[str, str] = {
    "healthy": "Nothing to gain here: {share} of the time is compute",
    "compute": "Compute-bound: {share} of the time is compute",
    "input": "Input-bound: {share} of the time goes to waiting for data",
    "transfer": "Transfer-bound: {share} of the time goes to moving data to and from the device",
    "communication": "Communication-bound: {share} of the time goes to exchanges between ranks"
    "{over}",
    "checkpoint": "Checkpoint-bound: {share} of the time goes to saving checkpoints",
    "validation": "Validation-bound: {share} of the time goes to validation",
    "straggler": "Rank {rank} is a straggler because of its {because}: the others wait for it "
    "{share} of the time",
    "uneven": "Uneven steps: ranks wait for each other {share} of the time",
    "memory": "{memory}",
    "residual": "{share} of the time is in no part that is measured",
}
# Clauses of further causes.
FURTHER: Mapping[CauseKind, str] = {
    "compute": "{share} is compute",
    "input": "{share} goes to waiting for data",
    "transfer": "{share} goes to moving data to and from the device",
    "communication": "{share} goes to exchanges between ranks{over}",
    "checkpoint": "{share} goes to saving checkpoints",
    "validation": "{share} goes to validation",
    "straggler": "in {share} the others wait for rank {rank}, because of its {because}",
    "uneven": "in {share} ranks wait for each other",
    "memory": "{memory}",
    "residual": "{share} is in no part that is measured",
}
LITTLE = "Little to gain here: {share} of the time is compute, and no other part takes much"
TOO_EARLY = "Too early to judge: {missing}."
TOO_SHORT = "Too short to judge."  # of a run that has ended
NEXT = "Next: {advice}"
TRIED = "experiment.diagnose() measures what that gains"
TRIABLE: frozenset[CauseKind] = frozenset({"input", "communication", "uneven"})
NEARLY_ALL = 0.85  # share of the time
_ROUNDED = 5  # percent


def to_sentences(found: Findings, *, can_try: bool = True) -> str:
    """Return the findings as one sentence, and the first advice as another.

    Args:
        found: The findings.
        can_try: Whether `experiment.diagnose()` can run it.
    """
    first, *further = found.causes
    is_little = found.kind == "healthy" and first.share < NEARLY_ALL
    clauses = [_clause(LITTLE if is_little else FIRST[found.kind], first, found)]
    clauses += [_clause(FURTHER[cause.kind], cause, found) for cause in further]
    text = f"{'; '.join(clauses)}."
    advised = next((cause for cause in found.causes if cause.advice), None)
    if advised is None:
        return text
    advice = advised.advice[0]
    # Advice that is a whole sentence needs no "Next:".
    following = advice.removesuffix(".") if advice.endswith(".") else NEXT.format(advice=advice)
    tried = f"; {TRIED}" if can_try and advised.kind in TRIABLE else ""
    return f"{text} {following}{tried}."


def _clause(form: str, cause: Cause, found: Findings) -> str:
    return form.format(
        share=about(cause.share),
        rank=cause.rank,
        because=cause.because,
        memory="" if found.creep is None else _memory_clause(found.creep),
        over=over(found.network),
    )


def _memory_clause(creep: Creep) -> str:
    rate = creep.sentence[0].upper() + creep.sentence[1:]
    return (
        rate if creep.full_in_s is None else f"{rate}, full in {rough_duration(creep.full_in_s)}"
    )


def about(share: float) -> str:
    """Return a share in percent, coarsely rounded so that sentences seldom change.

    >>> [about(share) for share in (0.02, 0.124, 0.93, 0.996)]
    ['2 %', '10 %', '95 %', '99 %']
    """
    percent = share * 100
    step = _ROUNDED if _ROUNDED <= percent <= 100 - _ROUNDED else 1
    return f"{min(99, step * round(percent / step))} %"
