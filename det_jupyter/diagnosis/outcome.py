"""What came out of a bottleneck experiment: a row for each recipe, the verdict, lines to paste."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import yaml

from det_jupyter.diagnosis.gains import (
    LEAST_NOISE,
    Rates,
    Ratio,
    Sign,
    noise_of,
    ratio_of,
    sign_of,
)
from det_jupyter.diagnosis.recipes import AS_IS, NO_EXCHANGE, ONE_SLOT, REPLAY, LeftOut, Recipe
from det_jupyter.wire.verdict import Cause, CauseKind, Verdict

_POOR = 0.85  # scaling efficiency below which something must be the cause
_LOUD = 0.2  # noise above which nothing can be said to cost nothing
_KINDS: dict[str, CauseKind] = {REPLAY: "input", NO_EXCHANGE: "communication"}
_PARTS = {REPLAY: ("dataloader_next",), NO_EXCHANGE: ("exchange_wait", "exchange_transfer")}
_OPTIMIZER = "optimizer"  # the part that a run with few exchanges saves too


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How one recipe did."""

    recipe: Recipe
    # Of all ranks together, the median of the rounds; None if it failed.
    records_per_s: float | None = None
    ratio: Ratio | None = None  # beside the trial as it is
    sign: Sign | None = None  # whether that is more than noise
    efficiency: Ratio | None = None  # throughput on N slots, beside N times that on one
    verdict: str  # all of this, in words
    detail: str = ""  # what was changed in fact, where the recipe's title does not say it


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the runs measured, by recipe."""

    rates: dict[str, dict[int, float]] = field(default_factory=dict)  # and by round
    # Of the chief's time, as it is, by part (measures.py), where it was timed.
    shares: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)  # why it failed
    details: dict[str, str] = field(default_factory=dict)  # what it changed in fact

    @property
    def noise(self) -> float:
        """By how much the trial as it is differs from itself."""
        return noise_of(self.rates[AS_IS])

    def cost(self, recipe: str, ratio: Ratio) -> float:
        """Return the share of the time that a diagnostic has found a cost to take."""
        saved = 1 - 1 / ratio.middle
        also = self.shares.get(_OPTIMIZER, 0.0) if recipe == NO_EXCHANGE else 0.0
        return max(0.0, saved - also)

    def what(self, recipe: str) -> str:
        if recipe == REPLAY:
            return "loading data"
        is_known = _OPTIMIZER in self.shares
        return "exchanging gradients" + ("" if is_known else ", with the optimizer's steps,")

    def sign(self, recipe: str) -> Sign | None:
        """Return whether a recipe gains; None if it was not measured."""
        ratio = ratio_of(self.rates.get(recipe, {}), self.rates[AS_IS])
        return sign_of(ratio, self.noise) if ratio else None


def not_worth_it(recipe: Recipe, found: Found) -> LeftOut | None:
    """Return why a remedy is not tried: the diagnostic before it has found no cost."""
    if not recipe.after or found.sign(recipe.after) == "gain":
        return None
    if found.sign(recipe.after) is None:
        return LeftOut(recipe, f"{recipe.after} was not measured")
    what = "recorded batches" if recipe.after == REPLAY else "an exchange every 1000 batches"
    noise = _percent(found.noise)
    return LeftOut(recipe, f"{what} gained nothing beyond the noise of {noise}, so this cannot")


def build_rows(recipes: Sequence[Recipe], found: Found, slots: int) -> list[Row]:
    ran = found.failures.keys() | found.rates.keys()
    return [_row(recipe, found, slots) for recipe in recipes if recipe.name in ran]


def _row(recipe: Recipe, found: Found, slots: int) -> Row:
    detail = found.details.get(recipe.name, "")
    if recipe.name in found.failures:
        return Row(recipe=recipe, verdict=f"failed: {found.failures[recipe.name]}", detail=detail)
    rates, noise = found.rates[recipe.name], found.noise
    ratio = None if recipe.name == AS_IS else ratio_of(rates, found.rates[AS_IS])
    sign = sign_of(ratio, noise) if ratio and not recipe.is_alone else None
    return Row(
        recipe=recipe,
        records_per_s=median(rates.values()),
        ratio=ratio,
        sign=sign,
        efficiency=_efficiency(recipe, rates, found, slots),
        verdict=_in_words(recipe, ratio, sign, noise, found, slots),
        detail=detail,
    )


def _efficiency(recipe: Recipe, rates: Rates, found: Found, slots: int) -> Ratio | None:
    alone = found.rates.get(ONE_SLOT)
    is_comparable = recipe.name == AS_IS or (recipe.is_remedy and recipe.after == NO_EXCHANGE)
    if alone is None or not is_comparable or "aggregation_frequency" in recipe.optimizations:
        return None  # it saves what the run on one slot does not
    return ratio_of(rates, alone, slots)


def _in_words(
    recipe: Recipe, ratio: Ratio | None, sign: Sign | None, noise: float, found: Found, slots: int
) -> str:
    if recipe.name == AS_IS:
        return f"the others are compared with it; noise {_percent(noise)}"
    if recipe.is_alone:
        whole = ratio_of(found.rates[AS_IS], found.rates[ONE_SLOT])
        return f"{slots} slots train {whole.middle:.2f} times as fast as 1" if whole else ""
    assert ratio is not None
    if sign == "none":
        change = f"{100 * (ratio.middle - 1):+.0f} %"
        return f"nothing: {change} is inside the noise of {_percent(noise)}"
    if sign == "loss":
        return f"slower by {_percent(1 - ratio.middle)}"
    if recipe.name in _KINDS:
        share = _percent(found.cost(recipe.name, ratio))
        return f"{found.what(recipe.name)} takes {share} of the time"
    return f"faster by {_percent(ratio.middle - 1)}"


def conclude(rows: Sequence[Row], found: Found, slots: int, *, at: float) -> Verdict:
    """Return what limits the trial, as far as the recipes can tell."""
    by_name = {row.recipe.name: row for row in rows}
    measured = [name for name in _KINDS if name in by_name and by_name[name].sign is not None]
    if not measured:
        return _unknown("Nothing was measured that shows what limits it.", at)
    costly = [by_name[name] for name in measured if by_name[name].sign == "gain"]
    causes = [_cause(row, rows, found) for row in costly]
    causes = [cause for cause in causes if cause.share > LEAST_NOISE]
    if not causes and found.noise > _LOUD:
        loud = f"Runs of the trial as it is differ by {_percent(found.noise)}"
        advice = "wait until the computer does less else, or give more rounds and seconds"
        return _unknown(f"{loud}, so a smaller cost cannot be seen: {advice}.", at)
    if not causes:
        efficiency = by_name[AS_IS].efficiency
        is_poor = efficiency is not None and efficiency.middle < _POOR and measured[1:]
        causes = [_residual(efficiency, slots) if is_poor and efficiency else _compute(measured)]
    causes.sort(key=lambda cause: -cause.share)
    sentence = " ".join(map(_sentence, causes))
    return Verdict(kind=causes[0].kind, sentence=sentence, causes=causes, at=at, batches=0)


def _unknown(sentence: str, at: float) -> Verdict:
    return Verdict(kind="unknown", sentence=sentence, at=at, batches=0)


def _cause(row: Row, rows: Sequence[Row], found: Found) -> Cause:
    assert row.ratio is not None
    name, share = row.recipe.name, found.cost(row.recipe.name, row.ratio)
    tried = [r for r in rows if r.recipe.after == name]
    advice = [
        f"try {r.detail or r.recipe.title}: {r.ratio} as fast here ({r.recipe.effect})"
        for r in _best_first(tried)
    ]
    if tried and not advice:
        advice = ["no remedy that was tried gained anything"]
    evidence = [
        f"{found.what(name)} takes {_percent(share)} of the time: "
        f"with {row.recipe.title} it trains {row.ratio} as fast"
    ]
    if name == NO_EXCHANGE and _OPTIMIZER in found.shares:
        steps = _percent(found.shares[_OPTIMIZER])
        evidence.append(f"it saves optimizer steps too, {steps} of the time: they are not counted")
    if found.shares:
        timed = sum(found.shares.get(part, 0.0) for part in _PARTS[name])
        evidence.append(f"by its own timings, rank 0 waits for that {_percent(timed)} of its time")
    return Cause(kind=_KINDS[name], share=share, evidence=evidence, advice=advice)


def _best_first(rows: Sequence[Row]) -> list[Row]:
    """Return those that gained something."""
    gains = [(row.ratio.middle, row) for row in rows if row.ratio and row.sign == "gain"]
    return [row for _, row in sorted(gains, key=lambda gain: -gain[0])]


def _residual(efficiency: Ratio, slots: int) -> Cause:
    said = (
        f"{slots} slots reach {_percent(efficiency.middle)} of {slots} times the throughput of "
        "1, though neither input nor the exchange costs anything: the ranks compete for something "
        "else, such as processor cores, memory bandwidth or a disk, or wait for a slow one"
    )
    return Cause(kind="residual", share=1 - efficiency.middle, evidence=[said])


def _compute(measured: Sequence[str]) -> Cause:
    names = ["input" if name == REPLAY else "the exchange of gradients" for name in measured]
    without = f"neither {' nor '.join(names)} costs" if names[1:] else f"{names[0]} costs nothing"
    what = "anything" if names[1:] else ""
    said = f"its own computation takes the time: {without} {what}".rstrip()
    return Cause(kind="compute", share=1.0, evidence=[f"{said} that could be measured"])


def _sentence(cause: Cause) -> str:
    text = f"{_capital(cause.evidence[0])}."
    return f"{text} {_capital(cause.advice[0])}." if cause.advice else text


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"


def yaml_lines(rows: Sequence[Row]) -> str:
    """Return YAML: of each key the best change that keeps the results; others are comments."""
    gains = _best_first([row for row in rows if row.recipe.is_remedy])
    lines = [
        f"# in build_training_data_loader: {row.detail}  # {_said(row)}"
        for row in gains
        if row.detail
    ]
    taken: set[str] = set()
    body = [line for row in gains for line in _of_section(row, taken)]
    if body:
        lines += ["optimizations:" if taken else "# optimizations:", *body]
    lines += [  # what only shows a cost
        f"# diagnostic only: {row.recipe.title}: {row.ratio} as fast, so {row.verdict}"
        for row in rows
        if not row.recipe.is_remedy and row.sign == "gain"
    ]
    return "\n".join(lines or ["# nothing that was tried gained anything"]) + "\n"


def _of_section(row: Row, taken: set[str]) -> list[str]:
    keys = row.recipe.optimizations
    if not keys:
        return []
    is_live = row.recipe.effect == "safe" and not taken & keys.keys()
    if is_live:
        taken.update(keys)
    text = yaml.safe_dump(keys, sort_keys=False).splitlines()
    mark = "" if is_live else "# "
    return [f"  {mark}{text[0]}  # {_said(row)}", *(f"  {mark}{line}" for line in text[1:])]


def _said(row: Row) -> str:
    because = f": {row.recipe.because}" if row.recipe.because else ""
    return f"{row.ratio} as fast here; {row.recipe.effect}{because}"
