"""Search methods: one conformance class for all, and what each does."""

from __future__ import annotations

import json
import math

import pytest

from det_jupyter.config import Length
from det_jupyter.config.experiment import Searcher
from det_jupyter.searcher import (
    Create,
    ExitReason,
    SearchMethod,
    Shutdown,
    Single,
    make_search_method,
)


def make_section(name: str = "single") -> Searcher:
    return Searcher.model_validate(
        {"name": name, "metric": "accuracy", "max_length": Length("epochs", 1)}
    )


class SearchMethodContract:
    """What every method owes to the machine."""

    def make(self) -> SearchMethod:
        raise NotImplementedError

    def test_a_search_starts_with_a_trial(self) -> None:
        assert any(isinstance(action, Create) for action in self.make().start())

    def test_a_search_is_over_when_all_its_trials_have_exited(self) -> None:
        method = self.make()
        pending = [action.index for action in method.start() if isinstance(action, Create)]
        is_over = False
        while pending:
            actions = method.on_trial_exited(pending.pop(), ExitReason.COMPLETED)
            assert not is_over
            is_over = Shutdown() in actions
            pending += [action.index for action in actions if isinstance(action, Create)]
        assert is_over

    def test_a_method_made_from_a_snapshot_goes_on_as_if_nothing_had_happened(self) -> None:
        method = self.make()
        method.start()
        twin = make_search_method(make_section(), json.loads(json.dumps(method.snapshot())))
        for metric in (0.5, math.nan, math.inf):
            assert twin.on_validation(0, 10, metric) == method.on_validation(0, 10, metric)
        assert twin.snapshot() == method.snapshot()
        for reason in ExitReason:
            assert twin.on_trial_exited(0, reason) == method.on_trial_exited(0, reason)


class TestSingle(SearchMethodContract):
    def make(self) -> SearchMethod:
        return make_search_method(make_section("single"), {})

    def test_one_trial_is_created(self) -> None:
        assert Single().start() == [Create(0)]

    @pytest.mark.parametrize("metric", [0.0, 1e9, math.nan, math.inf])
    def test_no_metric_ends_it(self, metric: float) -> None:
        assert Single().on_validation(0, 100, metric) == []

    @pytest.mark.parametrize("reason", ExitReason)
    def test_however_its_trial_ends_the_search_is_over(self, reason: ExitReason) -> None:
        assert Single().on_trial_exited(0, reason) == [Shutdown()]
