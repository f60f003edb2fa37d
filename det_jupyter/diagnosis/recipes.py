"""The recipes of a bottleneck experiment: the trial with one change each, to measure its effect.

    as it is             the baseline
    diagnostics          remove a cost, without training correctly, to measure its size
    remedies             changes of configuration or loader, to measure their gain

A remedy for a cost that its diagnostic has not found cannot gain, and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Effect = Literal["diagnostic only", "safe", "changes the optimization"]

AS_IS = "as_it_is"
REPLAY = "replay"
NO_EXCHANGE = "aggregation_1000"
ONE_SLOT = "one_slot"
_FEW, _MANY = 4, 1000  # batches from one exchange to the next
_DEFAULT_MB = 25
_BUCKETS_MB = (5, 100)
_LOW_RANK_AFTER = 16  # batches: PowerSGD exchanges the first ten uncompressed


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The trial with one change."""

    name: str  # by which users choose it
    title: str  # for tables
    effect: Effect = "diagnostic only"  # effect on the results of training
    because: str = ""  # why the effect is not "safe"
    after: str = ""  # the diagnostic that must find a cost first
    is_alone: bool = False  # runs on one slot
    optimizations: dict[str, Any] = field(default_factory=dict)  # keys of that section
    rehearsal: str = (
        ""  # the change that the training library makes (pytorch/training/rehearsal.py)
    )

    @property
    def is_remedy(self) -> bool:
        return self.effect != "diagnostic only"


def find_recipes(slots: int, optimizations: Mapping[str, Any]) -> list[Recipe | LeftOut]:
    """Return all recipes in the order in which they run; `LeftOut` for those without a use."""
    frequency = optimizations.get("aggregation_frequency") or 1
    given = optimizations.get("gradient_compression")
    present = "fp16" if given is True else str(given or "none")
    found = [
        Recipe(name=AS_IS, title="as it is"),
        Recipe(name=REPLAY, title="recorded batches", rehearsal="replay=16"),
        Recipe(
            name=NO_EXCHANGE,
            title=f"aggregation_frequency: {_MANY}",
            optimizations={"aggregation_frequency": _MANY},
        ),
        Recipe(name=ONE_SLOT, title="1 slot, its share of the batch", is_alone=True),
        Recipe(
            name="workers",
            title="more loader workers",
            effect="safe",
            after=REPLAY,
            rehearsal="workers=1",
        ),
        *(_bucket(size, optimizations) for size in _BUCKETS_MB),
        *(_compressed(kind) for kind in ("bf16", "fp16", "powersgd")),
        Recipe(
            name=f"aggregation_{_FEW * frequency}",
            title=f"aggregation_frequency: {_FEW * frequency}",
            effect="changes the optimization",
            because=f"an optimizer step for {_FEW} times as many records",
            after=NO_EXCHANGE,
            optimizations={"aggregation_frequency": _FEW * frequency},
        ),
    ]
    bucket_mb = optimizations.get("tensor_fusion_threshold") or _DEFAULT_MB
    is_set = {
        f"bucket_{bucket_mb}": f"tensor_fusion_threshold is {bucket_mb} already",
        present: f"gradient_compression is {present} already",
    }
    if frequency >= _MANY:
        is_set[NO_EXCHANGE] = f"aggregation_frequency is {frequency} already"
    if optimizations.get("mixed_precision", "O0") not in ("O0", "bf16"):
        is_set["powersgd"] = "gradient_compression: powersgd needs mixed_precision O0 or bf16"
    return [_or_left_out(recipe, slots, optimizations, is_set) for recipe in found]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A recipe that does not run, and why."""

    recipe: Recipe
    why: str


def _or_left_out(
    recipe: Recipe, slots: int, optimizations: Mapping[str, Any], is_set: Mapping[str, str]
) -> Recipe | LeftOut:
    needs_others = recipe.is_alone or NO_EXCHANGE in (recipe.name, recipe.after)
    if needs_others and slots < 2:
        return LeftOut(recipe, "the trial has 1 slot, so it exchanges nothing")
    if recipe.name in is_set:
        return LeftOut(recipe, is_set[recipe.name])
    of_replicas = {"gradient_compression", "tensor_fusion_threshold"} & recipe.optimizations.keys()
    if of_replicas and optimizations.get("sharding"):
        return LeftOut(recipe, f"with sharding: {optimizations['sharding']} it has no effect")
    return recipe


def _bucket(size_mb: int, optimizations: Mapping[str, Any]) -> Recipe:
    tunes = optimizations.get("auto_tune_tensor_fusion")
    return Recipe(
        name=f"bucket_{size_mb}",
        title=f"tensor_fusion_threshold: {size_mb}",
        effect="safe",
        after=NO_EXCHANGE,
        optimizations={"tensor_fusion_threshold": size_mb}
        | ({"auto_tune_tensor_fusion": False} if tunes else {}),
    )


def _compressed(kind: str) -> Recipe:
    low_rank = kind == "powersgd"
    return Recipe(
        name=kind,
        title=f"gradient_compression: {kind}",
        effect="changes the optimization",
        because="low-rank approximations" if low_rank else "gradients rounded to 16 bits",
        after=NO_EXCHANGE,
        optimizations={"gradient_compression": kind},
        rehearsal=f"warmup={_LOW_RANK_AFTER}" if low_rank else "",
    )
