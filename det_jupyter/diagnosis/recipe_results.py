"""The results of a bottleneck experiment: a row for each recipe, and YAML for the gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import yaml

from det_jupyter.contract.messages.verdicts import Cause, CauseKind, Verdict
from det_jupyter.diagnosis.gains import Rates, Ratio, Sign, ratio_of, variation_of
from det_jupyter.diagnosis.recipes import AS_IS, NO_EXCHANGE, ONE_SLOT, REPLAY, LeftOut, Recipe

KINDS: dict[str, CauseKind] = {REPLAY: "input", NO_EXCHANGE: "communication"}
OPTIMIZER = "optimizer"  # the part that a run with few exchanges saves as well


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeResult:
    """The result of one recipe."""

    recipe: Recipe
    # Of all ranks together, the median over rounds; None if the recipe failed.
    records_per_s: float | None = None
    ratio: Ratio | None = None  # throughput divided by that of the unchanged trial
    sign: Sign | None = None  # whether the ratio is more than noise
    efficiency: Ratio | None = None  # throughput on N slots over N times that on one
    verdict: str  # the result as text
    detail: str = ""  # the change that was made, where the title does not have it


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measurements of all runs, by recipe."""

    rates: dict[str, dict[int, float]] = field(default_factory=dict)  # by recipe and round
    # Of the chief's time in the trial as it is, by part (measures.py), if it was timed.
    shares: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)  # the errors
    details: dict[str, str] = field(default_factory=dict)  # the changes that were made
    stragglers: dict[int, Cause] = field(
        default_factory=dict
    )  # named while the trial trained, by rank

    def add_stragglers(self, verdict: Verdict | None) -> None:
        """Add the stragglers of a live verdict on the trial as it is."""
        for cause in verdict.causes if verdict else ():
            if cause.kind == "straggler" and cause.rank is not None:
                self.stragglers.setdefault(cause.rank, cause)

    def ratio(self, recipe: str) -> Ratio | None:
        """Return the ratio of a recipe's throughput to that of the trial as it is, if measured."""
        if recipe in self.failures:
            return None
        return ratio_of(self.rates.get(recipe, {}), self.rates[AS_IS])

    def cost(self, recipe: str, times: float) -> float:
        """Return the share of time that a diagnostic saves if it is `times` as fast."""
        saved = 1 - 1 / times
        also = self.shares.get(OPTIMIZER, 0.0) if recipe == NO_EXCHANGE else 0.0
        return max(0.0, saved - also)

    def cost_name(self, recipe: str) -> str:
        """Return what a diagnostic removes, as the subject of a sentence."""
        if recipe == REPLAY:
            return "loading data"
        is_timed = OPTIMIZER in self.shares
        return "exchanging gradients" + ("" if is_timed else ", with the optimizer's steps,")


def skipped_remedy(recipe: Recipe, found: Measured) -> LeftOut | None:
    """Return a remedy as left out if its diagnostic has found no cost; None if it should run."""
    if not recipe.after:
        return None
    ratio = found.ratio(recipe.after)
    if ratio is None:
        return LeftOut(recipe, f"{recipe.after} was not measured")
    what = "recorded batches" if recipe.after == REPLAY else "an exchange every 1000 batches"
    match ratio.sign:
        case "gain":
            return None
        case "unclear":
            return LeftOut(recipe, f"it is unclear whether {what} would gain anything")
    return LeftOut(recipe, f"{what} gained nothing, so this cannot")


def build_rows(recipes: Sequence[Recipe], found: Measured, slots: int) -> list[RecipeResult]:
    ran = found.failures.keys() | found.rates.keys()
    return [_row(recipe, found, slots) for recipe in recipes if recipe.name in ran]


def _row(recipe: Recipe, found: Measured, slots: int) -> RecipeResult:
    detail = found.details.get(recipe.name, "")
    if recipe.name in found.failures:
        return RecipeResult(
            recipe=recipe, verdict=f"failed: {found.failures[recipe.name]}", detail=detail
        )
    rates = found.rates[recipe.name]
    ratio = None if recipe.name == AS_IS else found.ratio(recipe.name)
    return RecipeResult(
        recipe=recipe,
        records_per_s=median(rates.values()),
        ratio=ratio,
        sign=ratio.sign if ratio and not recipe.is_alone else None,
        efficiency=_efficiency(recipe, rates, found, slots),
        verdict=_verdict_text(recipe, ratio, found, slots),
        detail=detail,
    )


def _efficiency(recipe: Recipe, rates: Rates, found: Measured, slots: int) -> Ratio | None:
    alone = found.rates.get(ONE_SLOT)
    is_comparable = recipe.name == AS_IS or (recipe.is_remedy and recipe.after == NO_EXCHANGE)
    if alone is None or not is_comparable or "aggregation_frequency" in recipe.optimizations:
        return None  # aggregation saves exchanges and steps, which one slot does not have
    return ratio_of(rates, alone, slots)


def _verdict_text(recipe: Recipe, ratio: Ratio | None, found: Measured, slots: int) -> str:
    if recipe.name == AS_IS:
        varied = percent(variation_of(found.rates[AS_IS]))
        return f"the baseline; runs vary by {varied}"
    if recipe.is_alone:
        whole = ratio_of(found.rates[AS_IS], found.rates[ONE_SLOT])
        return f"{slots} slots train {whole.middle:.2f} times as fast as 1" if whole else ""
    assert ratio is not None
    match ratio.sign:
        case "none" | "unclear" as sign:
            word = "nothing" if sign == "none" else sign
            change = f"{100 * (ratio.middle - 1):+.0f} %"
            return f"{word}: {change}, runs vary by {percent(ratio.variation)}"
        case "loss":
            return f"slower by {percent(1 - ratio.middle)}"
    if recipe.name in KINDS:
        share = percent(found.cost(recipe.name, ratio.middle))
        return f"{found.cost_name(recipe.name)} takes {share} of the time"
    return f"faster by {percent(ratio.middle - 1)}"


def yaml_lines(rows: Sequence[RecipeResult]) -> str:
    """Return YAML with the best safe change of each key; other results are comments."""
    gains = best_first([row for row in rows if row.recipe.is_remedy])
    lines = [
        f"# in build_training_data_loader: {row.detail}  # {_row_comment(row)}"
        for row in gains
        if row.detail
    ]
    taken: set[str] = set()
    body = [line for row in gains for line in _of_section(row, taken)]
    if body:
        lines += ["optimizations:" if taken else "# optimizations:", *body]
    lines += [  # costs without a remedy
        f"# diagnostic only: {row.recipe.title}: {row.ratio} as fast, so {row.verdict}"
        for row in rows
        if not row.recipe.is_remedy and row.sign == "gain"
    ]
    lines += [  # unclear or failed
        f"# {row.recipe.title}: {row.verdict}"
        for row in rows
        if row.recipe.is_remedy and row.sign in (None, "unclear")
    ]
    if not lines:
        is_tried = any(row.recipe.is_remedy for row in rows)
        lines = [
            "# no change that was tried gained anything" if is_tried else "# no change was tried"
        ]
    return "\n".join(lines) + "\n"


def _of_section(row: RecipeResult, taken: set[str]) -> list[str]:
    keys = row.recipe.optimizations
    if not keys:
        return []
    is_live = row.recipe.effect == "safe" and not taken & keys.keys()
    if is_live:
        taken.update(keys)
    text = yaml.safe_dump(keys, sort_keys=False).splitlines()
    mark = "" if is_live else "# "
    return [f"  {mark}{text[0]}  # {_row_comment(row)}", *(f"  {mark}{line}" for line in text[1:])]


def _row_comment(row: RecipeResult) -> str:
    because = f": {row.recipe.because}" if row.recipe.because else ""
    return f"{row.ratio} as fast here; {row.recipe.effect}{because}"


def best_first(rows: Sequence[RecipeResult]) -> list[RecipeResult]:
    """Return the rows with a gain, the largest first."""
    gains = [(row.ratio.middle, row) for row in rows if row.ratio and row.sign == "gain"]
    return [row for _, row in sorted(gains, key=lambda gain: -gain[0])]


def percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"
