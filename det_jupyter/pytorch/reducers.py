"""Making one number of a metric's values over the batches and ranks of a validation."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import torch


class Reducer(Enum):
    """How a validation metric is reduced. AVG counts every batch alike, whatever its length."""

    AVG = "avg"
    SUM = "sum"
    MAX = "max"
    MIN = "min"


def reduce_batches(reducer: Reducer, values: torch.Tensor) -> float:
    """Return one rank's number: the reduction of its batches' values (at least one)."""
    match reducer:
        case Reducer.AVG:
            return float(values.mean())
        case Reducer.SUM:
            return float(values.sum())
        case Reducer.MAX:
            return float(values.max())
        case Reducer.MIN:
            return float(values.min())


def reduce_ranks(reducer: Reducer, values: Sequence[float], batches: Sequence[int]) -> float:
    """Return the job's number from the ranks' numbers; an average weighs each by its batches.

    Args:
        reducer: The reduction.
        values: Each rank's number, of ranks that had any batches.
        batches: How many batches each of these ranks had.
    """
    numbers = torch.tensor(values, dtype=torch.float64)
    if reducer is Reducer.AVG:
        weights = torch.tensor(batches, dtype=torch.float64)
        return float((numbers * weights).sum() / weights.sum())
    return reduce_batches(reducer, numbers)
