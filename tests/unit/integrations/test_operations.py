"""How far a trial trains: by the operations of a search, to its end, or as its trainer wants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter import core
from det_jupyter.contract.run.journal import TargetReached
from det_jupyter.errors import DetError
from det_jupyter.integrations.common import Operations
from tests.unit.integrations.contexts import ending, new_context, records, searched


@pytest.fixture
def context(tmp_path: Path) -> core.Context:
    return new_context(tmp_path)


def operations(context: core.Context) -> Operations:
    return Operations(context, "Callback", "validation_step")


def test_a_trial_that_nothing_compares_trains_to_its_end_without_its_metric(
    context: core.Context,
) -> None:
    found = operations(ending(context, "batches", "loss", 5, (8, True)))
    assert (found.unit, found.is_compared) == (core.Unit.BATCHES, False)
    assert [found.is_reached(length) for length in (4, 5, 6)] == [False, True, True]
    found.check_length(1, "the Trainer", "max_steps=N")
    found.check_metric({})
    assert found.go_on(4, {})
    assert found.go_on(5, {})  # it was let train further meanwhile
    assert not found.is_reached(5)
    assert not found.go_on(8, {})


def test_outside_of_experiments_and_by_records_the_trainer_alone_decides(
    context: core.Context,
) -> None:
    alone = replace(ending(context, "batches", "loss", 5), info=None)
    by_records = ending(context, "records", "loss", 5)
    for each in (alone, by_records):
        assert not operations(each).is_reached(100)
        assert operations(each).go_on(100, {})


def test_a_trial_is_compared_at_each_length_that_it_has_trained(context: core.Context) -> None:
    search = searched(context, "batches", "loss", (5, False), (7, False), (9, True), first=2)
    found = operations(search)
    assert found.is_compared
    assert [found.is_reached(length) for length in (1, 2)] == [False, True]
    assert found.go_on(1, {})
    assert found.go_on(2, {"loss": 0.5})
    assert [found.is_reached(length) for length in (4, 5)] == [False, True]
    assert found.go_on(8, {"loss": 0.25})  # past two of them
    reached = [each.target.amount for each in records(context, TargetReached)]
    assert reached == [2, 5, 7]
    assert not found.go_on(9, {"loss": 0.125})
    assert not found.is_compared


def test_what_a_search_cannot_compare_is_an_error(context: core.Context) -> None:
    found = operations(searched(context, "batches", "loss", (5, True), first=3))
    found.check_length(3, "the Trainer", "max_steps=N")
    with pytest.raises(DetError) as raised:
        found.check_length(2, "the Trainer", "max_steps=N")
    assert str(raised.value) == (
        "Callback: the Trainer trains 2 batches, the search has 3 for this trial; write "
        "max_steps=N with the N of searcher.max_length: {batches: N}"
    )
    found.check_metric({"loss": 0.5})
    with pytest.raises(DetError, match="validation_step has not logged; it has logged: a, b"):
        found.check_metric({"b": 1, "a": 2})
    with pytest.raises(DetError, match="it has logged: none"):
        found.go_on(3, {})


def test_ranks_that_are_not_the_chief_need_no_metric(context: core.Context) -> None:
    search = searched(context, "batches", "loss", (5, True), first=3)
    rank: Any = SimpleNamespace(is_chief=False)
    found = operations(replace(search, distributed=rank))
    with pytest.raises(RuntimeError, match="report_completed"):  # which the chief has to call
        found.go_on(3, {})
