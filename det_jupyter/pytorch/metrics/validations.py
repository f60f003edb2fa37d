"""The validations of a run: evaluate, report, and compare with the best before."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from det_jupyter.contract.values.json_numbers import to_finite
from det_jupyter.core import Context
from det_jupyter.core.timings.rank_timings import NO_TIMINGS, AnyTimings
from det_jupyter.errors import ConfigError, Problem
from det_jupyter.pytorch.data import BatchStream
from det_jupyter.pytorch.metrics.evaluation import check_validation, open_stream, validate
from det_jupyter.pytorch.rules import RunRules
from det_jupyter.pytorch.trial.callback_runner import Callbacks
from det_jupyter.pytorch.trial.context import PyTorchTrialContext
from det_jupyter.pytorch.trial.definition import PyTorchTrial, describe_missing_metric


class Validations:
    """Validates a trial. Collective: all ranks must call every method, and get the same metrics.

    Args:
        trial, context: The trial and its context.
        core: This rank's journal and collectives.
        rules: Contain the metric by which validations are compared, and its direction.
        callbacks: The trial's callbacks.
        best: The best metric so far, in earlier runs and other trials.
        timings: Journaled also within a validation that takes long.
    """

    def __init__(
        self,
        trial: PyTorchTrial,
        context: PyTorchTrialContext,
        core: Context,
        rules: RunRules,
        callbacks: Callbacks,
        best: float | None,
        timings: AnyTimings = NO_TIMINGS,
    ) -> None:
        self._journal_timings = partial(timings.journal_if_due, core.sink)
        self._trial = trial
        self._context = context
        self._core = core
        self._rules = rules
        self._callbacks = callbacks
        self._best = best
        self._loader: Any = None
        self._stream: BatchStream | None = None

    def open(self, loader: Any) -> None:
        """Check and store the loader of the validation data."""
        check_validation(self._trial, loader)
        self._loader = loader

    def close(self) -> None:
        """End the workers of the validation data."""
        if self._stream is not None:
            self._stream.close()

    def run(self, steps: int, trained: Mapping[str, float]) -> bool:
        """Validate and report; return whether the policy requires a checkpoint. Collective.

        Args:
            steps: Batches trained.
            trained: The amount of training in each unit.

        Raises:
            ConfigError: The searcher metric is missing, and the rules need it.
        """
        if self._stream is None:
            self._stream = open_stream(self._trial, self._context, self._loader)
        metrics = validate(
            self._trial,
            self._context,
            self._loader,
            self._stream,
            self._callbacks,
            limit=self._rules.validation_batches,
            after_batch=self._journal_timings,
        )
        if self._core.distributed.is_chief:
            self._core.train.report_validation_metrics(steps, metrics, trained)
        self._context.tensorboard.log_validation(steps, metrics)
        is_best = self._is_best(metrics)
        policy = self._rules.checkpoint_policy
        return policy == "all" or (policy == "best" and is_best)

    def _is_best(self, metrics: dict[str, Any]) -> bool:
        """Return whether this validation is the best so far; if it is, store its metric."""
        if self._rules.metric is None:
            return True  # nothing to compare: the policy "best" saves after each validation
        metric = self._metric(metrics, self._rules.metric)
        sign = 1 if self._rules.smaller_is_better else -1
        if not math.isfinite(metric):
            return False
        if self._best is not None and sign * metric >= sign * self._best:
            return False
        self._best = metric
        return True

    def _metric(self, metrics: dict[str, Any], name: str) -> float:
        """Return the searcher metric; NaN, the worst value, if it is not a finite number."""
        problems = describe_missing_metric(name, set(metrics))
        if problems and self._rules.needs_metric:
            raise ConfigError(problems)
        metric = to_finite(metrics.get(name))
        if metric is None and self._core.distributed.is_chief:
            given = metrics.get(name)
            not_finite = Problem(
                "searcher.metric", f"{name} is {given!r}, expected a finite number"
            )
            why = problems[0] if problems else not_finite
            sys.stderr.write(f"{why}; this counts as the worst value\n")
        return math.nan if metric is None else metric
