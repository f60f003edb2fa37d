"""Whether a validation is the best that the experiment has seen."""

from __future__ import annotations

import math
import sys
from typing import Any

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.rules import Rules
from det_jupyter.pytorch.trial import describe_missing_metric
from det_jupyter.records import to_finite


class Judge:
    """Compares validations. All ranks know the metrics, and come to the same.

    Args:
        rules: Say by which metric, and how.
        best: The best so far, of earlier runs and other trials.
        tells: Whether this rank says on stderr what cannot be compared.
    """

    def __init__(self, rules: Rules, best: float | None, *, tells: bool) -> None:
        self._rules = rules
        self._best = best
        self._tells = tells

    def is_best(self, metrics: dict[str, Any]) -> bool:
        """Return whether there was no better validation, and remember this one if so.

        Raises:
            ConfigError: It lacks the metric that the trial can only be judged by.
        """
        metric = self._metric(metrics)
        sign = 1 if self._rules.smaller_is_better else -1
        if not math.isfinite(metric):
            return False
        if self._best is not None and sign * metric >= sign * self._best:
            return False
        self._best = metric
        return True

    def _metric(self, metrics: dict[str, Any]) -> float:
        """Return what the trial is judged by; NaN, the worst there is, if it is no number."""
        name = self._rules.metric
        if name is None:
            return math.nan
        problems = describe_missing_metric(name, set(metrics))
        if problems and self._rules.needs_metric:
            raise ConfigError(problems)  # the one trial there is can only be judged by it
        metric = to_finite(metrics.get(name))
        if metric is None and self._tells:
            given = metrics.get(name)
            why = problems or [f"searcher.metric: {name} is {given!r}, expected a finite number"]
            sys.stderr.write(f"{why[0]}; this counts as the worst value\n")
        return math.nan if metric is None else metric
