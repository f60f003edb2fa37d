"""A hyperparameter's range as Optuna's distribution."""

from __future__ import annotations

from typing import Any

from det_jupyter.searcher.optuna_space import Dimension


def distribution_of(dimension: Dimension) -> Any:
    """Return the distribution; of a categorical, over the places of its values."""
    from optuna import distributions

    low, high = dimension.bounds
    if dimension.kind == "categorical":
        return distributions.CategoricalDistribution(range(int(high) + 1))
    if dimension.kind == "int":
        return distributions.IntDistribution(int(low), int(high))
    return distributions.FloatDistribution(low, high, log=dimension.kind == "log")
