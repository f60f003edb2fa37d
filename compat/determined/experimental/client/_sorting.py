"""How trials and checkpoints are sorted, in Determined's words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, TypeVar

T = TypeVar("T")


class OrderBy(Enum):
    """Smallest or largest first."""

    ASCENDING = "ASC"
    ASC = "ASC"
    DESCENDING = "DESC"
    DESC = "DESC"


class CheckpointSortBy(Enum):
    """What checkpoints are sorted by; the name of a metric is possible, too."""

    UUID = "uuid"
    TRIAL_ID = "trial_id"
    BATCH_NUMBER = "steps_completed"
    END_TIME = "created_at"
    STATE = "state"
    SEARCHER_METRIC = "searcher_metric"


class TrialSortBy(Enum):
    """What trials are sorted by."""

    ID = "id"
    START_TIME = "created_at"
    END_TIME = "ended_at"
    STATE = "state"
    BEST_VALIDATION_METRIC = "best_metric"
    LATEST_VALIDATION_METRIC = "latest_metric"
    BATCHES_PROCESSED = "steps_completed"
    RESTARTS = "restarts"


def in_order(
    things: Sequence[T], key_of: Callable[[T], Any], order_by: OrderBy, limit: int | None = None
) -> list[T]:
    """Return the things sorted; those without a value come last."""
    valued = [thing for thing in things if _is_value(key_of(thing))]
    rest = [thing for thing in things if not _is_value(key_of(thing))]
    valued.sort(key=key_of, reverse=order_by is OrderBy.DESCENDING)
    return [*valued, *rest][:limit]


def best_first(smaller_is_better: bool) -> OrderBy:
    """Return the order that has the best value of a metric first."""
    return OrderBy.ASCENDING if smaller_is_better else OrderBy.DESCENDING


def _is_value(key: Any) -> bool:
    return key is not None and not (isinstance(key, float) and math.isnan(key))
