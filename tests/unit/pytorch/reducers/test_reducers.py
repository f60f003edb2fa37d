"""Reducers: one number of many batches and ranks, and metrics of a trial's own."""

from __future__ import annotations

import math
import random
from collections import Counter, namedtuple
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from det_jupyter.core import DistributedContext
from det_jupyter.core.peer_errors import PeerFailed
from det_jupyter.errors import ConfigError, InvalidHP
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.reducers.builtin_reducers import (
    Reducer,
    reduce_batches,
    reduce_ranks,
    reducers_by_name,
    weighted_mean,
)
from det_jupyter.pytorch.reducers.custom_reducers import Reducers
from det_jupyter.pytorch.reducers.metric_reducer import FunctionReducer, MetricReducer
from tests.problems import said
from tests.unit.pytorch.thread_ranks import ThreadRank, results, run_ranks

NAN, INF = math.nan, math.inf
AVG, SUM, MAX, MIN = Reducer.AVG, Reducer.SUM, Reducer.MAX, Reducer.MIN


def reduced(reducer: Reducer, *ranks: Sequence[tuple[float, int]]) -> float:
    """Reduce what the ranks' batches come to, of which each has a value and its records."""
    parts = [
        reduce_batches(reducer, [value for value, _ in rank], [count for _, count in rank])
        for rank in ranks
    ]
    return reduce_ranks(reducer, parts)


# The four reducers


@pytest.mark.parametrize(("reducer", "expected"), [(AVG, 2.5), (SUM, 7.5), (MAX, 4.5), (MIN, 0.5)])
def test_each_reducer_over_two_ranks(reducer: Reducer, expected: float) -> None:
    # Records 0..5 in batches of 2, ranks with two batches and one.
    assert reduced(reducer, [(0.5, 2), (4.5, 2)], [(2.5, 2)]) == expected


def test_an_average_weighs_a_short_batch_by_its_records() -> None:
    assert reduced(AVG, [(1.0, 4), (1.0, 4)], [(1.0, 4), (6.0, 1)]) == 18 / 13


@pytest.mark.parametrize(
    ("reducer", "values", "expected"),
    [
        (AVG, [1.0, NAN], NAN),
        (AVG, [1.0, INF], INF),
        (AVG, [INF, -INF], NAN),
        (SUM, [1e308, 1e308], INF),
        (SUM, [INF, -INF], NAN),
        (SUM, [1e16, 1.0, -1e16], 1.0),
        (MAX, [NAN, 1.0], NAN),
        (MAX, [1.0, NAN], NAN),
        (MIN, [1.0, -INF], -INF),
    ],
)
def test_values_that_are_not_finite_are_kept_as_such(
    reducer: Reducer, values: list[float], expected: float
) -> None:
    together = reduced(reducer, [(value, 1) for value in values])
    assert together == expected or (math.isnan(together) and math.isnan(expected))


def test_batches_that_count_nothing_bring_nothing_in() -> None:
    assert weighted_mean([NAN, 3.0], [0, 2]) == 3.0
    assert math.isnan(weighted_mean([3.0], [0]))
    assert math.isnan(weighted_mean([], []))


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.floats(-1e3, 1e3, width=32), st.integers(1, 9)), min_size=1),
    st.sampled_from(list(Reducer)),
    st.data(),
)
def test_the_number_of_ranks_changes_the_last_bits_at_most(
    batches: list[tuple[float, int]], reducer: Reducer, data: st.DataObject
) -> None:
    cuts = data.draw(
        st.sets(st.integers(1, len(batches) - 1)) if len(batches) > 1 else st.just(set())
    )
    bounds = [0, *sorted(cuts), len(batches)]
    ranks = [batches[start:end] for start, end in pairwise(bounds)]
    alone, together = reduced(reducer, batches), reduced(reducer, *ranks)
    assert together == pytest.approx(alone, rel=1e-15, abs=1e-12)
    order = data.draw(st.permutations(batches))
    assert reduced(reducer, order) == alone  # whatever the order, the same bits


# evaluation_reducer


def test_one_reducer_is_that_of_every_metric() -> None:
    assert reducers_by_name(SUM, ["a", "b"]) == {"a": SUM, "b": SUM}
    assert reducers_by_name({"b": MAX, "a": MIN}, ["a", "b"]) == {"a": MIN, "b": MAX}


def test_reducers_that_do_not_fit_are_told_all_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        reducers_by_name({"los": AVG, "error": "max"}, ["accuracy", "error", "loss"])
    assert said(caught.value.problems) == [
        "evaluation_reducer: lacks accuracy and loss, which evaluate_batch returns",
        "evaluation_reducer: has los, which evaluate_batch does not return; "
        "it returns accuracy, error and loss",
        "evaluation_reducer: got 'max' for 'error', expected a Reducer, such as Reducer.AVG",
    ]
    with pytest.raises(ConfigError, match="got 'avg', expected a Reducer, or a dict of them"):
        reducers_by_name("avg", ["loss"])


# A trial's own


class Moments(MetricReducer):
    """Count and sum, reduced exactly."""

    def reset(self) -> None:
        self.seen: list[float] = []

    def update(self, value: float) -> None:
        self.seen.append(value)

    def per_slot_reduce(self) -> tuple[int, float]:
        return len(self.seen), sum(self.seen)

    def cross_slot_reduce(self, per_slot_metrics: list[tuple[int, float]]) -> Any:
        counts, sums = zip(*per_slot_metrics, strict=True)
        return {"mean": sum(sums) / sum(counts), "counts": list(counts)}


class Remembering(Moments):
    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seen = list(state_dict["seen"])


def test_a_reducer_meets_all_ranks_once() -> None:
    def run(rank: ThreadRank) -> Any:
        reducers = Reducers()
        moments = reducers.wrap(Moments())
        listed = reducers.wrap(list, "listed")
        for value in range(3 - rank.rank):
            moments.update(value)
            listed.update((rank.rank, value))
        before = rank.collectives
        metrics = reducers.reduce(rank, "training")
        return metrics, rank.collectives - before

    expected = {
        "mean": 4 / 6,
        "counts": [3, 2, 1],
        "listed": [[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [0, 2]],
    }
    assert [metrics for metrics, _ in results(3, run)] == [expected] * 3


def test_one_rank_reduces_as_many_do_and_none_is_nothing() -> None:
    one, reducers = DistributedContext(), Reducers()
    assert reducers.reduce(one, "training") == {}
    moments = reducers.wrap(Moments())
    moments.update(2.0)
    assert reducers.reduce(one, "training") == {"mean": 2.0, "counts": [1]}
    reducers.reset("training")
    moments.update(5.0)
    assert reducers.reduce(one, "validation") == {"mean": 5.0, "counts": [1]}


def test_the_chief_decides_what_ranks_might_disagree_on() -> None:
    def run(rank: ThreadRank) -> Any:
        reducers = Reducers()
        reducers.wrap(lambda values: [random.random() for _ in values], "noise").update(0)
        return reducers.reduce(rank, "training")

    first, second = results(2, run)
    assert first == second


def test_a_reducer_is_reported_in_the_phases_it_is_for() -> None:
    one, reducers = DistributedContext(), Reducers()
    reducers.wrap(len, "train", for_validation=False).update(1)
    reducers.wrap(len, "both").update(1)
    reducers.wrap(len, "val", for_training=False).update(1)
    assert reducers.reduce(one, "training") == {"train": 1, "both": 1}
    assert reducers.reduce(one, "validation") == {"both": 1, "val": 1}
    assert reducers.any("training")
    reducers.reset("validation")
    assert reducers.reduce(one, "training") == {"train": 1}


def test_a_function_without_values_reports_nothing() -> None:
    one, reducers = DistributedContext(), Reducers()
    reducers.wrap(max, "largest")
    assert reducers.reduce(one, "training") == {}


def test_a_rank_that_had_no_records_is_left_out() -> None:
    def run(rank: ThreadRank) -> Any:
        reducers = Reducers()
        reducers.wrap(Moments()).update(1.0)
        return reducers.reduce(rank, "training", took_part=rank.rank != 1)

    assert results(3, run) == [{"mean": 1.0, "counts": [1, 1]}] * 3


Pair = namedtuple("Pair", ["mine", "other"])


def test_values_are_copies_on_the_cpu_without_gradients() -> None:
    one, reducers = DistributedContext(), Reducers()
    seen: list[Any] = []

    def see(values: list[Any]) -> int:
        seen.extend(values)
        return len(values)

    kept = reducers.wrap(see, "m")
    tensor, array = torch.ones(2, requires_grad=True) * 1, numpy.ones(2)
    kept.update({"a": [tensor, (array, "text")], "b": Pair(tensor, 3)})
    with torch.no_grad():
        tensor += 1
    array += 1
    assert reducers.reduce(one, "training") == {"m": 1}
    (value,) = seen
    assert value["a"][0].tolist() == [1, 1]
    assert not value["a"][0].requires_grad
    assert value["a"][1][0].tolist() == [1, 1]
    assert type(value["b"]).__name__ == "Pair"
    assert value["b"].mine.tolist() == [1, 1]


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(1, 3), st.integers(1, 7))
def test_values_come_in_the_order_of_the_data(records: int, size: int, batch_size: int) -> None:
    starts = range(0, records, batch_size)
    batches = [range(start, min(start + batch_size, records)) for start in starts]

    def run(rank: ThreadRank) -> Any:
        reducers = Reducers()
        collected = reducers.wrap(lambda values: torch.cat(values), "order")
        for batch in batches:
            lengths = [len(batch) // size + (r < len(batch) % size) for r in range(size)]
            bounds = [0, *accumulate(lengths)]
            mine = batch[bounds[rank.rank] : bounds[rank.rank + 1]]
            if mine:
                collected.update(torch.tensor(mine))
        return reducers.reduce(rank, "validation")["order"]

    assert results(size, run) == [list(range(records))] * size


def test_f1_per_class_is_that_of_all_data() -> None:
    from sklearn.metrics import f1_score  # two seconds, which other tests can do without

    generator = torch.Generator().manual_seed(1)
    truth = torch.randint(3, (50,), generator=generator)
    guess = torch.where(torch.rand(50, generator=generator) < 0.6, truth, (truth + 1) % 3)

    def f1(values: list[Any]) -> dict[str, Any]:
        labels, guesses = (torch.cat(column) for column in zip(*values, strict=True))
        per_class = f1_score(labels, guesses, average=None)
        return {"f1": per_class, "macro_f1": per_class.mean()}

    def run(rank: ThreadRank) -> Any:
        reducers = Reducers()
        reducer = reducers.wrap(f1)
        for start in range(rank.rank * 7, 50, 21):
            reducer.update((truth[start : start + 7], guess[start : start + 7]))
        return reducers.reduce(rank, "validation")

    expected = f1_score(truth, guess, average=None)
    for metrics in results(3, run):
        assert metrics["f1"] == pytest.approx(expected.tolist(), abs=1e-15)
        assert metrics["macro_f1"] == pytest.approx(expected.mean(), abs=1e-15)


# What is refused


@pytest.mark.parametrize(
    ("reducer", "name", "message"),
    [
        (Moments, None, r"got the class Moments; create one: Moments\(\)"),
        (3, None, "got a int, expected a MetricReducer, or a function of the list of values"),
        (len, "", "got name '', expected a string, or None for a dict of metrics"),
        (len, "taken", "there is a reducer 'taken' already; give this one another name"),
    ],
)
def test_what_is_no_reducer_is_refused(reducer: Any, name: Any, message: str) -> None:
    reducers = Reducers()
    reducers.wrap(max, "taken")
    with pytest.raises(TrialMistake, match=f"^wrap_reducer: {message}$"):
        reducers.wrap(reducer, name)


def test_a_reducer_is_wrapped_once_and_for_something() -> None:
    reducers = Reducers()
    moments = reducers.wrap(Moments(), "m", for_training=False)
    with pytest.raises(TrialMistake, match="reducer 'm' is wrapped already"):
        reducers.wrap(moments, "other")
    with pytest.raises(TrialMistake, match="neither for training nor for validation"):
        reducers.wrap(Moments(), for_training=False, for_validation=False)
    reducers.wrap(len, "m", for_validation=False)  # never meets the other one


@pytest.mark.parametrize(
    ("function", "name", "message"),
    [
        (lambda values: 3, None, r"<lambda> returned a int, expected a dict of metrics; or give"),
        (
            lambda values: {"a": 1},
            "m",
            "reducer 'm' returned a dict, expected one metric, because",
        ),
        (lambda values: {1, 2}, "m", "reducer 'm': metric 'm': got set, expected a number"),
        (
            lambda values: {"loss": 1},
            None,
            "returns the metric 'loss', which the trial returns as",
        ),
        (lambda values: 1, "loss", "'loss' returns the metric 'loss', which the trial returns as"),
        (lambda values: {"len": 1}, None, "'len', which another reducer returns as well"),
        (max, "m", "reducer 'm' .training.: the function raised TypeError: '>' not supported"),
    ],
)
def test_results_that_cannot_be_reported_are_refused(
    function: Any, name: Any, message: str
) -> None:
    reducers = Reducers()
    reducers.wrap(len, "len").update(1)
    wrapped = reducers.wrap(function, name)
    wrapped.update(1)
    wrapped.update("a")
    with pytest.raises(TrialMistake, match=message):
        reducers.reduce(DistributedContext(), "training", taken=["loss"])


class Failing(Moments):
    def __init__(self, error: Exception, rank: int) -> None:
        self.error, self.rank = error, rank

    def per_slot_reduce(self) -> tuple[int, float]:
        if self.rank == 1:
            raise self.error
        return 1, 1.0


def test_a_reducer_that_fails_on_one_rank_fails_on_all() -> None:
    def run(rank: ThreadRank) -> None:
        reducers = Reducers()
        reducers.wrap(Failing(ZeroDivisionError("no data"), rank.rank))
        reducers.reduce(rank, "validation")

    zeroth, first, second = run_ranks(3, run)
    assert isinstance(first, TrialMistake)
    assert isinstance(first.__cause__, ZeroDivisionError)
    told = "reducer Failing (validation): per_slot_reduce raised ZeroDivisionError: no data"
    assert str(first) == f"wrap_reducer: {told}"
    for other in (zeroth, second):
        assert isinstance(other, PeerFailed)
        assert str(other) == f"rank 1 failed: TrialMistake: wrap_reducer: {told}"


def test_a_reducer_may_find_the_hyperparameters_invalid() -> None:
    reducers = Reducers()
    reducers.wrap(Failing(InvalidHP("too wide"), 1))
    with pytest.raises(InvalidHP, match="too wide"):
        reducers.reduce(DistributedContext(), "training")


def test_a_result_that_cannot_be_sent_is_told_by_its_reducer() -> None:
    reducers = Reducers()
    reducers.wrap(list, "m").update(i for i in range(3))
    with pytest.raises(
        TrialMistake, match=r"reducer 'm' .training.: the function raised TypeError"
    ):
        reducers.reduce(DistributedContext(), "training")


def test_ranks_wrap_the_same_reducers() -> None:
    def run(rank: ThreadRank) -> None:
        reducers = Reducers()
        for name in ["a", "b"][: 2 - rank.rank]:
            reducers.wrap(len, name)
        reducers.reduce(rank, "training")

    chief, other = run_ranks(2, run)
    assert isinstance(chief, TrialMistake)
    assert "the ranks have 2, 1 reducers; all ranks have to wrap the same ones" in str(chief)
    assert isinstance(other, PeerFailed)


# Stand-ins and pauses


def test_what_is_seen_of_a_stand_in_counts_for_nothing() -> None:
    class Counting(Moments):
        def reset(self) -> None:
            super().reset()
            self.counter: Counter[str] = Counter()

        def update(self, value: float) -> None:
            super().update(value)
            self.counter["updates"] += 1

        def cross_slot_reduce(self, per_slot_metrics: Any) -> Any:
            return {**super().cross_slot_reduce(per_slot_metrics), **self.counter}

    reducers = Reducers()
    counting, listed = reducers.wrap(Counting()), reducers.wrap(list, "listed")
    for value in (1.0, 2.0):
        counting.update(value)
        listed.update(value)
        with reducers.ignored():
            counting.update(100.0)
            listed.update(100.0)
    assert reducers.reduce(DistributedContext(), "training") == {
        "mean": 1.5,
        "counts": [2],
        "updates": 2,
        "listed": [1.0, 2.0],
    }


def window(size: int, values_by_rank: Sequence[Sequence[int]], states: Any = None) -> Any:
    """Give reducers these values, after what was saved, and return metrics and states."""

    def run(rank: ThreadRank) -> Any:
        reducers = Reducers()
        listed = reducers.wrap(list, "listed")
        moments = reducers.wrap(Remembering())
        reducers.wrap(Moments(), "forgetful", for_training=False)
        if states is not None:
            reducers.restore(states, rank.rank, rank.size)
        for value in values_by_rank[rank.rank]:
            listed.update(value)
            moments.update(value)
        state = reducers.state()
        return reducers.reduce(rank, "training"), state

    found = results(size, run)
    return found[0][0], [state for _, state in found]


def test_a_window_is_not_lost_at_a_pause() -> None:
    _, states = window(2, [[0, 2], [1, 3]])
    assert states[0]["states"][2] is None
    metrics, _ = window(2, [[4], [5]], states)
    assert metrics == {"listed": [0, 1, 2, 3, 4, 5], "mean": 2.5, "counts": [3, 3]}


def test_values_survive_a_change_of_the_number_of_ranks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, states = window(2, [[0, 2], [1, 3]])
    metrics, states = window(3, [[4], [5], [6]], states)
    assert metrics == {"listed": [0, 1, 2, 3, 4, 5, 6], "mean": 5.0, "counts": [1, 1, 1]}
    assert (
        "reducer Remembering: its state is of 2 ranks, and now there are 3; what it had seen"
        in (capsys.readouterr().err)
    )
    metrics, _ = window(1, [[7]], states)
    assert metrics["listed"] == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_function_reducer_keeps_its_values_as_plain_state() -> None:
    reducer = FunctionReducer(len)
    reducer.update(torch.ones(1))
    state = reducer.state_dict()
    other = FunctionReducer(len)
    other.load_state_dict(state)
    other.update(2)
    assert other.cross_slot_reduce([other.per_slot_reduce()]) == 2
    assert len(state["values"]) == 1


def test_whether_a_rank_took_part_counts_until_the_next_report() -> None:
    reducers = Reducers()
    reducers.took_part = True
    for phase, expected in (("validation", True), ("training", False)):
        reducers.reset(phase)  # type: ignore[arg-type]  # a Phase
        assert reducers.state()["took_part"] is expected
