"""The callback for Lightning: what it reports and saves, and that a pause changes nothing."""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from det_jupyter import core
from det_jupyter.contract.run.journal import CheckpointSaved, MetricsReported, Progress
from det_jupyter.contract.values.lengths import Length
from det_jupyter.errors import DetError

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own


class Targets:
    """A control page with the targets of a search, which are there at once."""

    def __init__(self, *targets: tuple[int, bool]) -> None:
        self._targets = list(targets)

    def target(self) -> tuple[int, bool] | None:
        return self._targets.pop(0) if self._targets else None

    def check(self, name: str) -> bool:
        return not self._targets  # the search has no more for this trial: it is asked to leave


@pytest.fixture(scope="module")
def runs() -> Iterator[Any]:
    pytest.importorskip("torch")
    pytest.importorskip("lightning")
    environment = dict(os.environ)
    yield importlib.import_module("tests.unit.integrations.lightning_runs")
    os.environ.clear()
    os.environ.update(environment)


@pytest.fixture
def context(tmp_path: Path, runs: Any) -> core.Context:
    made: core.Context = runs.new_context(tmp_path)
    return made


def records(context: core.Context, kind: type) -> list[Any]:
    sink: Any = context.sink
    return [each for each in sink.records if isinstance(each, kind)]


def metrics(context: core.Context) -> list[tuple[str, int, dict[str, float]]]:
    reported = records(context, MetricsReported)
    return [(each.group, each.steps_completed, dict(each.metrics)) for each in reported]


def test_metrics_progress_and_checkpoints_are_those_of_the_training(
    runs: Any, context: core.Context
) -> None:
    alone = runs.fit(context, callbacks=[])
    assert records(context, MetricsReported) == []
    trainer = runs.fit(context)
    assert runs.torch.equal(runs.weights(trainer), runs.weights(alone))
    steps = [(group, at, sorted(values)) for group, at, values in metrics(context)]
    assert steps[:4] == [
        ("training", 2, ["loss_step"]),
        ("training", 4, ["loss_step"]),
        ("validation", 4, ["val_loss"]),
        ("training", 4, ["loss_epoch"]),
    ]
    assert [each.steps_completed for each in records(context, CheckpointSaved)] == [4, 8, 12, 16]
    assert records(context, Progress)[-1].fraction == 1.0


def test_paused_training_goes_on_as_if_it_had_not_been_paused(
    runs: Any, tmp_path: Path, context: core.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = runs.fit(context)
    first = runs.new_context(tmp_path / "paused")
    answers = iter([False, False, True])
    monkeypatch.setattr(first.preempt, "should_preempt", lambda: next(answers))
    assert runs.fit(first).global_step == 2 * runs.NUM_BATCHES
    uuid = records(first, CheckpointSaved)[-1].uuid
    second = runs.new_context(tmp_path / "paused", uuid)
    runs.torch.manual_seed(99)  # of another process
    trainer = runs.fit(second)
    assert runs.torch.equal(runs.weights(trainer), runs.weights(undisturbed))
    assert metrics(first) + metrics(second) == metrics(context)
    assert [each.steps_completed for each in records(second, CheckpointSaved)] == [12, 16]


def search(context: core.Context, unit: Any, metric: str, *targets: tuple[int, bool]) -> Any:
    """Return the context in a search whose first target is 1."""
    page: Any = Targets(*targets)
    searcher = core.SearcherContext(
        Length(unit, 1),
        is_last=False,
        page=page,
        distributed=context.distributed,
        sink=context.sink,
        train=context.train,
        metric=metric,
    )
    return dataclasses.replace(context, searcher=searcher)


def test_search_stops_a_trial_at_an_epoch(runs: Any, context: core.Context) -> None:
    searched = search(context, "epochs", "val_loss", (3, False))
    assert runs.fit(searched).global_step == 3 * runs.NUM_BATCHES
    assert [each.steps_completed for each in records(context, CheckpointSaved)] == [4, 8, 12]


@pytest.mark.parametrize(
    ("unit", "metric", "problem"),
    [
        ("batches", "val_loss", r"max_length is in batches.*write max_length: \{epochs: N\}"),
        ("epochs", "accuracy", "metric is accuracy, which .* not logged; it has logged: val_loss"),
    ],
)
def test_search_that_cannot_be_followed_is_refused(
    runs: Any, context: core.Context, unit: str, metric: str, problem: str
) -> None:
    with pytest.raises(DetError, match=problem):
        runs.fit(search(context, unit, metric, (3, False)))


@pytest.fixture
def continued(runs: Any, tmp_path: Path, context: core.Context) -> core.Context:
    runs.fit(context)
    return runs.new_context(tmp_path, records(context, CheckpointSaved)[0].uuid)


def test_run_that_continues_does_not_begin_anew(runs: Any, continued: core.Context) -> None:
    with pytest.raises(DetError, match=r"write trainer\.fit\(\.\.\., ckpt_path=callback"):
        runs.fit(continued, ckpt_path=None)


def test_callback_needs_a_context_and_is_given_once(runs: Any, context: core.Context) -> None:
    core.set_current(None)
    with pytest.raises(DetError, match=r"DetCallback: .* inside of `with core\.init\(\)"):
        runs.DetCallback()
    with context:
        callbacks = [runs.DetCallback(), runs.DetCallback()]
    with pytest.raises(DetError, match="it twice"):
        runs.fit(context, callbacks)
