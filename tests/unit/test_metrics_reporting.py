"""The reporter: what is journaled at a flush and at a report, and what callbacks are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from det_jupyter.core import Context, DistributedContext, RecordList, TrainContext
from det_jupyter.pytorch import PyTorchCallback
from det_jupyter.pytorch.callbacks import Callbacks
from det_jupyter.pytorch.custom_reducers import Reducers
from det_jupyter.pytorch.loss_watch import LossWatch
from det_jupyter.pytorch.mistakes import TrialMistake
from det_jupyter.pytorch.reporting import Reporter
from det_jupyter.records import BatchMetrics, MetricsReported, Progress, Record
from tests.unit.thread_ranks import ThreadRank, results


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
    reporter.flush(11, 20)
    reporter.add({"loss": 5.0}, 11, 1)
    assert reporter.report(12, 20, callbacks) == {"loss": 2.0}
    assert records_of(core) == [
        BatchMetrics(at=0, first=11, values={"loss": [1.0]}),
        Progress(at=0, steps_completed=11, fraction=0.55),
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
    before.flush(1, 8)
    after = Reporter(core_of(one), average=True, first=1)
    after.restore(before.state())
    after.add({"loss": 3.0}, 1, 1)
    assert after.report(2, 8, Callbacks({})) == {"loss": 2.0}


def test_a_loss_that_is_no_number_is_told_by_its_batch_in_the_whole_training() -> None:
    one = DistributedContext()
    reporter = Reporter(core_of(one), average=True, first=40, watch=LossWatch("stop", one))
    reporter.add({"loss": 1.0}, 40, 1)
    reporter.flush(41, 100)
    reporter.add({"loss": 1.0}, 41, 1)
    reporter.add({"loss": float("-inf")}, 42, 1)
    with pytest.raises(TrialMistake, match=r"batch 42: loss is -inf, .*steps_completed 43\)"):
        reporter.flush(43, 100)
