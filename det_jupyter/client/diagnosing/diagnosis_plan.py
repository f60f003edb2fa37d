"""Plans a bottleneck diagnosis: which recipes run, and the request for each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from det_jupyter.client.diagnosing.derived import check_class, derive_rehearsal
from det_jupyter.contract.messages import CreateExperiment, ExperimentView, TrialView
from det_jupyter.diagnosis.recipes import AS_IS, NO_EXCHANGE, LeftOut, Recipe, find_recipes
from det_jupyter.errors import ConfigError

VERB = "diagnose"
_TUNED_AFTER = 64  # batches, after which the bucket tuner has finished
_ONLY_CLASSES = (
    "of a loop of its own, no recipe can be tried: they repeat its data, leave out its exchange "
    "of gradients, or change its loader workers from outside. Where its time goes is in "
    "trial.verdict and trial.step_times()"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which recipes to run.

    Args:
        trial: The trial whose hyperparameters are used.
        slots: Number of its slots.
        recipes: The recipes, in the order in which they run.
        left_out: Recipes that make no sense for the trial.
        is_chosen: The user has named the recipes, so all of them run.
        seconds: Duration of each measurement.
        rounds: Number of runs of each recipe.
    """

    view: ExperimentView
    trial: TrialView
    slots: int
    recipes: list[Recipe]
    left_out: list[LeftOut]
    is_chosen: bool
    seconds: float
    rounds: int


def plan_diagnosis(
    view: ExperimentView,
    trial: TrialView,
    *,
    recipes: Sequence[str] | None,
    seconds: float,
    rounds: int,
) -> Plan:
    """Return the plan; the arguments are those of `Experiment.diagnose`.

    Raises:
        ConfigError: The entrypoint is no class, or arguments are wrong; one line for each.
    """
    check_class(view, VERB, _ONLY_CLASSES)
    problems = []
    if type(seconds) not in (int, float) or not 0 < seconds <= 3600:
        problems.append(f"{VERB}: seconds: got {seconds!r}, expected more than 0, at most 3600")
    if type(rounds) is not int or rounds < 2:
        problems.append(
            f"{VERB}: rounds: got {rounds!r}, expected at least 2: without repetition the noise "
            "is not known"
        )
    slots = max(1, view.slots_per_trial)
    every = find_recipes(slots, view.config.get("optimizations") or {})
    names = [_recipe_of(item).name for item in every]
    if isinstance(recipes, str) or (recipes is not None and not recipes):
        wrong: Sequence[object] = [recipes]
    else:
        wrong = [name for name in recipes or () if name not in names]
    problems += [
        f"{VERB}: recipes: got {name!r}, expected a list of some of {', '.join(names)}"
        for name in wrong
    ]
    if problems:
        raise ConfigError(problems)
    chosen = [AS_IS, *(recipes or names)]
    wanted = [item for item in every if _recipe_of(item).name in chosen]
    return Plan(
        view=view,
        trial=trial,
        slots=slots,
        recipes=[item for item in wanted if isinstance(item, Recipe)],
        left_out=[item for item in wanted if isinstance(item, LeftOut)],
        is_chosen=recipes is not None,
        seconds=seconds,
        rounds=rounds,
    )


def _recipe_of(item: Recipe | LeftOut) -> Recipe:
    return item.recipe if isinstance(item, LeftOut) else item


def request_for(plan: Plan, recipe: Recipe) -> CreateExperiment:
    """Return the request for one run of a recipe."""
    return derive_rehearsal(
        plan.view,
        VERB,
        _rehearsal(plan, recipe),
        hparams=hparams_of(plan, recipe),
        title=recipe.title,
        resources={"slots_per_trial": 1} if recipe.is_alone else {},
        optimizations=recipe.optimizations,
    )


def _rehearsal(plan: Plan, recipe: Recipe) -> str:
    """Return the value of the environment variable that configures the measurement."""
    optimizations = (plan.view.config.get("optimizations") or {}) | recipe.optimizations
    parts = [f"seconds={plan.seconds:g}", recipe.rehearsal]
    if optimizations.get("auto_tune_tensor_fusion") and "warmup" not in recipe.rehearsal:
        parts.append(f"warmup={_TUNED_AFTER}")
    frequency = optimizations.get("aggregation_frequency", 1)
    if frequency > 1 and recipe.name != NO_EXCHANGE:
        parts.append(f"every={frequency}")  # otherwise most batches would have no exchange
    return " ".join(filter(None, parts))


def hparams_of(plan: Plan, recipe: Recipe) -> dict[str, Any]:
    """Return a run's hyperparameters; a run on one slot keeps the batch size per slot."""
    hparams = plan.trial.hparams
    size = hparams.get("global_batch_size")
    if not recipe.is_alone or not isinstance(size, int):
        return hparams
    return hparams | {"global_batch_size": max(1, size // plan.slots)}
