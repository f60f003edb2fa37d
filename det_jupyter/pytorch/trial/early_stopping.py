"""A callback that ends the training when a metric no longer improves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.trial.callback import PyTorchCallback
from det_jupyter.pytorch.trial.info import TrialInfo


class EarlyStopping(PyTorchCallback):
    """Ends the training when a validation metric no longer improves.

    Args:
        context: The trial's.
        metric: Name of a validation metric. NaN is worse than any number.
        patience: Validations in a row without a better value that end the training.
        smaller_is_better: Whether a smaller value is the better one.
        min_delta: By how much a value has to be better to count.
    """

    def __init__(
        self,
        context: TrialInfo,
        metric: str,
        patience: int,
        *,
        smaller_is_better: bool = True,
        min_delta: float = 0.0,
    ) -> None:
        problems = []
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
            problems.append(f"EarlyStopping: got patience {patience!r}, expected at least 1")
        if not min_delta >= 0:
            problems.append(f"EarlyStopping: got min_delta {min_delta!r}, expected at least 0")
        if problems:
            raise ConfigError(problems)
        self._context = context
        self._metric = metric
        self._patience = patience
        self._sign = 1.0 if smaller_is_better else -1.0
        self._min_delta = min_delta
        self._best = math.inf  # of the sign that makes smaller better
        self._stale = 0

    def on_validation_end(self, metrics: Mapping[str, Any]) -> None:
        """Count the validation, and ask to stop if it was one too many."""
        if self._metric not in metrics:
            raise TrialMistake(
                "build_callbacks",
                f"build_callbacks: EarlyStopping waits for {self._metric!r}; "
                f"the validation has {', '.join(metrics) or 'no metrics'}",
            )
        value = self._sign * float(metrics[self._metric])
        if value < self._best - self._min_delta:
            self._best, self._stale = value, 0
        else:
            self._stale += 1
        if self._stale >= self._patience:
            self._context.set_stop_requested(True)

    def state_dict(self) -> dict[str, Any]:
        """Return the best value, signed, and the validations since."""
        return {"best": self._best, "stale": self._stale}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take both back."""
        self._best, self._stale = state_dict["best"], state_dict["stale"]
