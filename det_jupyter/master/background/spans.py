"""When the files of trials were written, by which checkpoints without a record are assigned.

The numbers of an experiment and trial are not enough: a database that was lost or replaced had the
same ones in the same folder.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from det_jupyter.master.machine.model.state import MachineState

Span: TypeAlias = tuple[float, float]  # seconds since the epoch

_AFTER_END_S = 3_600.0  # in which the last files of a trial may be written


def spans_of(state: MachineState, experiment_ids: Iterable[int]) -> dict[tuple[int, int], Span]:
    """Return the spans of the trials of experiments, by the numbers of both."""
    return {
        (trial.experiment_id, trial.id): (
            trial.created_at,
            math.inf if trial.ended_at is None else trial.ended_at + _AFTER_END_S,
        )
        for experiment_id in experiment_ids
        for trial in state.trials_of(state.experiment(experiment_id))
    }


def is_written_in(
    spans: Mapping[tuple[int, int], Span], metadata: Mapping[str, Any], stored_at: float
) -> bool:
    """Return whether a checkpoint with this metadata was stored in the span of its trial."""
    number, trial_id = metadata.get("experiment_id"), metadata.get("trial_id")
    if not isinstance(number, int) or not isinstance(trial_id, int):
        return False
    begun_at, ended_at = spans.get((number, trial_id), (math.inf, 0.0))
    return begun_at <= stored_at <= ended_at
