"""Training metrics: what is taken in, what is refused, and exact averages by records."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from det_jupyter.contract.run.journal import Notice
from det_jupyter.core import DistributedContext
from det_jupyter.core.argument_checks import to_json_value
from det_jupyter.core.journal import RecordList
from det_jupyter.core.train import TrainContext
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.metrics.series import MetricSeries, as_json_metrics, as_metrics
from det_jupyter.pytorch.metrics.training_metrics import LossWatch, TrainingMetrics
from tests.unit.pytorch.thread_ranks import ThreadRank, results, run_ranks

NAN, INF = math.nan, math.inf


# What is taken in


def test_values_of_all_kinds_become_numbers() -> None:
    series = MetricSeries("train_batch")
    running = torch.zeros(())
    for batch_idx in range(2):
        running += 1
        metrics = {
            "tensor": torch.tensor(2.5, requires_grad=True) * 2,
            "running": running,
            "number": batch_idx,
            "flag": True,
            "vector": torch.tensor([1, 2, 6]),
            "half": torch.tensor([0.5], dtype=torch.bfloat16),
            "numpy": numpy.float32(0.5),
            "array": numpy.array([1.0, 2.0]),
            "infinity": -INF,
        }
        series.add(metrics, batch_idx, 4)
    window = series.take()
    assert dict(zip(window.names, window.values_NB.tolist(), strict=True)) == {
        "array": [1.5, 1.5],
        "flag": [1.0, 1.0],
        "half": [0.5, 0.5],
        "infinity": [-INF, -INF],
        "number": [0.0, 1.0],
        "numpy": [0.5, 0.5],
        "running": [1.0, 2.0],  # the tensor was changed in place after it was reported
        "tensor": [5.0, 5.0],
        "vector": [3.0, 3.0],
    }
    assert window.records_B.tolist() == [4, 4]
    assert len(series) == 0


def test_values_off_the_cpu_are_not_read_until_they_are_taken() -> None:
    series = MetricSeries("train_batch")
    for batch_idx in range(2):  # what is on the meta device has no values: to read one is an error
        scalar, vector = torch.empty((), device="meta"), torch.empty(3, device="meta")
        series.add({"scalar": scalar, "vector": vector, "number": 1}, batch_idx, 1)
    with pytest.raises(NotImplementedError):
        series.take()


def test_a_metric_may_be_a_number_in_one_batch_and_a_tensor_in_the_next() -> None:
    series = MetricSeries("train_batch")
    values = [0.5, torch.tensor(1.5), torch.tensor([2, 3]), numpy.float64(4.0)]
    for batch_idx, value in enumerate(values):
        series.add({"m": value}, batch_idx, 1)
    assert series.take().values_NB.tolist() == [[0.5, 1.5, 2.5, 4.0]]


def test_the_mean_of_nothing_is_not_a_number_and_no_warning() -> None:
    series = MetricSeries("train_batch")
    series.add({"array": numpy.zeros(0), "tensor": torch.zeros(0)}, 0, 1)
    assert series.take().values_NB.isnan().all()


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"loss": 1.0, "extra": 2.0}, "lacks error and adds extra; every batch has to return "),
        ({}, "lacks error, loss; every batch has to return the same metrics, here error, loss"),
        ({"loss": "low", "error": 1.0}, "metric 'loss' is a str, expected a number or a tensor"),
        ({"loss": [1.0], "error": 1.0}, "metric 'loss' is a list, .*context.wrap_reducer"),
        ({"loss": None, "error": 1.0}, "metric 'loss' is a NoneType"),
        ({"loss": torch.ones(2, dtype=torch.cfloat), "error": 1.0}, "metric 'loss' is a Tensor"),
        ({"loss": numpy.array(["a"]), "error": 1.0}, "metric 'loss' is a ndarray"),
    ],
)
def test_what_cannot_be_averaged_is_refused_with_rank_batch_and_metric(
    metrics: dict[str, Any], message: str
) -> None:
    series = MetricSeries("train_batch", rank=3)
    series.add({"loss": 1.0, "error": 1.0}, 0, 1)
    series.take()
    with pytest.raises(TrialMistake, match=f"^train_batch: rank 3, batch 7: {message}"):
        series.add(metrics, 7, 1)


def test_a_complex_loss_is_refused_when_it_is_read() -> None:
    series = MetricSeries("train_batch", rank=3)
    series.add({"loss": torch.ones((), dtype=torch.cfloat)}, 0, 1)
    with pytest.raises(TrialMistake, match=r"^train_batch: rank 3: .*complex"):
        series.take()


@pytest.mark.parametrize("kind", [1.0, torch.ones(())])
def test_a_whole_number_beyond_the_largest_float_is_refused_with_its_metric(kind: object) -> None:
    series = MetricSeries("train_batch", rank=3)
    series.add({"loss": kind}, 0, 1)
    series.add({"loss": 10**400}, 1, 1)
    with pytest.raises(TrialMistake, match=r"^train_batch: rank 3: metric 'loss': int too large"):
        series.take()
    assert len(series) == 0  # it is told once


def test_names_are_strings_and_stay_what_they_were_even_if_there_are_none() -> None:
    with pytest.raises(TrialMistake, match="rank 0, batch 2: got the metric name 3"):
        MetricSeries("train_batch").add({3: 1.0}, 2, 1)  # type: ignore[dict-item]  # as users do
    series = MetricSeries("evaluate_batch")
    series.add({}, 0, 2)
    assert series.take().values_NB.shape == (0, 1)
    with pytest.raises(TrialMistake, match=r"batch 1: adds loss; .* here none"):
        series.add({"loss": 1.0}, 1, 1)


def test_a_bare_tensor_is_the_loss_and_nothing_is_an_error() -> None:
    loss = torch.ones(())
    assert as_metrics("train_batch", loss) == {"loss": loss}
    with pytest.raises(
        TrialMistake, match=r"^train_batch returned None for batch 4 on rank 1, expected a dict"
    ):
        as_metrics("train_batch", None, 4, 1)
    with pytest.raises(
        TrialMistake, match=r"^evaluate_batch returned a Tensor for batch 0 on rank"
    ):
        as_metrics("evaluate_batch", loss, 0)
    with pytest.raises(TrialMistake, match=r"^evaluate_full_dataset returned a list, expected a"):
        as_metrics("evaluate_full_dataset", [])


# Metrics of any JSON type


def test_whole_metrics_keep_their_types() -> None:
    metrics = {
        "text": "fine",
        "flag": True,
        "nothing": None,
        "count": 3,
        "infinite": INF,
        "scalar": torch.tensor(2),
        "per_class": numpy.array([0.5, 1.0]),
        "confusion": torch.tensor([[1, 2], [3, 4]]),
        "nested": {"a": [1, (2, numpy.float32(0.5))], 3: numpy.bool_(False)},
    }
    assert as_json_metrics("evaluate_full_dataset", metrics) == {
        "text": "fine",
        "flag": True,
        "nothing": None,
        "count": 3,
        "infinite": INF,
        "scalar": 2,
        "per_class": [0.5, 1.0],
        "confusion": [[1, 2], [3, 4]],
        "nested": {"a": [1, [2, 0.5]], "3": False},
    }


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": [1, {2}]}, r"metric 'm'\['a'\]\[1\]: got set"),
        (Path("x"), "metric 'm': got .*Path"),
        (torch.ones(2, dtype=torch.complex64), r"metric 'm'\[0\]: got complex"),
    ],
)
def test_what_json_has_no_word_for_is_refused_with_its_place(value: Any, where: str) -> None:
    with pytest.raises(TrialMistake, match=f"^evaluate_full_dataset: {where}, expected a number"):
        as_json_metrics("evaluate_full_dataset", {"m": value})


def test_reports_take_what_json_has_and_nothing_else() -> None:
    sink = RecordList()
    train = TrainContext(sink, DistributedContext())
    train.report_validation_metrics(1, {"none": None, "nan": NAN, "list": numpy.eye(1)})
    (record,) = sink.records
    assert str(record.metrics) == "{'none': None, 'nan': nan, 'list': [[1.0]]}"  # type: ignore[union-attr]  # it is MetricsReported
    with pytest.raises(
        ValueError, match="metric 'm': got object, expected a number, or what JSON"
    ):
        train.report_validation_metrics(1, {"m": object()})
    assert to_json_value("x", numpy.float64(0.1)) == 0.1
    assert type(to_json_value("x", numpy.float64(0.1))) is float


# Averages


def test_reports_weigh_batches_by_their_records() -> None:
    metrics = TrainingMetrics(DistributedContext(), average=True)
    for batch_idx, (loss, records) in enumerate([(1.0, 4), (2.0, 4), (7.0, 2)]):
        metrics.add({"loss": loss}, batch_idx, records)
        if batch_idx == 1:
            assert metrics.flush() == {"loss": [1.0, 2.0]}
    assert metrics.flush() == {"loss": [7.0]}
    averages, values = metrics.report()
    assert averages == {"loss": 2.6}  # (4 + 8 + 14) / 10
    assert values.tolist() == [[1.0, 2.0, 7.0]]
    metrics.add({"loss": 5.0}, 3, 1)
    metrics.flush()
    assert metrics.report()[0] == {"loss": 5.0}


def test_ranks_weigh_by_their_records_and_a_stand_in_not_at_all() -> None:
    def train(rank: ThreadRank) -> Any:
        metrics = TrainingMetrics(rank, average=True)
        metrics.add({"loss": [1.0, 2.0, 6.0][rank.rank]}, 0, [2, 1, 1][rank.rank])
        metrics.add({"loss": [4.0, NAN, INF][rank.rank]}, 1, [1, 0, 0][rank.rank])
        first = rank.collectives
        return metrics.flush(), metrics.report()[0], rank.collectives - first

    expected = ({"loss": [2.5, 4.0]}, {"loss": 2.8}, 2)  # (2 + 2 + 6 + 4) / 5; names, values
    assert results(3, train) == [expected] * 3


def test_a_flush_is_one_collective_once_the_names_are_agreed() -> None:
    def train(rank: ThreadRank) -> list[int]:
        metrics = TrainingMetrics(rank, average=True)
        counts = []
        for batch_idx in range(3):
            metrics.add({"a": 1.0, "b": 2.0}, batch_idx, 1)
            before = rank.collectives
            metrics.flush()
            rank.allgather(None)  # so that the next flush is not counted yet
            counts.append(rank.collectives - before - 1)
        return counts

    assert results(2, train)[0] == [2, 1, 1]


def test_without_averaging_nothing_is_exchanged() -> None:
    def train(rank: ThreadRank) -> Any:
        metrics = TrainingMetrics(rank, average=False)
        metrics.add({"rank": rank.rank}, 0, 1)
        metrics.flush()
        return metrics.report()[0], rank.collectives

    assert results(2, train) == [({"rank": 0.0}, 0), ({"rank": 1.0}, 0)]


def test_ranks_with_different_metrics_all_hear_of_it() -> None:
    def train(rank: ThreadRank) -> None:
        metrics = TrainingMetrics(rank, average=True)
        metrics.add({f"loss{rank.rank}": 1.0}, 0, 1)
        metrics.flush()

    for outcome in run_ranks(2, train):
        assert isinstance(outcome, TrialMistake)
        assert "rank 1 returns loss1, rank 0 loss0; all ranks have to return" in str(outcome)


SHARES = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.floats(-100, 100, width=32)), min_size=3, max_size=3),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60)
@given(SHARES, st.data())
def test_any_split_of_the_records_gives_their_mean_and_flushes_change_no_bit(
    batches: list[list[tuple[int, float]]], data: st.DataObject
) -> None:
    flushes = data.draw(st.sets(st.integers(0, len(batches) - 1)))
    weighed = [(count, value) for batch in batches for count, value in batch if count]

    def train(rank: ThreadRank, flushes: set[int]) -> str:
        metrics = TrainingMetrics(rank, average=True)
        for batch_idx, batch in enumerate(batches):
            records, value = batch[rank.rank]
            metrics.add({"m": value}, batch_idx, records)
            if batch_idx in flushes:
                metrics.flush()
        metrics.flush()
        return metrics.report()[0]["m"].hex()

    often = results(3, lambda rank: train(rank, flushes))
    once = results(3, lambda rank: train(rank, set()))
    assert len(set(often + once)) == 1
    got = float.fromhex(once[0])
    if any(not any(count for count, _ in batch) for batch in batches):
        return  # a batch without records, which the data never has
    mean = math.fsum(c * v for c, v in weighed) / sum(c for c, _ in weighed)
    assert got == pytest.approx(mean, rel=1e-12, abs=1e-12)


def test_a_window_goes_on_after_a_pause() -> None:
    before = TrainingMetrics(DistributedContext(), average=True)
    before.add({"loss": 1.0}, 0, 3)
    before.flush()
    after = TrainingMetrics(DistributedContext(), average=True)
    after.restore(before.state())
    after.add({"loss": 5.0}, 1, 1)
    after.flush(first_step=2)
    averages, values = after.report()
    assert averages == {"loss": 2.0}
    assert values.tolist() == [[1.0, 5.0]]


def test_a_window_of_other_metrics_is_left_out() -> None:
    before = TrainingMetrics(DistributedContext(), average=True)
    before.add({"old": 1.0}, 0, 3)
    before.flush()
    after = TrainingMetrics(DistributedContext(), average=True)
    after.restore(before.state())
    after.add({"loss": 5.0}, 1, 1)
    after.flush()
    assert after.report()[0] == {"loss": 5.0}


# Losses that are no numbers


def watched(
    policy: Any, *losses: float, name: str = "loss", journal: RecordList | None = None
) -> TrainingMetrics:
    one = DistributedContext()
    watch = LossWatch(policy, one, journal or RecordList())
    metrics = TrainingMetrics(one, average=True, watch=watch)
    for batch_idx, loss in enumerate(losses):
        metrics.add({"accuracy": NAN, name: loss}, batch_idx, 1)
    return metrics


def test_the_first_loss_that_is_not_finite_is_told_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    journal = RecordList()
    metrics = watched("warn", 1.0, 2.0, INF, NAN, journal=journal)
    metrics.flush(first_step=11)
    metrics.check_losses()
    metrics.add({"accuracy": 1.0, "loss": NAN}, 4, 1)
    metrics.flush(first_step=15)
    metrics.check_losses()
    told = capsys.readouterr().err
    assert told == (
        "Loss became infinite at batch 12 on rank 0. Training continues. "
        "Try a lower learning rate, or clip_grads.\n"
    )
    (notice,) = journal.records
    assert isinstance(notice, Notice)
    assert notice.is_alarm
    assert math.isnan(metrics.report()[0]["loss"])


def test_the_advice_about_a_bad_loss_names_fp16_where_it_is_used() -> None:
    journal = RecordList()
    watch = LossWatch("warn", DistributedContext(), journal, is_fp16=True)
    watch.check(["loss"], torch.tensor([[[NAN]]]), torch.ones(1, 1), [0], first_step=1)
    [notice] = journal.records
    assert isinstance(notice, Notice)
    assert notice.text.endswith("Try a lower learning rate, clip_grads, or bf16 instead of fp16.")


@pytest.mark.parametrize("name", ["loss", "d_loss", "Loss"])
def test_on_request_such_a_loss_ends_the_trial(name: str) -> None:
    metrics = watched("stop", 1.0, NAN, name=name)
    assert metrics.flush()[name][0] == 1.0  # what is told of these batches comes first
    with pytest.raises(
        TrialMistake, match=f"{name} became NaN at batch 1 on rank 0; on_nan_loss is stop"
    ):
        metrics.check_losses()


def test_other_metrics_may_be_anything(capsys: pytest.CaptureFixture[str]) -> None:
    for metrics in (watched("stop", 1.0, 2.0), watched("stop", NAN, name="lossless")):
        metrics.flush()
        metrics.check_losses()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("average", [True, False])
def test_what_a_stand_in_comes_to_ends_no_trial(average: bool) -> None:
    def train(rank: ThreadRank) -> None:
        metrics = TrainingMetrics(
            rank, average=average, watch=LossWatch("stop", rank, RecordList())
        )
        is_stand_in = rank.rank == 1
        metrics.add({"loss": NAN if is_stand_in else 1.0}, 0, 0 if is_stand_in else 2)
        metrics.flush(first_step=1)
        metrics.check_losses()

    assert run_ranks(2, train) == [None, None]


@pytest.mark.parametrize("average", [True, False])
def test_a_rank_whose_loss_ends_the_trial_ends_it_everywhere(average: bool) -> None:
    def train(rank: ThreadRank) -> None:
        metrics = TrainingMetrics(
            rank, average=average, watch=LossWatch("stop", rank, RecordList())
        )
        metrics.add({"loss": 1.0}, 0, 1)
        metrics.add({"loss": NAN if rank.rank == 1 else 1.0}, 1, 1)
        metrics.flush(first_step=1)
        metrics.check_losses()

    for outcome in run_ranks(3, train):
        assert isinstance(outcome, TrialMistake)
        assert "loss became NaN at batch 1 on rank 1" in str(outcome)


@pytest.mark.parametrize("average", [True, False])
def test_one_rank_tells_of_another_ones_loss(
    capsys: pytest.CaptureFixture[str], average: bool
) -> None:
    def train(rank: ThreadRank) -> None:
        metrics = TrainingMetrics(
            rank, average=average, watch=LossWatch("warn", rank, RecordList())
        )
        metrics.add({"loss": NAN if rank.rank == 1 else 1.0}, 0, 1)
        metrics.flush(first_step=1)
        metrics.check_losses()

    results(2, train)
    told = capsys.readouterr().err
    assert told.startswith("Loss became NaN at batch 0 on rank 1. ")
    assert told.count("\n") == 1
