"""The ranges of a search in words, and what its first trials get; for its preview. Pure.

With a seed in the configuration the samples are those of the first trials. A sampler of Optuna
draws its own: then they are examples of the space, as are all of a configuration without a seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Any

from det_jupyter.config import ExperimentConfig
from det_jupyter.config.hyperparameters import is_drawn, leaves
from det_jupyter.config.searchers import GridSearcher
from det_jupyter.searcher.grid import Grid, axis_values
from det_jupyter.searcher.trials import Trials
from det_jupyter.words import setting

NUM_SAMPLES = 5
_MOST_VALUES = 8  # that are named one by one


@dataclass(frozen=True, slots=True)
class Range:
    """A hyperparameter that is drawn, its range in words, and some values from it."""

    name: str
    words: str
    samples: tuple[Any, ...]


def sample_ranges(config: ExperimentConfig) -> list[Range]:
    """Return the ranges of a search, in the order in which they are written."""
    space = config.hyperparameters
    is_grid = isinstance(config.searcher, GridSearcher)
    if is_grid:
        grid = Grid(space)
        samples = [grid.point(place) for place in range(min(NUM_SAMPLES, len(grid)))]
    else:
        trials = Trials(space, config.reproducibility.experiment_seed or 0)
        samples = [trials.create().hparams for _ in range(NUM_SAMPLES)]
    return [
        Range(
            ".".join(path),
            _words(spec, is_grid=is_grid),
            tuple(reduce(getitem, path, sample) for sample in samples),
        )
        for path, spec in leaves(space)
        if is_drawn(spec)
    ]


def _words(spec: Mapping[str, Any], *, is_grid: bool) -> str:
    """Return a range in words.

    >>> _words({"type": "log", "base": 10, "minval": -4, "maxval": -1}, is_grid=False)
    '0.0001 to 0.1, even in the exponent'
    """
    if spec["type"] == "categorical" or is_grid:
        values = spec["vals"] if spec["type"] == "categorical" else axis_values(spec)
        more = ", ..." if len(values) > _MOST_VALUES else ""
        return f"{', '.join(map(setting, values[:_MOST_VALUES]))}{more}"
    low, high = spec["minval"], spec["maxval"]
    if spec["type"] == "log":
        low, high = (float(spec["base"]) ** exponent for exponent in (low, high))
        return f"{low:.4g} to {high:.4g}, even in the exponent"
    return f"{low:g} to {high:g}" + (", whole" if spec["type"] == "int" else "")
