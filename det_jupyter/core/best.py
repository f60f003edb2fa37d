"""The best searcher metric: the experiment's when a run began, or a better one of its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from det_jupyter.records import to_finite

logger = logging.getLogger(__name__)


class BestValidation:
    """The best searcher metric in this process.

    Args:
        metric: Name of the searcher metric.
        smaller_is_better: Whether smaller values of it are.
        value: The experiment's best when this run began; None: there was none.
    """

    def __init__(self, metric: str, smaller_is_better: bool, value: float | None) -> None:
        self.metric = metric
        self.value = value
        self._best = min if smaller_is_better else max
        self._has_warned = False

    def note(self, metrics: Mapping[str, Any]) -> None:
        """Take the metrics of a validation into account."""
        if self.metric not in metrics and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "searcher.metric is %r, but this validation reports %s: it counts neither for the "
                "search nor for which checkpoint is the best",
                self.metric,
                ", ".join(map(repr, metrics)) or "nothing",
            )
        value = to_finite(metrics.get(self.metric))
        if value is not None:
            self.value = value if self.value is None else self._best(self.value, value)
