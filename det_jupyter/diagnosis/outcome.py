"""What came out of a bottleneck experiment: a row for each recipe, and lines to paste."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import yaml

from det_jupyter.contract.messages.views import Cause, CauseKind, Verdict
from det_jupyter.diagnosis.gains import Rates, Ratio, Sign, ratio_of, variation_of
from det_jupyter.diagnosis.recipes import AS_IS, NO_EXCHANGE, ONE_SLOT, REPLAY, LeftOut, Recipe

KINDS: dict[str, CauseKind] = {REPLAY: "input", NO_EXCHANGE: "communication"}
OPTIMIZER = "optimizer"  # the part that a run with few exchanges saves too


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
    stragglers: dict[int, Cause] = field(default_factory=dict)  # named while it trained, by rank

    def note_live(self, verdict: Verdict | None) -> None:
        """Note the stragglers that a verdict on the trial as it is has named."""
        for cause in verdict.causes if verdict else ():
            if cause.kind == "straggler" and cause.rank is not None:
                self.stragglers.setdefault(cause.rank, cause)

    def ratio(self, recipe: str) -> Ratio | None:
        """Return a recipe's throughput beside that of the trial as it is, if it was measured."""
        if recipe in self.failures:
            return None
        return ratio_of(self.rates.get(recipe, {}), self.rates[AS_IS])

    def cost(self, recipe: str, times: float) -> float:
        """Return the share of the time that a diagnostic saves which is so many times as fast."""
        saved = 1 - 1 / times
        also = self.shares.get(OPTIMIZER, 0.0) if recipe == NO_EXCHANGE else 0.0
        return max(0.0, saved - also)

    def what(self, recipe: str) -> str:
        if recipe == REPLAY:
            return "loading data"
        is_known = OPTIMIZER in self.shares
        return "exchanging gradients" + ("" if is_known else ", with the optimizer's steps,")


def not_worth_it(recipe: Recipe, found: Found) -> LeftOut | None:
    """Return why a remedy is not tried: the diagnostic before it has found no cost."""
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


def build_rows(recipes: Sequence[Recipe], found: Found, slots: int) -> list[Row]:
    ran = found.failures.keys() | found.rates.keys()
    return [_row(recipe, found, slots) for recipe in recipes if recipe.name in ran]


def _row(recipe: Recipe, found: Found, slots: int) -> Row:
    detail = found.details.get(recipe.name, "")
    if recipe.name in found.failures:
        return Row(recipe=recipe, verdict=f"failed: {found.failures[recipe.name]}", detail=detail)
    rates = found.rates[recipe.name]
    ratio = None if recipe.name == AS_IS else found.ratio(recipe.name)
    return Row(
        recipe=recipe,
        records_per_s=median(rates.values()),
        ratio=ratio,
        sign=ratio.sign if ratio and not recipe.is_alone else None,
        efficiency=_efficiency(recipe, rates, found, slots),
        verdict=_in_words(recipe, ratio, found, slots),
        detail=detail,
    )


def _efficiency(recipe: Recipe, rates: Rates, found: Found, slots: int) -> Ratio | None:
    alone = found.rates.get(ONE_SLOT)
    is_comparable = recipe.name == AS_IS or (recipe.is_remedy and recipe.after == NO_EXCHANGE)
    if alone is None or not is_comparable or "aggregation_frequency" in recipe.optimizations:
        return None  # it saves what the run on one slot does not
    return ratio_of(rates, alone, slots)


def _in_words(recipe: Recipe, ratio: Ratio | None, found: Found, slots: int) -> str:
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
        return f"{found.what(recipe.name)} takes {share} of the time"
    return f"faster by {percent(ratio.middle - 1)}"


def yaml_lines(rows: Sequence[Row]) -> str:
    """Return YAML: of each key the best change that keeps the results; others are comments."""
    gains = best_first([row for row in rows if row.recipe.is_remedy])
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
    lines += [  # what is not known
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


def best_first(rows: Sequence[Row]) -> list[Row]:
    """Return those that gained something."""
    gains = [(row.ratio.middle, row) for row in rows if row.ratio and row.sign == "gain"]
    return [row for _, row in sorted(gains, key=lambda gain: -gain[0])]


def percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"
