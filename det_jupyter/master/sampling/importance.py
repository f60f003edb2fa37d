"""How much each hyperparameter distinguishes the best trials of a search: Optuna's PED-ANOVA.

PED-ANOVA compares the distribution of a hyperparameter's values in the best quarter of the trials
with that in all trials: the more they differ, the more important it is. Optuna's other evaluators
fit random forests and need scikit-learn; this one needs only Optuna.

Trials that the search stopped early count with their best metric.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from det_jupyter.contract.messages import ImportanceView
from det_jupyter.contract.values.direction import Direction
from det_jupyter.contract.values.text import error_text
from det_jupyter.master.sampling.optuna_classes import (
    INSTALL,
    distribution_of,
    find_missing_optuna,
)
from det_jupyter.master.sampling.samplers import quiet
from det_jupyter.searcher.optuna_space import find_dimensions, to_params

MIN_TRIALS = 20  # the best quarter then has five, the minimum that Optuna recommends
QUANTILE = 0.25

# Hyperparameters of an ended trial, and its best value of the metric, if it has one.
Sample = tuple[Mapping[str, Any], float | None]


def find_importance(
    hyperparameters: Mapping[str, Any],
    metric: str,
    direction: Direction,
    samples: Sequence[Sample],
) -> ImportanceView:
    """Return the share of each hyperparameter, or a sentence on why there are no shares."""
    converted = [(to_params(hyperparameters, hparams), value) for hparams, value in samples]
    inside = [
        (params, value) for params, value in converted if params is not None and value is not None
    ]
    view = ImportanceView(metric=metric, num_trials=len(inside), num_ended=len(samples))
    if not list(find_dimensions(hyperparameters)):
        return view.model_copy(update={"sentence": "No hyperparameter of this search varies."})
    if len(inside) < MIN_TRIALS:
        too_few = f"Needs {MIN_TRIALS} finished trials; this search has {len(inside)}."
        return view.model_copy(update={"sentence": too_few})
    if len({value for _, value in inside}) == 1:
        return view.model_copy(update={"sentence": f"All trials have the same {metric}."})
    if find_missing_optuna():
        where = f"Needs optuna where the master runs: {INSTALL}."
        return view.model_copy(update={"sentence": where})
    try:
        with quiet:
            shares = _evaluate(hyperparameters, direction, inside)
    except Exception as error:  # any error that Optuna raises about these trials
        return view.model_copy(update={"sentence": f"Optuna refuses: {error_text(error)}"})
    return view.model_copy(update={"shares": shares})


def _evaluate(
    hyperparameters: Mapping[str, Any],
    direction: Direction,
    samples: Sequence[tuple[Mapping[str, float], float]],
) -> dict[str, float]:
    import optuna

    distributions = {
        dimension.name: distribution_of(dimension)
        for dimension in find_dimensions(hyperparameters)
    }
    study = optuna.create_study(direction=direction.value)
    study.add_trials(
        [
            optuna.trial.create_trial(
                params=dict(params), distributions=distributions, value=value
            )
            for params, value in samples
        ]
    )
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=QUANTILE)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: share for name, share in found.items() if math.isfinite(share)}
