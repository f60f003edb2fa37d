"""The control page: what the agent writes, a rank reads, and words only grow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from det_jupyter.config import Length
from det_jupyter.contract.run.control_page import ControlPage, create_page
from det_jupyter.contract.run.journal import TargetReached
from det_jupyter.core import DistributedContext, RecordList, SearcherContext


@pytest.fixture
def page(tmp_path: Path) -> Iterator[ControlPage]:
    create_page(tmp_path / "control")
    page = ControlPage(tmp_path / "control")
    yield page
    page.close()


def test_what_one_program_raises_another_sees(page: ControlPage, tmp_path: Path) -> None:
    other = ControlPage(tmp_path / "control")
    assert not page.is_raised("preempt")
    assert page.target() is None
    other.raise_signal("preempt")
    other.extend(30, is_last=False)
    assert page.is_raised("preempt")
    assert page.target() == (30, False)
    other.close()


def test_when_the_code_checks_and_saves_is_recorded(page: ControlPage) -> None:
    assert (page.checked_at(), page.saving_since()) == (None, None)
    assert not page.check("preempt")
    assert page.checked_at() is not None
    page.note_saving()
    since = page.saving_since()
    assert since is not None
    page.note_saving()
    assert page.saving_since() == since


def test_a_rank_that_exchanges_a_batch_does_so_until_it_begins_the_next(
    page: ControlPage,
) -> None:
    page.batch_writer(1)(1)
    assert (page.batch_of(1), page.is_exchanging(1)) == (0, False)
    page.exchange_writer(1)(1)
    assert page.is_exchanging(1)
    page.batch_writer(1)(2)
    assert not page.is_exchanging(1)
    assert not page.is_exchanging(0)
    page.exchange_writer(5000)(1)
    assert not page.is_exchanging(5000)


def test_a_target_only_moves_farther(page: ControlPage) -> None:
    page.extend(30, is_last=False)
    page.extend(10, is_last=True)
    assert page.target() == (30, False)
    page.extend(30, is_last=True)  # the same length, and now it is the last
    assert page.target() == (30, True)


def test_a_file_that_is_no_control_page_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\0" * 4096)
    with pytest.raises(ValueError, match="is not a control page"):
        ControlPage(tmp_path / "x")


def searcher(page: ControlPage | None, sink: RecordList) -> SearcherContext:
    return SearcherContext(
        Length("epochs", 4), is_last=False, page=page, distributed=DistributedContext(), sink=sink
    )


def test_a_run_goes_on_to_a_farther_target(page: ControlPage) -> None:
    context = searcher(page, sink := RecordList())
    context.report_reached(40)
    (record,) = sink.records
    assert isinstance(record, TargetReached)
    assert (record.steps_completed, record.target) == (40, Length("epochs", 4))
    page.extend(4, is_last=False)  # repeated: the one it has
    page.extend(16, is_last=True)
    assert context.await_next()
    assert (context.target, context.is_last) == (Length("epochs", 16), True)


def test_a_run_leaves_when_it_is_asked_to_or_nobody_could_answer(page: ControlPage) -> None:
    page.raise_signal("preempt")
    assert not searcher(page, RecordList()).await_next()
    assert not searcher(None, RecordList()).await_next()


def test_the_page_tells_which_batch_each_rank_has_begun(page: ControlPage, tmp_path: Path) -> None:
    assert page.batch_of(1) is None
    other = ControlPage(tmp_path / "control")
    other.batch_writer(1)(8)  # the first eight: it is in the one of index 7
    assert (page.batch_of(0), page.batch_of(1)) == (None, 7)
    assert (page.is_raised("preempt"), page.target()) == (False, None)
    other.close()


def test_a_rank_that_the_page_has_no_word_for_is_nowhere(page: ControlPage) -> None:
    page.batch_writer(5000)(8)
    assert page.batch_of(5000) is None
