"""The tracker for Accelerate: what it reports and saves, and that a pause changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter import core
from det_jupyter.errors import DetError
from tests.unit.integrations.contexts import (
    compared_at_the_end,
    metrics,
    new_context,
    notices,
    runs_of,
    saved,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # of accelerate


@pytest.fixture(scope="module")
def runs() -> Iterator[Any]:
    yield from runs_of("accelerate")


@pytest.mark.parametrize("left", [3, 4, 7])
def test_paused_training_goes_on_as_if_it_had_not_been_paused(
    runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    context = new_context(tmp_path / "undisturbed")
    undisturbed = runs.train(context)
    assert [(group, at) for group, at, _ in metrics(context)] == [
        *(("training", step) for step in range(1, runs.NUM_STEPS + 1)),
        ("validation", runs.NUM_STEPS),
    ]
    first = new_context(tmp_path / "paused")
    answers = iter([False] * (left - 1) + [True])
    monkeypatch.setattr(first.preempt, "should_preempt", lambda: next(answers))
    runs.train(first)
    assert saved(first)[-1].steps_completed == left
    second = new_context(tmp_path / "paused", saved(first)[-1].uuid)
    runs.torch.manual_seed(99)  # of another process
    model = runs.train(second)
    assert runs.torch.equal(runs.weights(model), runs.weights(undisturbed))
    assert metrics(first) + metrics(second) == metrics(context)


def test_metric_that_is_not_logged_is_named_at_the_end(runs: Any, tmp_path: Path) -> None:
    alone = compared_at_the_end(new_context(tmp_path), "loss")
    runs.train(alone)
    said = (
        "searcher.metric is loss, and validations have: val_loss; so no checkpoint is the best "
        "one. loss is reported in the group training"
    )
    assert notices(alone) == {said: runs.NUM_STEPS}


@pytest.mark.parametrize(("window", "left"), [(1, 1), (3, 3), (4, 4)])
def test_a_trial_leaves_when_the_optimizer_has_stepped(
    runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int, left: int
) -> None:
    context = new_context(tmp_path)
    monkeypatch.setattr(context.preempt, "was_asked", lambda: True)
    runs.train(context, window=window)
    assert [each.steps_completed for each in saved(context)] == [left]


def test_an_accelerator_of_other_processes_is_refused(runs: Any, tmp_path: Path) -> None:
    ranks: Any = SimpleNamespace(size=2, rank=0, is_chief=True)
    tracker = runs.DetTracker(new_context(tmp_path, distributed=ranks))
    alone = SimpleNamespace(num_processes=1, device=SimpleNamespace(type="cpu"))
    with pytest.raises(DetError, match=r"has 1 process, and the trial 2; write .*cpu=True"):
        tracker.load_state(alone)


@pytest.mark.parametrize(
    ("names", "options", "report"),
    [
        ("loss", {"step": 7}, ("training", 7)),
        ("val_loss eval_loss", {"step": 7}, ("validation", 7)),
        ("val_loss loss", {}, ("training", 3)),  # at the last step that was reported
        ("val_loss", {"group": "test"}, ("test", 3)),
    ],
)
def test_metrics_belong_to_the_group_of_their_names(
    runs: Any, tmp_path: Path, names: str, options: dict[str, Any], report: tuple[str, int]
) -> None:
    context = new_context(tmp_path)
    context.train.report_training_metrics(3, {"loss": 1.0})
    values = dict.fromkeys(names.split(), 0.5)
    runs.DetTracker(context).log(values, **options)
    assert metrics(context)[1:] == [(*report, values)]
    other: Any = SimpleNamespace(is_chief=False)
    runs.DetTracker(replace(context, distributed=other)).log(values)
    assert len(metrics(context)) == 2


def test_states_that_could_not_be_continued_are_refused(runs: Any, tmp_path: Path) -> None:
    tracker = runs.DetTracker(new_context(tmp_path))
    with pytest.raises(DetError, match=r"not given yet; call load_state\(accelerator\)"):
        tracker.save_state(1)
    parts: Any = SimpleNamespace(
        num_processes=1,
        device=runs.torch.device("cpu"),
        sync_gradients=False,
        distributed_type=runs.FSDP,
        _optimizers=[],
    )
    assert tracker.load_state(parts) == 0
    with pytest.raises(DetError, match=r"with FSDP the gradients .* cannot be saved"):
        tracker.save_state(1)
    loader = runs.Accelerator(cpu=True).prepare(runs.DataLoader([1, 2], shuffle=True))
    with pytest.raises(DetError, match=r"another one after a pause; .*use_seedable_sampler=True"):
        next(tracker.batches(loader))


def test_an_accelerator_gives_the_context_that_it_logs_to(runs: Any, tmp_path: Path) -> None:
    with new_context(tmp_path) as context:
        accelerator = runs.Accelerator(cpu=True, log_with=runs.DetTracker())
        accelerator.init_trackers("test")
        assert accelerator.get_tracker("det_jupyter", unwrap=True) is context
        accelerator.end_training()


def test_tracker_needs_a_context(runs: Any) -> None:
    core.set_current(None)
    with pytest.raises(DetError, match=r"DetTracker: .* inside of `with core\.init\(\)"):
        runs.DetTracker()
