"""How much a batch counts in metrics, where the trial has its own idea of a record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from det_jupyter.pytorch.data import Share
from det_jupyter.pytorch.mistakes import TrialMistake
from det_jupyter.pytorch.trial.definition import PyTorchTrial, overrides


def own_lengths(
    trial: PyTorchTrial, phase: Literal["training", "validation"]
) -> Callable[[Any, Share, int], int] | None:
    """Return what tells the records of a batch; None if the trial leaves that to the loader.

    The function takes a batch as it was loaded, this rank's share of the global batch, and the
    batch's index. A stand-in, of which the share has no records, has none. It raises a
    TrialMistake if `get_batch_length` returns no number of records.
    """
    if not overrides(type(trial), "get_batch_length"):
        return None

    def length(batch: Any, share: Share, batch_idx: int) -> int:
        if not share.records:
            return 0
        records = trial.get_batch_length(batch)
        if isinstance(records, bool) or not isinstance(records, int) or records < 0:
            raise TrialMistake(
                "get_batch_length",
                f"get_batch_length returned {records!r} for {phase} batch {batch_idx}, "
                "expected a number of records",
            )
        return records

    return length
