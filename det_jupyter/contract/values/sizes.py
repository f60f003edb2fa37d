"""How many slots a trial may have: one number, or a range for an elastic trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

MAX_SLOTS = 1_000_000  # more than any pool has; sums of them are exact
GROW_AFTER_S = 10.0  # so long slots are free before a running trial gets them


class Sizes(NamedTuple):
    """The fewest and the most slots of a trial."""

    least: int
    most: int

    @property
    def is_elastic(self) -> bool:
        """Whether the number may change while the trial trains."""
        return self.most > self.least

    def for_batch(self, hparams: Mapping[str, Any]) -> Sizes:
        """Return the sizes that can work: each rank needs a record of every global batch.

        >>> Sizes(1, 8).for_batch({"global_batch_size": 6})
        Sizes(least=1, most=6)
        """
        size = hparams.get("global_batch_size")
        if isinstance(size, bool) or not isinstance(size, int):
            return self
        return Sizes(self.least, max(self.least, min(self.most, size)))

    def __str__(self) -> str:
        """Return the numbers: `2`, `1 to 8`, or `1 or more`."""
        if not self.is_elastic:
            return str(self.least)
        return f"{self.least} {'or more' if self.most == MAX_SLOTS else f'to {self.most}'}"


def sizes_of(config: Mapping[str, Any]) -> Sizes:
    """Return the sizes of an experiment's trials.

    Args:
        config: A valid configuration.

    >>> sizes_of({"resources": {"slots_per_trial": {"min": 1, "max": 4}}})
    Sizes(least=1, most=4)
    >>> str(sizes_of({"resources": {"slots_per_trial": 2}, "searcher": {"elastic": True}}))
    '2 or more'
    """
    resources, searcher = config.get("resources"), config.get("searcher")
    given = resources.get("slots_per_trial", 1) if isinstance(resources, Mapping) else 1
    least, most = (given["min"], given["max"]) if isinstance(given, Mapping) else (given, given)
    is_free = isinstance(searcher, Mapping) and searcher.get("elastic") and least
    return Sizes(int(least), MAX_SLOTS if is_free else int(most))
