"""Operations of a search, as a script goes through them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from det_jupyter import core
from det_jupyter.contract.run.control_page import ControlPage, create_page
from det_jupyter.contract.run.journal import MetricsReported, Progress, Record, TargetReached
from det_jupyter.contract.values.lengths import Length
from det_jupyter.core.journal import RecordList
from tests.unit.pytorch.thread_ranks import ThreadRank, results


class Search:
    """A searcher context at a first rung of 3 batches, of 9 in all."""

    def __init__(self, folder: Path, distributed: core.DistributedContext) -> None:
        path = folder / "control"
        if not path.exists():
            create_page(path)
        self.page = ControlPage(path)
        self.records: list[Record] = []
        sink = RecordList()
        self.records = sink.records
        self.train = core.TrainContext(sink, distributed)
        self.preempt = core.PreemptContext(self.page, distributed)
        self.context = core.SearcherContext(
            Length("batches", 3),
            is_last=False,
            page=self.page if distributed.is_chief else None,
            distributed=distributed,
            sink=sink,
            train=self.train,
            metric="loss",
            full_length=Length("batches", 9),
            on_leave=self.preempt.acknowledge_preemption_signal,
        )

    def kinds(self) -> list[str]:
        return [record.kind for record in self.records]


@pytest.fixture
def search(tmp_path: Path) -> Search:
    return Search(tmp_path, core.DistributedContext())


def test_a_promoted_trial_trains_on_and_leaves_at_its_last_length(search: Search) -> None:
    lengths = []
    for op in search.context.operations():
        lengths.append(op.length)
        op.report_progress(op.length)
        search.train.report_validation_metrics(op.length, {"loss": 0.5})
        op.report_completed(0.5)
        search.page.extend(9, is_last=True)
    assert lengths == [3, 9]
    assert not search.preempt.is_acknowledged
    # The end of the script says that the last one is reached.
    assert search.kinds() == ["progress", "metrics", "target_reached", "progress", "metrics"]
    progress, reached = search.records[0], search.records[2]
    assert isinstance(progress, Progress)
    assert (progress.fraction, progress.steps_completed) == (3 / 9, 3)
    assert isinstance(reached, TargetReached)
    assert (reached.steps_completed, reached.target) == (3, Length("batches", 3))


def test_a_trial_that_rests_leaves_and_goes_on_later(search: Search) -> None:
    for op in search.context.operations():
        op.report_completed(torch.tensor(0.25))
        search.page.raise_signal("preempt")
    validation = search.records[0]
    assert isinstance(validation, MetricsReported)
    assert (validation.group, validation.steps_completed) == ("validation", 3)
    assert validation.metrics == {"loss": 0.25}
    assert search.kinds() == ["metrics", "target_reached"]
    assert search.preempt.is_acknowledged


def test_a_request_to_leave_ends_the_operations_before_their_length(search: Search) -> None:
    for _ in search.context.operations(auto_ack=False):
        search.page.raise_signal("preempt")
    assert search.records == []
    assert not search.preempt.is_acknowledged


def test_a_script_that_ends_in_the_middle_of_an_operation_is_warned(
    search: Search, caplog: pytest.LogCaptureFixture
) -> None:
    search.context.warn_if_left()  # it never asked
    for op in search.context.operations():
        op.report_completed(0.5)
        break
    search.context.warn_if_left()
    assert caplog.messages == []
    for _ in search.context.operations():
        break
    search.context.warn_if_left()
    assert caplog.messages == [
        "searcher.operations: the script ends before it has called op.report_completed for "
        "3 batches; the trial counts as completed"
    ]
    search.page.raise_signal("preempt")
    search.context.warn_if_left()
    assert len(caplog.messages) == 1


def test_mistakes_with_operations_are_told(search: Search) -> None:
    operations = search.context.operations()
    op = next(operations)
    for length in (-1, 4, "2", None):
        with pytest.raises(
            ValueError, match=r"expected a number from 0 to 3, which is .* batches"
        ):
            op.report_progress(length)  # type: ignore[arg-type]  # what a user may give
    with pytest.raises(ValueError, match=r"got None, expected a number: .* 'loss'"):
        op.report_completed(None)
    with pytest.raises(RuntimeError, match="of length 3 was not completed"):
        next(operations)
    operations = search.context.operations()
    op = next(operations)
    op.report_completed({"loss": 1})
    with pytest.raises(RuntimeError, match="was reported completed already"):
        op.report_completed(1)
    with pytest.raises(ValueError, match=r"expected one of SearcherMode\.WorkersAskChief"):
        search.context.operations("chief")  # type: ignore[arg-type]


def test_all_ranks_go_through_the_chiefs_operations(tmp_path: Path) -> None:
    Search(tmp_path, core.DistributedContext())

    def body(rank: ThreadRank) -> tuple[list[int], bool, list[str]]:
        search = Search(tmp_path, rank)
        lengths = []
        for op in search.context.operations():
            lengths.append(op.length)
            if rank.is_chief:
                op.report_completed(1.0)
                if op.length == 3:
                    search.page.extend(6, is_last=False)
                else:
                    search.page.raise_signal("preempt")
            else:
                with pytest.raises(RuntimeError, match="only the chief"):
                    op.report_completed(1.0)
        return lengths, search.preempt.is_acknowledged, search.kinds()

    chief, other = results(2, body)
    assert chief == ([3, 6], True, ["metrics", "target_reached"] * 2)
    assert other == ([3, 6], True, [])


def test_only_the_chief_may_go_alone(tmp_path: Path) -> None:
    second = core.DistributedContext()
    second.rank, second.size = 1, 2
    with pytest.raises(RuntimeError, match=r"SearcherMode.ChiefOnly, and this is rank 1"):
        Search(tmp_path, second).context.operations(core.SearcherMode.ChiefOnly)


@pytest.mark.parametrize(("given", "expected"), [(None, 1), (5, 5), (Length("epochs", 2), 2)])
def test_outside_of_experiments_there_is_one_operation(
    tmp_path: Path, given: Any, expected: int
) -> None:
    with core.init(checkpoint_storage=tmp_path, length=given) as context:
        lengths = []
        for op in context.searcher.operations():
            lengths.append(op.length)
            op.report_progress(op.length / 2)
            op.report_completed(0.5)
        assert lengths == [expected]
        units = context.searcher.get_configured_units()
        assert units is (core.Unit.EPOCHS if isinstance(given, Length) else core.Unit.BATCHES)


def test_ranks_on_several_computers_leave_when_one_of_them_is_to(tmp_path: Path) -> None:
    create_page(tmp_path / "control")
    page = ControlPage(tmp_path / "control")
    asked = list[bool]()

    def allgather(value: bool) -> list[bool]:
        asked.append(value)
        return [False, value]

    first = cast(Any, SimpleNamespace(local_rank=0, cross_size=2, allgather=allgather))
    assert not core.PreemptContext(page, first).should_preempt()
    page.raise_signal("preempt")
    assert core.PreemptContext(page, first).should_preempt()
    first.local_rank = 1
    assert not core.PreemptContext(page, first).was_asked()
    assert asked == [False, True]


def test_who_asks_whether_to_leave_is_a_mode(tmp_path: Path) -> None:
    create_page(tmp_path / "control")
    page = ControlPage(tmp_path / "control")
    page.raise_signal("preempt")
    second = core.DistributedContext()
    second.rank, second.size = 1, 2
    with pytest.raises(RuntimeError, match=r"only the chief .*ChiefOnly, and this is rank 1"):
        core.PreemptContext(page, second, core.PreemptMode.ChiefOnly).should_preempt()
    assert core.PreemptContext(page, second, core.PreemptMode.WorkersAskMaster).should_preempt()

    def body(rank: ThreadRank) -> bool:
        own = ControlPage(tmp_path / "control")
        return core.PreemptContext(own, rank).should_preempt()

    assert results(2, body) == [True, True]
