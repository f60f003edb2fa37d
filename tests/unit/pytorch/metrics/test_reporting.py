"""The reporter: what is journaled at a flush and at a report, and what callbacks are given."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from det_jupyter.contract.run.journal import BatchMetrics, MetricsReported, Progress, Record
from det_jupyter.core import Context, DistributedContext, RecordList, TrainContext
from det_jupyter.pytorch import MetricReducer, PyTorchCallback
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.metrics.reporting import Reporter
from det_jupyter.pytorch.metrics.training_metrics import LossWatch
from det_jupyter.pytorch.reducers.custom_reducers import Reducers
from det_jupyter.pytorch.trial.callback_runner import Callbacks
from tests.unit.pytorch.thread_ranks import ThreadRank, results


class Listening(PyTorchCallback):
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_training_workload_end(
        self, avg_metrics: Mapping[str, Any], batch_metrics: Sequence[Mapping[str, Any]]
    ) -> None:
        self.heard.append((dict(avg_metrics), list(batch_metrics)))


def core_of(distributed: DistributedContext) -> Context:
    sink = RecordList()
    return Context(  # the parts that a reporter has no use for are left out
        distributed=distributed,
        train=TrainContext(sink, distributed),
        checkpoint=None,  # type: ignore[arg-type]
        preempt=None,  # type: ignore[arg-type]
        searcher=None,  # type: ignore[arg-type]
        sink=sink,
    )


def records_of(core: Context) -> list[Record]:
    assert isinstance(core.sink, RecordList)
    return [replace(record, at=0) for record in core.sink.records]


def test_batches_are_journaled_at_a_flush_and_averages_at_a_report() -> None:
    core, listening = core_of(DistributedContext()), Listening()
    reporter = Reporter(core, average=True, first=10)
    callbacks = Callbacks({"listening": listening})
    reporter.add({"loss": 1.0}, 10, 3)
    reporter.flush(11)
    reporter.add({"loss": 5.0}, 11, 1)
    assert reporter.report(12, 20, callbacks) == {"loss": 2.0}
    assert records_of(core) == [
        BatchMetrics(at=0, first=11, values={"loss": [1.0]}),
        BatchMetrics(at=0, first=12, values={"loss": [5.0]}),
        Progress(at=0, steps_completed=12, fraction=0.6),
        MetricsReported(at=0, group="training", steps_completed=12, metrics={"loss": 2.0}),
    ]
    assert listening.heard == [({"loss": 2.0}, [{"loss": 1.0}, {"loss": 5.0}])]


def test_all_ranks_are_given_the_averages_and_the_chief_journals_them() -> None:
    def run(rank: ThreadRank) -> Any:
        core, listening, reducers = core_of(rank), Listening(), Reducers()
        reporter = Reporter(core, average=True, first=0, reducers=reducers)
        listed = reducers.wrap(list, "ranks", for_validation=False)
        listed.update(rank.rank)
        reporter.add({"loss": 4.0 * rank.rank}, 0, 2 if rank.rank else 6)
        averages = reporter.report(1, 8, Callbacks({"listening": listening}))
        assert listening.heard == [(averages, [{"loss": 1.0}])]
        reporter.add({"loss": 1.0}, 1, 1)
        assert reporter.report(2, 8, Callbacks({})) == {"loss": 1.0}  # the reducer begins anew
        return averages, [type(record).__name__ for record in records_of(core)]

    expected = {"loss": 1.0, "ranks": [0, 1]}
    kinds = ["BatchMetrics", "Progress", "MetricsReported"] * 2
    assert results(2, run) == [(expected, kinds), (expected, [])]


def test_a_report_of_no_batches_is_none() -> None:
    core = core_of(DistributedContext())
    reporter = Reporter(core, average=True, first=0, reducers=Reducers())
    assert reporter.report(0, 8, Callbacks({"listening": Listening()})) == {}
    assert not any(isinstance(record, MetricsReported) for record in records_of(core))


def test_a_window_and_its_reducers_go_on_after_a_pause() -> None:
    one = DistributedContext()
    before = Reporter(core_of(one), average=True, first=0)
    before.add({"loss": 1.0}, 0, 1)
    before.flush(1)
    after = Reporter(core_of(one), average=True, first=1)
    after.restore(before.state())
    after.add({"loss": 3.0}, 1, 1)
    assert after.report(2, 8, Callbacks({})) == {"loss": 2.0}


class Mean(MetricReducer):
    """Cannot be reduced on a rank that has seen nothing."""

    def reset(self) -> None:
        self.seen: list[float] = []

    def per_slot_reduce(self) -> float:
        return sum(self.seen) / len(self.seen)

    def cross_slot_reduce(self, per_slot_metrics: list[float]) -> float:
        return sum(per_slot_metrics) / len(per_slot_metrics)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seen = state_dict["seen"]


def test_a_rank_that_had_stand_ins_only_is_not_asked_after_a_pause_either() -> None:
    def part(rank: ThreadRank, first: int, states: Any = None) -> tuple[Reporter, Reducers]:
        reducers = Reducers()
        mean = reducers.wrap(Mean(), "mean")
        reporter = Reporter(core_of(rank), average=True, first=first, reducers=reducers)
        if states is not None:
            reporter.restore(states[0])
            reducers.restore(states[1], rank.rank, rank.size)
        records = 0 if rank.rank == 2 else 1
        reporter.add({"loss": 1.0}, first, records)
        mean.seen += [float(rank.rank + first)] * records
        reporter.flush(first + 1)
        return reporter, reducers

    def run(rank: ThreadRank) -> Any:
        reporter, reducers = part(rank, 0)
        states = rank.broadcast(reporter.state()), rank.allgather(reducers.state())
        resumed, _ = part(rank, 1, states)
        return [which.report(2, 8, Callbacks({})) for which in (resumed, reporter)]

    means = [{"loss": 1.0, "mean": 1.0}, {"loss": 1.0, "mean": 0.5}]
    assert results(3, run) == [means] * 3


def test_what_ranks_have_seen_before_a_pause_counts_though_none_comes_after_it() -> None:
    def run(rank: ThreadRank) -> Any:
        reducers = Reducers()
        reporter = Reporter(core_of(rank), average=True, first=0, reducers=reducers)
        reducers.wrap(list, "seen").update(rank.rank)
        reporter.add({"loss": 1.0}, 0, 1)
        reporter.flush(1)
        states = rank.broadcast(reporter.state()), rank.allgather(reducers.state())
        reducers = Reducers()
        reducers.wrap(list, "seen")
        resumed = Reporter(core_of(rank), average=True, first=1, reducers=reducers)
        resumed.restore(states[0])
        reducers.restore(states[1], rank.rank, rank.size)
        resumed.add({"loss": 4.0}, 1, 1 - rank.rank)
        return resumed.report(2, 8, Callbacks({}))

    assert results(2, run) == [{"loss": 2.0, "seen": [0, 1]}] * 2


def test_a_loss_that_is_no_number_is_told_by_its_batch_in_the_whole_training() -> None:
    one = DistributedContext()
    reporter = Reporter(
        core_of(one), average=True, first=40, watch=LossWatch("stop", one, RecordList())
    )
    reporter.add({"loss": 1.0}, 40, 1)
    reporter.flush(41)
    reporter.add({"loss": 1.0}, 41, 1)
    reporter.add({"loss": float("-inf")}, 42, 1)
    with pytest.raises(TrialMistake, match="loss became infinite at batch 42 on rank 0"):
        reporter.flush(43)


def lasting(steps: int, fraction: float) -> Progress:
    return Progress(at=0, steps_completed=steps, fraction=fraction)


def test_the_last_batches_of_a_training_that_failed_are_journaled_once() -> None:
    core = core_of(DistributedContext())
    reporter = Reporter(core, average=True, first=10)
    reporter.add({"loss": 1.0}, 10, 1)
    reporter.flush(11)
    reporter.add({"loss": 2.0}, 11, 1)
    reporter.add({"loss": 3.0}, 12, 1)
    reporter.report_last(20, error := ValueError("no"))
    flushed = BatchMetrics(at=0, first=11, values={"loss": [1.0]})
    last = BatchMetrics(at=0, first=12, values={"loss": [2.0, 3.0]})
    assert records_of(core) == [flushed, last, lasting(13, 0.65)]
    reporter.report_last(20, error)  # nothing is new
    assert len(records_of(core)) == 3
    reporter.add({"loss": 4.0}, 13, 1)  # what comes after it has the next numbers
    reporter.report_last(20, error)
    assert records_of(core)[3:] == [
        BatchMetrics(at=0, first=14, values={"loss": [4.0]}),
        lasting(14, 0.7),
    ]
    assert not hasattr(error, "__notes__")


def test_a_flush_after_the_last_report_goes_on_behind_it() -> None:
    core = core_of(DistributedContext())
    reporter = Reporter(core, average=False, first=0)
    reporter.add({"loss": 1.0}, 0, 1)
    reporter.report_last(8, ValueError("no"))
    reporter.add({"loss": 2.0}, 1, 1)
    reporter.flush(2)
    batches = [record for record in records_of(core) if isinstance(record, BatchMetrics)]
    assert [(each.first, each.values["loss"]) for each in batches] == [(1, [1.0]), (2, [2.0])]


def test_values_that_would_be_averaged_become_a_note_on_the_error() -> None:
    def run(rank: ThreadRank) -> Any:
        core = core_of(rank)
        reporter = Reporter(core, average=True, first=40)
        for batch_idx in range(40, 47):
            reporter.add({"loss": batch_idx + rank.rank}, batch_idx, 1)
        error = ValueError("no")
        reporter.report_last(100, error)
        return error.__notes__, records_of(core)

    shown = [f"batch {index}: loss {{}}" for index in range(42, 47)]
    for rank, (notes, records) in enumerate(results(2, run)):
        losses = "; ".join(shown).format(*range(42 + rank, 47 + rank))
        assert notes == [f"Of rank {rank} alone, and not on the curves: {losses}."]
        assert records == [lasting(47, 0.47)]


def test_metrics_that_are_not_averaged_are_the_chiefs_also_at_last() -> None:
    def run(rank: ThreadRank) -> Any:
        core = core_of(rank)
        reporter = Reporter(core, average=False, first=0)
        reporter.add({"loss": 5.0}, 0, 1)
        reporter.report_last(1, error := ValueError("no"))
        return hasattr(error, "__notes__"), records_of(core)

    batch = BatchMetrics(at=0, first=1, values={"loss": [5.0]})
    assert results(2, run) == [
        (False, [batch, lasting(1, 1.0)]),
        (False, [lasting(1, 1.0)]),
    ]


@pytest.mark.parametrize("average", [True, False])
def test_a_rank_that_is_left_alone_journals_what_all_would_have(*, average: bool) -> None:
    rows = torch.tensor([[[4.0, 1.0], [6.0, 2.0]], [[0.0, 3.0], [2.0, 2.0]]], dtype=torch.float64)

    def run(rank: ThreadRank) -> Any:
        core = core_of(rank)
        together = Reporter(core, average=average, first=0)
        for batch in (0, 1):
            value, records = rows[rank.rank, :, batch].tolist()
            together.add({"loss": value}, batch, records)
        together.flush(2)
        alone_core = core_of(rank)
        alone = Reporter(alone_core, average=average, first=0)
        for batch in (0, 1):
            value, records = rows[rank.rank, :, batch].tolist()
            alone.add({"loss": value}, batch, records)
        asked = []

        def rows_of(*args: int) -> torch.Tensor:
            asked.append(args)
            return rows.clone()

        alone.flush_alone(2, rows_of)
        alone.flush_alone(2, rows_of)  # nothing is left
        assert asked == [(1, 2, 1)]
        assert str(alone.state()) == str(together.state()) or (rank.rank and not average)
        return records_of(core), records_of(alone_core)

    (chief, chief_alone), (_, other_alone) = results(2, run)
    assert chief == chief_alone == other_alone


def test_batches_of_a_window_that_is_trained_again_are_in_no_report() -> None:
    def run(rank: ThreadRank) -> Any:
        reporter = Reporter(core_of(rank), average=True, first=0)
        for batch in range(5):
            reporter.add({"loss": float(batch)}, batch, 2)
            if batch in (1, 3):
                reporter.flush(batch + 1)
        reporter.flush_alone(3, lambda *_: torch.empty(0))
        return reporter.state()["values"].tolist(), len(reporter.state()["records"])

    assert results(2, run) == [([[0.0, 1.0, 2.0]], 3)] * 2


@pytest.mark.parametrize("average", [True, False])
def test_where_a_ranks_metrics_are_not_known_those_of_others_stand_for_them(
    *, average: bool
) -> None:
    rows = torch.tensor([[[4.0, 9.0], [6.0, 2.0]], [[0.0, 3.0], [2.0, 2.0]]], dtype=torch.float64)
    rows[0, :, 1] = torch.nan  # the chief was killed before it had noted its second batch

    def run(rank: ThreadRank) -> Any:
        core = core_of(rank)
        reporter = Reporter(core, average=average, first=4)
        if rank.rank == 1:
            for batch in (0, 1):
                value, records = rows[1, :, batch].tolist()
                reporter.add({"loss": value}, 4 + batch, records)
            reporter.add({"loss": 99.0}, 6, 2)  # the interrupted batch
            reporter.flush_alone(6, lambda *_: rows.clone())
        return records_of(core)

    first = 3.0 if average else 4.0
    expected = [BatchMetrics(at=0, first=5, values={"loss": [first, 3.0]})]
    assert results(2, run)[1] == expected


def test_metrics_that_a_failed_flush_took_are_those_that_ranks_have_noted() -> None:
    rows = torch.tensor([[[4.0], [6.0]], [[0.0], [2.0]]], dtype=torch.float64)

    def run(rank: ThreadRank) -> Any:
        core = core_of(rank)
        reporter = Reporter(core, average=True, first=4)
        reporter.add({"loss": 1.0}, 4, 2)
        reporter._metrics.take_own()
        reporter.flush_alone(5, lambda *_: rows.clone())
        return records_of(core)

    expected = [BatchMetrics(at=0, first=5, values={"loss": [3.0]})]
    assert results(2, run) == [expected] * 2


def test_a_step_with_a_loss_that_stops_the_training_is_not_saved() -> None:
    rows = torch.tensor([[[math.nan], [6.0]], [[0.0], [2.0]]], dtype=torch.float64)

    def run(rank: ThreadRank) -> Any:
        core = core_of(rank)
        watch = LossWatch("stop", core.distributed, core.sink, is_fp16=False)
        reporter = Reporter(core, average=True, first=4, watch=watch)
        reporter.add({"loss": rows[rank.rank, 0, 0].item()}, 4, 2)
        with pytest.raises(TrialMistake, match="loss became NaN at batch 4 on rank 0"):
            reporter.flush_alone(5, lambda *_: rows.clone())

    results(2, run)
