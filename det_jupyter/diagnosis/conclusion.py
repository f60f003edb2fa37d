"""Concludes from the runs of a bottleneck experiment what limits a trial.

    a diagnostic gains                    its cost is a cause, with the gains of remedies
    a straggler was named while training  it is a cause too
    none, and all were measured           the trial's computation, or resources that ranks share
    none, and one is unclear or failed    unknown, with the result of each

A run that failed or is unclear never counts as "no gain".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil

from det_jupyter.contract.messages.verdicts import Cause, Verdict
from det_jupyter.diagnosis.gains import LEAST_GAIN, Ratio, Sign
from det_jupyter.diagnosis.recipe_results import (
    KINDS,
    OPTIMIZER,
    Measured,
    RecipeResult,
    best_first,
    percent,
)
from det_jupyter.diagnosis.recipes import AS_IS, NO_EXCHANGE, REPLAY
from det_jupyter.diagnosis.sentences import about

_POOR_EFFICIENCY = 0.85  # scaling efficiency; a lower one has a cause besides compute
_PARTS = {REPLAY: ("dataloader_next",), NO_EXCHANGE: ("exchange_wait", "exchange_transfer")}
_QUIETER = "wait until the computer does less else, or give more rounds and seconds"


def conclude(rows: Sequence[RecipeResult], found: Measured, slots: int, *, at: float) -> Verdict:
    """Return the verdict of a bottleneck experiment on a trial with `slots` slots."""
    by_name = {row.recipe.name: row for row in rows}
    signs = {
        name: by_name[name].sign if name in by_name else None
        for name in (KINDS if slots > 1 else [REPLAY])
    }
    costs = [_cause(by_name[name], rows, found) for name, sign in signs.items() if sign == "gain"]
    causes = [cause for cause in costs if cause.share > LEAST_GAIN]
    is_open = not causes and not {None, "unclear"}.isdisjoint(signs.values())
    causes += map(_straggler, found.stragglers.values())
    if not causes and not is_open:
        efficiency = by_name[AS_IS].efficiency
        is_poor = efficiency is not None and efficiency.middle < _POOR_EFFICIENCY and slots > 1
        causes = [
            _residual(efficiency, slots) if is_poor and efficiency else _compute(found, signs)
        ]
    causes.sort(key=lambda cause: -cause.share)
    sentences = [*map(_sentence, causes), *(_open_questions(found, signs) if is_open else [])]
    return Verdict(
        kind=causes[0].kind if causes else "unknown",
        sentence=" ".join(sentences),
        causes=causes,
        at=at,
        batches=0,
    )


def _open_questions(found: Measured, signs: Mapping[str, Sign | None]) -> Iterator[str]:
    """Yield sentences on the cost of each diagnostic, or why it is not known."""
    if not any(signs.values()):
        yield "Nothing was measured that shows what limits it."
        return
    for name, sign in signs.items():
        if sign is None:
            yield f"{_capital(found.cost_name(name))} was not measured."
        elif sign != "unclear":
            yield f"{_capital(found.cost_name(name))} takes {_bound(found, name)} of the time."
    ratios = {name: found.ratio(name) for name, sign in signs.items() if sign == "unclear"}
    if ratios:
        costs = " or ".join(map(found.cost_name, ratios))
        varied = _variation(ratios.values())
        yield f"Whether {costs} costs time is unclear, as runs vary by {varied}: {_QUIETER}."


def _variation(ratios: Iterable[Ratio | None]) -> str:
    return percent(max(ratio.variation for ratio in ratios if ratio))


def _bound(found: Measured, name: str) -> str:
    """Return the upper bound of a diagnostic's cost, as a share of the time."""
    ratio = found.ratio(name)
    assert ratio is not None
    share = max(LEAST_GAIN, found.cost(name, ratio.at_most))
    return f"at most {ceil(round(100 * share, 6))} %"


def _cause(row: RecipeResult, rows: Sequence[RecipeResult], found: Measured) -> Cause:
    assert row.ratio is not None
    name, share = row.recipe.name, found.cost(row.recipe.name, row.ratio.middle)
    evidence = [
        f"{found.cost_name(name)} takes {percent(share)} of the time: "
        f"with {row.recipe.title} it trains {row.ratio} as fast"
    ]
    if name == NO_EXCHANGE and OPTIMIZER in found.shares:
        steps = percent(found.shares[OPTIMIZER])
        evidence.append(f"it saves optimizer steps too, {steps} of the time: they are not counted")
    if found.shares:
        timed = sum(found.shares.get(part, 0.0) for part in _PARTS[name])
        evidence.append(f"by its own timings, rank 0 waits for that {percent(timed)} of its time")
    if name == NO_EXCHANGE and found.stragglers:
        evidence.append(f"that includes waiting for rank {', '.join(map(str, found.stragglers))}")
    advice = _advice([r for r in rows if r.recipe.after == name])
    return Cause(kind=KINDS[name], share=share, evidence=evidence, advice=advice)


def _advice(tried: Sequence[RecipeResult]) -> list[str]:
    """Return advice on the remedies with a gain; if none has one, on those unclear or failed."""
    gained = [
        f"try {row.detail or row.recipe.title}: {row.ratio} as fast here ({row.recipe.effect})"
        for row in best_first(tried)
    ]
    if gained or not tried:
        return gained
    unclear = [row for row in tried if row.sign == "unclear"]
    failed = [row.recipe.title for row in tried if row.sign is None]
    lines = []
    if unclear:
        titles = " or ".join(row.recipe.title for row in unclear)
        varied = _variation(row.ratio for row in unclear)
        lines.append(
            f"whether {titles} gains anything is unclear, as runs vary by {varied}: {_QUIETER}"
        )
    if failed:
        lines.append(f"these could not be measured: {', '.join(failed)}")
    return lines or ["no remedy that was tried gained anything"]


def _straggler(named: Cause) -> Cause:
    """Return the cause of a live verdict, with a sentence on when it was found."""
    line = (
        f"while it trained, rank {named.rank} was a straggler because of its {named.because}: the "
        f"others waited for it {about(named.share)} of the time"
    )
    return named.model_copy(update={"evidence": [line, *named.evidence]})


def _residual(efficiency: Ratio, slots: int) -> Cause:
    line = (
        f"{slots} slots reach {percent(efficiency.middle)} of {slots} times the throughput of "
        "1, though neither input nor the exchange costs anything: the ranks compete for something "
        "else, such as processor cores, memory bandwidth or a disk, or wait for a slow one"
    )
    return Cause(kind="residual", share=1 - efficiency.middle, evidence=[line])


def _compute(found: Measured, names: Iterable[str]) -> Cause:
    others = " and ".join(
        f"{found.cost_name(name)} takes {_bound(found, name)} of it" for name in names
    )
    line = f"its own computation takes the time: {others}"
    return Cause(kind="compute", share=1.0, evidence=[line])


def _sentence(cause: Cause) -> str:
    text = f"{_capital(cause.evidence[0])}."
    return f"{text} {_capital(cause.advice[0])}." if cause.advice else text


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
