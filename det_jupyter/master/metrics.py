"""The searcher's metric: which value is better. NaN is the worst there is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any


def best_of(values: Iterable[float | None], config: dict[str, Any]) -> float | None:
    """Return the best of these values by the configuration's `smaller_is_better`."""
    numbers = [v for v in values if v is not None and not math.isnan(v)]
    if not numbers:
        return None
    return min(numbers) if config["searcher"]["smaller_is_better"] else max(numbers)
