"""What a rank does with a function: calls it, and reports what it returns or yields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch

from det_jupyter import core
from det_jupyter.contract.run.journal import MetricsReported, Notice, TargetReached
from det_jupyter.contract.values.lengths import Length
from det_jupyter.core.journal import RecordList
from det_jupyter.core.managed import StepCounter
from det_jupyter.core.searcher import SearcherContext
from det_jupyter.rank.functions import FunctionRun


class World:
    """The context of a function, and what was done with it."""

    def __init__(
        self,
        *,
        is_open: bool = True,
        is_acknowledged: bool = False,
        early: str | None = None,
        num_extensions: int = 0,
        is_chief: bool = True,
        info: object = None,
    ) -> None:
        self.done: list[str] = []
        extensions = iter([True] * num_extensions)
        self.context: Any = SimpleNamespace(
            info=info,
            profiler=SimpleNamespace(flush=lambda: self.done.append("flush")),
            distributed=SimpleNamespace(
                barrier=lambda: self.done.append("barrier"), is_chief=is_chief
            ),
            train=SimpleNamespace(early_exit=early, is_open=is_open),
            preempt=SimpleNamespace(is_acknowledged=is_acknowledged),
            searcher=SimpleNamespace(
                was_extended=lambda: next(extensions, False),
                report_reached=lambda steps: self.done.append(f"reached {steps}"),
            ),
            warn_of_an_early_end=lambda: self.done.append("warn"),
        )
        self.counter: Any = SimpleNamespace(steps_completed=12, first=10)

    def run_of(self, function: Callable[..., None]) -> FunctionRun:
        """Return a run of a function in this world."""
        return FunctionRun(function, self.context, self.counter)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("world", "reason", "done"),
    [
        (World(), "completed", ["flush", "barrier", "warn", "reached 12"]),
        (World(is_open=False, num_extensions=3), "completed", ["flush", "barrier", "reached 12"]),
        (World(is_acknowledged=True), "preempted", ["flush", "barrier", "warn"]),
        (World(early="invalid_hp"), "invalid_hp", ["flush", "barrier", "warn"]),
        (
            World(early="invalid_hp", is_acknowledged=True),
            "invalid_hp",
            ["flush", "barrier", "warn"],
        ),
    ],
)
def test_a_function_ends_for_a_reason_when_all_ranks_have_returned(
    world: World, reason: str, done: list[str]
) -> None:
    assert world.run_of(lambda: None).run() == reason
    assert world.done == done


def test_a_function_gets_what_it_has_parameters_for() -> None:
    given: list[Any] = []

    def train(context: object, hparams: Mapping[str, float]) -> None:
        given.append((context, hparams))

    def without_info(hparams: Mapping[str, float], info: object) -> None:
        given.append((hparams, info))

    world = World(info=SimpleNamespace(hparams={"lr": 0.1}))
    world.run_of(train).run()
    World().run_of(without_info).run()
    assert given == [(world.context, {"lr": 0.1}), ({}, None)]


def test_only_the_chief_has_to_report_its_steps() -> None:
    chief, other = World(), World(is_chief=False)
    assert [each.run_of(lambda: None).trained for each in (chief, other)] == [2, 2]
    for world in (chief, other):
        world.counter.steps_completed = 10
    assert [each.run_of(lambda: None).trained for each in (chief, other)] == [0, 1]


def test_a_console_sees_the_variables_of_the_function_while_it_runs() -> None:
    seen: list[dict[str, Any]] = []

    def train() -> None:
        loss = 0.5
        seen.append({name: run.live()[name] for name in ("context", "steps_completed", "loss")})
        assert loss

    world = World()
    run = world.run_of(train)
    run.run()
    assert seen == [{"context": world.context, "steps_completed": 12, "loss": 0.5}]
    assert run.live() == {"context": world.context, "steps_completed": 12}


def test_a_function_gets_hyperparameters_by_name() -> None:
    given: list[Any] = []

    def train(lr: float, width: int, info: object, depth: int = 3) -> None:
        given.append((lr, width, depth, info))

    info = SimpleNamespace(hparams={"lr": 0.1, "width": 32, "unused": 1, "info": "taken"})
    World(info=info).run_of(train).run()
    assert given == [(0.1, 32, 3, info)]


# what it returns or yields, with the parts of a real context


class Trained:
    """A run of a function in a context outside of experiments."""

    def __init__(
        self,
        function: Callable[..., Any],
        folder: Path,
        *,
        length: int = 1,
        unit: str = "batches",
        is_last: bool = True,
        **changes: Any,
    ) -> None:
        sink = RecordList()
        plain = core.init(checkpoint_storage=folder, sink=sink)
        plain.preempt.awaits_block = False  # as in a rank
        searcher = SearcherContext(
            Length(unit, length),  # type: ignore[arg-type]  # one of its units
            is_last=is_last,
            page=None,
            distributed=plain.distributed,
            sink=sink,
            metric="loss",
        )
        counter = StepCounter(0, None, lambda: None, lambda batch: None)
        plain.train._on_steps = counter.note
        context = replace(plain, searcher=searcher, **changes)
        self.reason = FunctionRun(function, context, counter).run()  # type: ignore[arg-type]
        self.records = sink.records

    @property
    def validations(self) -> list[tuple[int, Mapping[str, Any]]]:
        """Steps and metrics of what was reported."""
        found = [each for each in self.records if isinstance(each, MetricsReported)]
        assert {each.group for each in found} <= {"validation"}
        return [(each.steps_completed, each.metrics) for each in found]

    @property
    def notices(self) -> list[str]:
        """The notices."""
        return [each.text for each in self.records if isinstance(each, Notice)]

    @property
    def reached(self) -> list[int]:
        """The steps at which it has reached a target."""
        return [each.steps_completed for each in self.records if isinstance(each, TargetReached)]


@pytest.mark.parametrize(
    ("returned", "metrics"),
    [
        (0.5, {"loss": 0.5}),
        (numpy.float32(0.5), {"loss": 0.5}),
        (torch.tensor(0.5), {"loss": 0.5}),
        ({"loss": torch.tensor(0.5), "top1": 1, "net": object()}, {"loss": 0.5, "top1": 1}),
    ],
)
def test_what_a_function_returns_is_the_validation_of_its_trial(
    returned: Any, metrics: dict[str, float], tmp_path: Path
) -> None:
    run = Trained(lambda: returned, tmp_path, length=8)
    assert (run.reason, run.validations, run.reached) == ("completed", [(8, metrics)], [8])
    in_epochs = Trained(lambda: returned, tmp_path, length=8, unit="epochs")
    assert (in_epochs.validations, in_epochs.reached) == ([(1, metrics)], [1])


def test_what_a_function_returns_counts_after_its_own_block_of_the_context(
    tmp_path: Path,
) -> None:
    def train(context: Any) -> float:
        with context:
            context.train.note_steps(3)
        return 0.5

    assert Trained(train, tmp_path).validations == [(3, {"loss": 0.5})]


@pytest.mark.parametrize("returned", ["0.5", True, {"error": 0.5}, torch.zeros(3)])
def test_what_has_no_metric_is_noticed_and_ends_nothing(returned: Any, tmp_path: Path) -> None:
    def train() -> Any:
        return returned

    run = Trained(train, tmp_path)
    assert (run.reason, run.validations) == ("completed", [])
    (notice,) = run.notices
    assert notice.startswith("train has returned ")
    assert notice.endswith(", expected a number (loss), or a dict that has loss")


def test_a_function_that_reports_itself_may_return_what_it_likes(tmp_path: Path) -> None:
    def train(core_context: Any) -> float:
        core_context.train.report_validation_metrics(5, {"loss": 0.25})
        return 7.0

    run = Trained(train, tmp_path)
    assert (run.validations, run.reached) == ([(5, {"loss": 0.25})], [5])

    def invalid(core_context: Any) -> float:
        core_context.train.report_early_exit(core.EarlyExitReason.INVALID_HP)
        return 7.0

    run = Trained(invalid, tmp_path)
    assert (run.reason, run.validations) == ("invalid_hp", [])


def test_each_value_that_a_function_yields_is_the_validation_of_a_step(tmp_path: Path) -> None:
    closed: list[bool] = []

    def endless() -> Iterator[Any]:
        try:
            yield 0.5
            yield None  # a step without a validation
            while True:
                yield {"loss": 0.25, "top1": 1}
        finally:
            closed.append(True)

    run = Trained(endless, tmp_path, length=4)
    both = {"loss": 0.25, "top1": 1}
    assert run.validations == [(1, {"loss": 0.5}), (3, both), (4, both)]
    assert (run.reason, run.reached, closed) == ("completed", [4], [True])


def test_a_function_may_yield_fewer_values_than_it_could(tmp_path: Path) -> None:
    run = Trained(lambda: (yield 0.5), tmp_path, length=4)
    assert (run.reason, run.validations, run.reached) == ("completed", [(1, {"loss": 0.5})], [1])


def test_the_search_or_a_user_may_end_a_function_where_it_yields(tmp_path: Path) -> None:
    def endless() -> Iterator[float]:
        while True:
            yield 0.5

    run = Trained(endless, tmp_path, length=2, is_last=False)  # and no farther target comes
    assert (run.reason, len(run.validations), run.reached) == ("preempted", 2, [2])
    asked = SimpleNamespace(should_preempt=lambda: True, is_acknowledged=True)
    run = Trained(endless, tmp_path, length=2, preempt=asked)
    assert (run.reason, len(run.validations), run.reached) == ("preempted", 1, [])


def test_a_function_goes_on_to_the_next_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless() -> Iterator[float]:
        while True:
            yield 0.5

    monkeypatch.setattr(SearcherContext, "_wait_for_target", lambda self: (3, True))
    run = Trained(endless, tmp_path, length=2, is_last=False)
    assert (run.reason, len(run.validations), run.reached) == ("completed", 3, [2, 3])


def test_a_value_without_the_metric_is_an_error_where_it_is_yielded(tmp_path: Path) -> None:
    def train() -> Iterator[Any]:
        yield "0.5"

    with pytest.raises(ValueError, match=r"^train has yielded '0.5', expected a number \(loss\)"):
        Trained(train, tmp_path)
