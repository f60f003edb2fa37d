"""`async_halving`: one bracket of ASHA (bracket.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from det_jupyter.contract.schema.fields import as_whole
from det_jupyter.searcher.halving import HalvingSection
from det_jupyter.searcher.planning import BracketPlan
from det_jupyter.searcher.searcher_section import Rungs


class AsyncHalvingSearcher(HalvingSection):
    """One bracket of ASHA."""

    name: Literal["async_halving"]
    num_rungs: Rungs
    """At how many lengths trials are compared, the last included."""

    def plan_brackets(self) -> list[BracketPlan]:
        """Return the bracket."""
        num_rungs, trials = [self.num_rungs], [self.max_trials]
        (at_work,) = self.concurrency(self.max_concurrent_trials, num_rungs, trials)
        return [BracketPlan(self.num_rungs, self.max_trials, at_work)]

    def concurrency(
        self, limit: int, num_rungs: Sequence[int], max_trials: Sequence[int]
    ) -> list[int]:
        """Return the concurrent trials; `limit` 0: as many as one trial at the top rung needs."""
        if limit > 0:
            return [min(limit, max_trials[0])]
        suitable = self.divisor ** (num_rungs[0] - 1)
        return [int(max(min(suitable, max_trials[0]), 1))]

    @classmethod
    def most_rungs_of(cls, searcher: Mapping[str, Any], time: int, divisor: float) -> int | None:
        """Return the rungs of the bracket; None if `num_rungs` is invalid."""
        found = as_whole(searcher.get("num_rungs"))
        return found if found is not None and found >= 1 else None
