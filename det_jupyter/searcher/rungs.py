"""Rungs: amounts of training at which trials are compared.

rung_lengths.py computes their lengths. Rungs that have the same length after rounding are one
rung: a second comparison of the same trials by the same metric would only reduce their number. So
a bracket may have fewer rungs than configured; its lengths always increase.

A rung keeps its n results in two heaps, so that adding one costs O(log n):

    best   the int(n / divisor) best results, the worst of them on top
    rest   all others, the best of them on top

The rest of the order is not needed. Of two equal results the better one is the older (promotion)
or the newer (stopping). A result that is removed, because its trial's
hyperparameters were invalid, stays in its heap until it comes to the top.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf, isinf
from typing import Any

from det_jupyter.contract.messages import RungView

Entry = tuple[float, int, int]  # metric, order among equals, trial


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a new result on a rung."""

    is_best: bool  # the result is among the best 1/divisor
    # The trial that the result brings among the best: its own, or the best of the rest if there is
    # room for one more; None: no trial.
    candidate: int | None


class Rung:
    """The results at one amount of training.

    Args:
        divisor: The best 1/divisor of the results continue.
        is_stopping: Newer results win ties, and the first is always among the best.
    """

    def __init__(self, length: int, divisor: float, *, is_stopping: bool) -> None:
        self.length = length
        self.num_training = 0  # trials that train to this rung
        self.num_promoted = 0
        self.entries: dict[int, Entry] = {}  # by trial, in the order of arrival
        self._divisor = divisor
        self._is_stopping = is_stopping
        self._num_ever = 0
        self._best: list[Entry] = []  # all three numbers negated
        self._rest: list[Entry] = []
        self._num_best = 0  # number of results in `_best`, without removed ones

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, trial: int, metric: float) -> Effect:
        """Record a result. A trial has at most one in each rung."""
        self._num_ever += 1
        entry = (metric, -self._num_ever if self._is_stopping else self._num_ever, trial)
        self.entries[trial] = entry
        worst = self._worst_of_best()
        num_before = self._num_best
        if worst is not None and entry < worst:
            self._push_best(entry)
        else:
            heappush(self._rest, entry)
        self._balance()
        worst = self._worst_of_best()
        is_best = worst is not None and entry <= worst
        if is_best:
            return Effect(True, trial)
        has_grown = self._num_best > num_before and worst is not None
        return Effect(False, worst[2] if has_grown and worst is not None else None)

    def remove(self, trial: int) -> None:
        """Remove a trial's result."""
        worst = self._worst_of_best()
        entry = self.entries.pop(trial)
        if worst is not None and entry <= worst:
            self._num_best -= 1
        self._balance()

    def metric_of(self, trial: int) -> float:
        """Return a trial's metric at this rung."""
        return self.entries[trial][0]

    def _num_best_due(self) -> int:
        due = int(len(self.entries) / self._divisor)
        return min(max(due, 1), len(self.entries)) if self._is_stopping else due

    def _balance(self) -> None:
        due = self._num_best_due()
        while self._num_best > due:
            worst = self._worst_of_best()
            assert worst is not None
            heappop(self._best)
            self._num_best -= 1
            heappush(self._rest, worst)
        while self._num_best < due:
            entry = heappop(self._rest)
            if entry[2] in self.entries:
                self._push_best(entry)

    def _push_best(self, entry: Entry) -> None:
        heappush(self._best, _negated(entry))
        self._num_best += 1

    def _worst_of_best(self) -> Entry | None:
        while self._best:
            entry = _negated(self._best[0])
            if entry[2] in self.entries:
                return entry
            heappop(self._best)
        return None

    def view(self, unit: str) -> RungView:
        """Return the rung's length and counts."""
        return RungView(
            length={unit: self.length},
            num_results=len(self.entries),
            num_promoted=self.num_promoted,
        )

    def snapshot(self) -> dict[str, Any]:
        """Return the rung as JSON-ready data; infinity is None there."""
        return {
            "length": self.length,
            "num_training": self.num_training,
            "num_promoted": self.num_promoted,
            "trials": list(self.entries),
            "metrics": [None if isinf(entry[0]) else entry[0] for entry in self.entries.values()],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Restore what `snapshot` returned."""
        self.num_training = snapshot["num_training"]
        self.num_promoted = snapshot["num_promoted"]
        self._num_ever = len(snapshot["trials"])
        sign = -1 if self._is_stopping else 1
        self.entries = {
            trial: (inf if metric is None else metric, sign * order, trial)
            for order, (trial, metric) in enumerate(
                zip(snapshot["trials"], snapshot["metrics"], strict=True), 1
            )
        }
        ranked = sorted(self.entries.values())
        self._num_best = self._num_best_due()
        self._best = [_negated(entry) for entry in ranked[: self._num_best]]
        self._rest = ranked[self._num_best :]
        heapify(self._best)


def _negated(entry: Entry) -> Entry:
    metric, order, trial = entry
    return -metric, -order, -trial
