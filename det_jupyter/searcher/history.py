"""The trials of a search as a sampler sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialHistory:
    """What became of one trial so far.

    Args:
        index: Its place within the experiment, from 0.
        hparams: Its hyperparameters, whole.
        state: "pruned" was ended early by the search; "failed" tells nothing of its
            hyperparameters.
        value: The searcher metric as it was last reported.
        reports: That metric at every validation: (batches trained, metric), ascending.
        created_at: When its hyperparameters were chosen.
        ended_at: When it was over; None: it is not, or nobody knows.
    """

    index: int
    hparams: dict[str, Any]
    state: Literal["running", "complete", "pruned", "failed"]
    value: float | None = None
    reports: Sequence[tuple[int, float]] = field(default=())
    created_at: float = 0.0
    ended_at: float | None = None
