"""The ranges of a search in words, and what its first trials get; for its preview. Pure.

With a seed in the configuration the samples are those of the first trials. A sampler of Optuna
draws its own: then they are examples of the space, as are all of a configuration without a seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from det_jupyter.config import ExperimentConfig
from det_jupyter.config.hyperparameters import is_nested
from det_jupyter.config.searchers import GridSearcher
from det_jupyter.searcher.grid import Grid, axis_values
from det_jupyter.searcher.trials import Trials
from det_jupyter.words import setting

NUM_SAMPLES = 5
_MOST_VALUES = 8  # that are named one by one

Path = tuple[str, ...]


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
    samples = _grid_points(space) if is_grid else _draws(space, config)
    return [
        Range(".".join(path), _words(spec, is_grid=is_grid), tuple(_at(s, path) for s in samples))
        for path, spec in _ranges(space, ())
    ]


def _grid_points(space: Mapping[str, Any]) -> list[dict[str, Any]]:
    grid = Grid(space)
    return [grid.point(place) for place in range(min(NUM_SAMPLES, len(grid)))]


def _draws(space: Mapping[str, Any], config: ExperimentConfig) -> list[dict[str, Any]]:
    trials = Trials(space, config.reproducibility.experiment_seed or 0)
    return [trials.create().hparams for _ in range(NUM_SAMPLES)]


def _ranges(space: Mapping[str, Any], above: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    for name, spec in space.items():
        if is_nested(spec):
            yield from _ranges(spec, (*above, name))
        elif isinstance(spec, Mapping) and spec["type"] != "const":
            yield (*above, name), spec


def _at(sample: Mapping[str, Any], path: Path) -> Any:
    return reduce(lambda inner, name: inner[name], path, sample)


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
