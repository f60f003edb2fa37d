"""Determined's `DetCallback`: that of det_jupyter, with the arguments that it has there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from det_jupyter import core
from det_jupyter.integrations.transformers import DetCallback as _DetCallback


class DetCallback(_DetCallback):
    """Makes a Trainer's training a trial: metrics, progress, checkpoints, pauses, search.

    In a run that goes on it points `args.resume_from_checkpoint` at what was saved: give that to
    `trainer.train`. All ranks have to have the callback.

    Args:
        core_context: The Core API's.
        args: The Trainer's arguments.
        filter_metrics: Report only these; by default all but speeds.
        user_data: More metadata for each checkpoint.
    """

    def __init__(
        self,
        core_context: core.Context,
        args: Any,
        filter_metrics: Iterable[str] | None = None,
        user_data: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(core_context, metadata=user_data)
        self.core_context = core_context
        # The operations distinguish the summary at the end, which is not reported.
        self._chosen = None if filter_metrics is None else {*filter_metrics, "total_flos"}
        args.resume_from_checkpoint = self.resume_from_checkpoint

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        """Report the chosen ones of the metrics that the Trainer logs (called by it)."""
        if self._chosen is not None:
            logs = {name: value for name, value in (logs or {}).items() if name in self._chosen}
        super().on_log(args, state, control, logs)
