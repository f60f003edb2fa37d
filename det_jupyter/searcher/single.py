"""`single`: one trial, trained to its full length."""

from __future__ import annotations

from typing import Any

from det_jupyter.searcher.actions import Action, Create, ExitReason, Shutdown


class Single:
    """One trial. There is nothing to decide, so there is nothing to remember."""

    def start(self) -> list[Action]:
        """Ask for the one trial."""
        return [Create(0)]

    def on_validation(self, index: int, steps_completed: int, metric: float) -> list[Action]:
        """Let the trial go on, however it does."""
        return []

    def on_trial_exited(self, index: int, reason: ExitReason) -> list[Action]:
        """The search ends with its trial; another try would have the same hyperparameters."""
        return [Shutdown()]

    def snapshot(self) -> dict[str, Any]:
        """Return nothing: there is no state."""
        return {}
