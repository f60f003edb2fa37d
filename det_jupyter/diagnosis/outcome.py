"""What came out of a bottleneck experiment: a row for each recipe, and what they say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from det_jupyter.diagnosis.gains import Rates, Ratio, Sign, noise_of, ratio_of, sign_of
from det_jupyter.diagnosis.recipes import AS_IS, NO_EXCHANGE, ONE_SLOT, REPLAY, LeftOut, Recipe
from det_jupyter.wire.verdict import Cause, CauseKind, Verdict

_POOR = 0.85  # scaling efficiency below which something must be the cause
_COSTS: dict[str, tuple[CauseKind, str]] = {
    REPLAY: ("input", "loading data"),
    NO_EXCHANGE: ("communication", "exchanging gradients, with the optimizer's steps,"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How one recipe did.

    Args:
        recipe: Which.
        records_per_s: Of all ranks together, the median of the rounds; None if it failed.
        ratio: Beside the trial as it is.
        sign: Whether that is more than noise.
        efficiency: Throughput on N slots, beside N times that on one.
        verdict: All of this, in words.
        detail: What was changed in fact, where the recipe's title does not say it.
    """

    recipe: Recipe
    records_per_s: float | None = None
    ratio: Ratio | None = None
    sign: Sign | None = None
    efficiency: Ratio | None = None
    verdict: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the runs measured.

    Args:
        rates: By recipe and round.
        failures: Why a recipe failed.
        details: What a recipe changed in fact.
    """

    rates: dict[str, dict[int, float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)

    @property
    def noise(self) -> float:
        """By how much the trial as it is differs from itself."""
        return noise_of(self.rates[AS_IS])

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
    return LeftOut(recipe, f"{what} gained nothing, so this cannot")


def build_rows(recipes: Sequence[Recipe], found: Found, slots: int) -> list[Row]:
    """Return a row for each recipe that ran."""
    return [
        Row(
            recipe=recipe,
            verdict=f"failed: {found.failures[recipe.name]}",
            detail=found.details.get(recipe.name, ""),
        )
        if recipe.name in found.failures
        else _row(recipe, found, slots)
        for recipe in recipes
        if recipe.name in found.failures or recipe.name in found.rates
    ]


def _row(recipe: Recipe, found: Found, slots: int) -> Row:
    rates, noise = found.rates[recipe.name], found.noise
    ratio = None if recipe.name == AS_IS else ratio_of(rates, found.rates[AS_IS])
    sign = sign_of(ratio, noise) if ratio and not recipe.is_alone else None
    efficiency = _efficiency(recipe, rates, found, slots)
    return Row(
        recipe=recipe,
        records_per_s=median(rates.values()),
        ratio=ratio,
        sign=sign,
        efficiency=efficiency,
        verdict=_in_words(recipe, ratio, sign, noise, found, slots),
        detail=found.details.get(recipe.name, ""),
    )


def _efficiency(recipe: Recipe, rates: Rates, found: Found, slots: int) -> Ratio | None:
    alone = found.rates.get(ONE_SLOT)
    return None if alone is None or recipe.is_alone else ratio_of(rates, alone, slots)


def _in_words(
    recipe: Recipe, ratio: Ratio | None, sign: Sign | None, noise: float, found: Found, slots: int
) -> str:
    if recipe.name == AS_IS:
        return f"the others are compared with it; noise {noise:.0%}"
    if recipe.is_alone:
        whole = ratio_of(found.rates[AS_IS], found.rates[ONE_SLOT])
        return f"{slots} slots train {whole.middle:.2f} times as fast as 1" if whole else ""
    assert ratio is not None
    if sign == "none":
        return f"nothing: {ratio.middle - 1:+.0%} is inside the noise of {noise:.0%}"
    if sign == "loss":
        return f"slower by {1 - ratio.middle:.0%}"
    if recipe.name in _COSTS:
        return f"{_COSTS[recipe.name][1]} takes {1 - 1 / ratio.middle:.0%} of the time"
    return f"faster by {ratio.middle - 1:.0%}"


def conclude(rows: Sequence[Row], slots: int, *, at: float) -> Verdict:
    """Return what limits the trial, as far as the recipes can tell."""
    by_name = {row.recipe.name: row for row in rows}
    causes = [_cause(by_name[name], rows) for name in _COSTS if _gains(by_name.get(name))]
    as_it_is = by_name.get(AS_IS)
    efficiency = as_it_is.efficiency.middle if as_it_is and as_it_is.efficiency else 1.0
    measured = [name for name in _COSTS if name in by_name and by_name[name].sign is not None]
    if not measured:
        return Verdict(kind="unknown", sentence="Nothing that tells was measured.", at=at,
                       batches=0)  # fmt: skip
    if not causes:
        causes = [_residual(efficiency, slots)] if efficiency < _POOR else [_compute(measured)]
    causes.sort(key=lambda cause: -cause.share)
    sentence = " ".join(_sentence(cause) for cause in causes)
    return Verdict(kind=causes[0].kind, sentence=sentence, causes=causes, at=at, batches=0)


def _gains(row: Row | None) -> bool:
    return row is not None and row.sign == "gain"


def _cause(row: Row, rows: Sequence[Row]) -> Cause:
    assert row.ratio is not None
    kind, what = _COSTS[row.recipe.name]
    share = 1 - 1 / row.ratio.middle
    remedies = [r for r in rows if r.recipe.after == row.recipe.name and r.sign == "gain"]
    remedies.sort(key=lambda r: -(r.ratio.middle if r.ratio else 0))
    advice = [
        f"{r.detail or r.recipe.title}: {r.ratio} as fast here ({r.recipe.effect})"
        for r in remedies
    ]
    said = f"{row.recipe.title}: {row.ratio} as fast, so {what} takes {share:.0%} of the time"
    return Cause(kind=kind, share=share, evidence=[said], advice=advice)


def _residual(efficiency: float, slots: int) -> Cause:
    said = (
        f"{slots} slots reach {efficiency:.0%} of {slots} times the throughput of 1, though "
        "neither input nor the exchange costs anything: the ranks compete for something else, "
        "such as processor cores, memory bandwidth or a disk, or wait for a slow one"
    )
    return Cause(kind="residual", share=1 - efficiency, evidence=[said])


def _compute(measured: Sequence[str]) -> Cause:
    names = ["input" if name == REPLAY else "the exchange of gradients" for name in measured]
    without = f"neither {' nor '.join(names)} costs" if names[1:] else f"{names[0]} costs nothing"
    what = "anything" if names[1:] else ""
    said = f"its own computation takes the time: {without} {what}".rstrip()
    return Cause(kind="compute", share=1.0, evidence=[f"{said} that could be measured"])


def _sentence(cause: Cause) -> str:
    said = cause.evidence[0]
    text = said[0].upper() + said[1:] + "."
    if cause.kind not in ("input", "communication"):
        return text
    best = f" {cause.advice[0]}." if cause.advice else " No remedy that was tried gained anything."
    return text + best
