"""Rungs: their lengths, and which trials are among the best."""

from __future__ import annotations

import json
import math
from bisect import insort
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.searcher.rung_lengths import rung_lengths
from det_jupyter.searcher.rungs import Effect, Rung


@pytest.mark.parametrize(
    ("full", "divisor", "num_rungs", "lengths"),
    [
        (9000, 3, 3, [1000, 3000, 9000]),
        (12, 3, 3, [1, 4, 12]),
        (576000, 3, 3, [64000, 192000, 576000]),
        (9, 3, 3, [1, 3, 9]),
        (10, 2, 4, [1, 2, 5, 10]),
        (900, 3, 3, [100, 300, 900]),
        (9, 3, 1, [9]),
        (16, 4, 2, [4, 16]),
        (937, 4, 3, [58, 234, 937]),
        (1, 4, 1, [1]),
        (3, 4, 5, [1, 3]),  # 3/256, 3/64, 3/16 and 3/4 are 1, and that is one rung
        (3, 1.2, 3, [2, 3]),
        (5, 1e300, 4, [1, 5]),
    ],
)
def test_rungs_have_these_lengths(
    full: int, divisor: float, num_rungs: int, lengths: list[int]
) -> None:
    assert rung_lengths(full, divisor, num_rungs) == lengths


@dataclass
class PlainRung:
    """The same with one sorted list, as the rules are written."""

    divisor: float
    is_stopping: bool
    results: list[tuple[float, int, int]] = field(default_factory=list)
    count: int = 0

    def add(self, trial: int, metric: float) -> tuple[bool, int | None]:
        before = len(self.results)
        self.count += 1
        insort(self.results, (metric, -self.count if self.is_stopping else self.count, trial))
        place = [result[2] for result in self.results].index(trial)
        old, new = int(before / self.divisor), int((before + 1) / self.divisor)
        if self.is_stopping:
            return place < max(new, 1), None
        if place < new:
            return True, trial
        return False, self.results[old][2] if new != old else None

    def remove(self, trial: int) -> None:
        self.results = [result for result in self.results if result[2] != trial]


metrics = st.one_of(st.integers(0, 6).map(float), st.just(math.inf))
divisors = st.sampled_from([1.01, 1.5, 2.0, 2.5, 3.0, 4.0, 10.0])


@given(st.data(), divisors, st.booleans())
def test_the_best_are_those_of_a_sorted_list(
    data: st.DataObject, divisor: float, is_stopping: bool
) -> None:
    plain = PlainRung(divisor, is_stopping)
    rung = Rung(1, divisor, is_stopping=is_stopping)
    for trial in range(data.draw(st.integers(1, 40))):
        metric = data.draw(metrics)
        is_best, candidate = plain.add(trial, metric)
        effect = rung.add(trial, metric)
        assert effect.is_best == is_best
        if not is_stopping:
            assert effect.candidate == candidate
        if data.draw(st.integers(0, 5)) == 0:
            gone = data.draw(st.sampled_from([result[2] for result in plain.results]))
            plain.remove(gone)
            rung.remove(gone)
        if data.draw(st.booleans()):
            snapshot = json.loads(json.dumps(rung.snapshot(), allow_nan=False))
            rung = Rung(1, divisor, is_stopping=is_stopping)
            rung.restore(snapshot)
        assert len(rung) == len(plain.results)


def test_results_equal_to_the_last_of_the_best_lose_to_the_older_when_promoting() -> None:
    rung = Rung(1, 2, is_stopping=False)
    assert rung.add(0, 0.5) == Effect(False, None)
    assert rung.add(1, 0.5) == Effect(False, 0)  # the older one wins, and there is room for one
    assert rung.add(2, 0.5) == Effect(False, None)
    assert rung.add(3, 0.4) == Effect(True, 3)


def test_results_equal_to_the_last_of_the_best_beat_the_older_when_stopping() -> None:
    rung = Rung(1, 3, is_stopping=True)
    assert rung.add(0, 0.5).is_best
    assert rung.add(1, 0.5).is_best
    assert not rung.add(2, 0.6).is_best
    assert rung.add(3, 0.4).is_best


def test_a_rung_knows_the_metrics_of_its_trials() -> None:
    rung = Rung(1, 3, is_stopping=True)
    rung.add(7, 0.25)
    rung.add(8, math.inf)
    assert (rung.metric_of(7), rung.metric_of(8)) == (0.25, math.inf)
    assert rung.snapshot()["metrics"] == [0.25, None]
