"""The searcher's metric of a trial: which value is better. NaN is the worst there is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from det_jupyter.master.state import Trial


def best_of(values: Iterable[float | None], config: dict[str, Any]) -> float | None:
    """Return the best of these values by the configuration's `smaller_is_better`."""
    numbers = [v for v in values if v is not None and not math.isnan(v)]
    if not numbers:
        return None
    return min(numbers) if config["searcher"]["smaller_is_better"] else max(numbers)


def note_metrics(trial: Trial, by_step: dict[int, float], config: dict[str, Any]) -> None:
    """Take over what is known of the trial's metric, in place of what was."""
    trial.metrics_by_step = by_step
    trial.best_metric = best_of(by_step.values(), config)
    trial.latest_metric = by_step[max(by_step)] if by_step else None
