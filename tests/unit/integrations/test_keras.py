"""The callback for Keras: what it reports and saves, and that a pause changes nothing."""

from __future__ import annotations

import dataclasses
import importlib.util
import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter import core
from det_jupyter.contract.run.journal import CheckpointSaved, MetricsReported, Progress, RunEnded
from det_jupyter.errors import DetError
from tests.unit.integrations.contexts import (
    compared_at_the_end,
    metrics,
    new_context,
    notices,
    records,
    runs_of,
    searched,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # Keras' own


@pytest.fixture(scope="module")
def runs() -> Iterator[Any]:
    yield from runs_of("keras")


@pytest.fixture
def context(tmp_path: Path, runs: Any) -> core.Context:
    return new_context(tmp_path)


def test_metrics_progress_and_checkpoints_are_those_of_the_training(
    runs: Any, context: core.Context
) -> None:
    alone = runs.fit(context, callbacks=[])
    assert records(context, MetricsReported) == []
    model = runs.fit(context)
    assert (runs.weights(model) == runs.weights(alone)).all()
    assert model.history.history == alone.history.history
    history = model.history.history
    steps = [(group, at, sorted(values)) for group, at, values in metrics(context)]
    assert steps[:4] == [
        ("training", 2, ["loss"]),
        ("training", 4, ["loss"]),
        ("validation", 4, ["val_loss"]),
        ("training", 6, ["loss"]),
    ]
    assert metrics(context)[-2:] == [
        ("training", 16, {"loss": history["loss"][-1]}),
        ("validation", 16, {"val_loss": history["val_loss"][-1]}),
    ]
    assert [each.steps_completed for each in records(context, CheckpointSaved)] == [4, 8, 12, 16]
    fractions = [each.fraction for each in records(context, Progress)]
    assert fractions == [each / 8 for each in range(1, 9)]
    assert records(context, RunEnded) == []  # nothing has stopped it early


def test_paused_training_goes_on_as_if_it_had_not_been_paused(
    runs: Any, tmp_path: Path, context: core.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = runs.fit(context)
    first = new_context(tmp_path / "paused")
    answers = iter([False, True])
    monkeypatch.setattr(first.preempt, "should_preempt", lambda: next(answers))
    assert runs.fit(first).history.epoch == [0, 1]
    uuid = records(first, CheckpointSaved)[-1].uuid
    second = new_context(tmp_path / "paused", uuid)
    runs.keras.utils.set_random_seed(99)  # of another process
    model = runs.fit(second)
    assert (runs.weights(model) == runs.weights(undisturbed)).all()
    assert model.history.history == undisturbed.history.history
    assert model.history.epoch == [0, 1, 2, 3]
    assert metrics(first) + metrics(second) == metrics(context)
    assert [each.steps_completed for each in records(second, CheckpointSaved)] == [12, 16]
    later = runs.fit(new_context(tmp_path / "later"), [], model)  # another training of it
    assert later.history.epoch == [0, 1, 2, 3]


def test_the_profiler_gets_a_step_for_each_batch_and_none_has_a_validation_in_it(
    runs: Any, context: core.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    monkeypatch.setattr(context.profiler, "step", lambda: events.append("step"))
    validates = runs.keras.callbacks.LambdaCallback()
    validates.on_test_batch_begin = lambda batch, logs=None: events.append("validation")
    with context:
        callbacks = [validates, runs.DetCallback()]
    runs.fit(context, callbacks, epochs=2)
    num = len(events) // 2 - runs.NUM_BATCHES
    assert num > 0
    assert events == 2 * [*runs.NUM_BATCHES * ["step"], *num * ["validation"]]


def test_checkpoint_is_a_model_that_keras_loads(runs: Any, context: core.Context) -> None:
    model = runs.fit(context)
    uuid = records(context, CheckpointSaved)[-1].uuid
    with context, context.checkpoint.restore_path(uuid) as folder:
        loaded = runs.keras.models.load_model(folder / "model.keras")
    assert (runs.weights(loaded) == runs.weights(model)).all()


def test_beside_the_model_a_checkpoint_has_only_the_states_of_generators(
    runs: Any, context: core.Context
) -> None:
    model = runs.fit(context, epochs=1)
    with context.checkpoint.restore_path(records(context, CheckpointSaved)[0].uuid) as folder:
        state = pickle.loads((folder / "state.pkl").read_bytes())
    assert len(state["seeds"]) == 2  # of two layers; the weights are in the model's file
    assert sum(each.size for each in state["seeds"]) < model.count_params()


@pytest.mark.parametrize("left", [1, 2, 3])
def test_callbacks_that_compare_epochs_remember_them_over_a_pause(
    runs: Any,
    tmp_path: Path,
    context: core.Context,
    monkeypatch: pytest.MonkeyPatch,
    left: int,
) -> None:
    def fit(context: core.Context, folder: Path) -> Any:
        compared = runs.comparing(folder)
        with context:
            callbacks = [*compared, runs.DetCallback(keep=compared)]
        return runs.fit(context, callbacks)

    undisturbed = fit(context, tmp_path / "alone")
    assert undisturbed.history.epoch == [0, 1, 2]
    first = new_context(tmp_path / "paused")
    answers = iter([False] * (left - 1) + [True] * 9)
    monkeypatch.setattr(first.preempt, "should_preempt", lambda: next(answers))
    made = fit(first, tmp_path / "other")
    if left < 3:  # else EarlyStopping ends it in the epoch in which it is to be paused
        assert made.history.epoch == [*range(left)]
        again = new_context(tmp_path / "paused", records(first, CheckpointSaved)[-1].uuid)
        made = fit(again, tmp_path / "other")
    assert made.history.history == undisturbed.history.history
    assert (runs.weights(made) == runs.weights(undisturbed)).all()
    saved_as = (tmp_path / each / "best.keras" for each in ("alone", "other"))
    best, same = (runs.weights(runs.keras.models.load_model(each)) for each in saved_as)
    assert (best == same).all()


def test_a_kept_callback_that_comes_later_is_refused(
    runs: Any, tmp_path: Path, context: core.Context
) -> None:
    first, *others = runs.comparing(tmp_path)
    with context:
        callbacks = [first, runs.DetCallback(keep=[first, *others]), *others]
    problem = "keep has ReduceLROnPlateau, ModelCheckpoint, which fit does not call before it"
    with pytest.raises(DetError, match=problem):
        runs.fit(context, callbacks)


def test_search_stops_a_trial_at_an_epoch(runs: Any, context: core.Context) -> None:
    search = searched(context, "epochs", "val_loss", (3, False))
    assert runs.fit(search).history.epoch == [0, 1, 2]
    assert [each.steps_completed for each in records(context, CheckpointSaved)] == [4, 8, 12]
    assert records(context, RunEnded) == []


def test_trial_that_was_paused_where_the_search_compares_is_compared_when_it_goes_on(
    runs: Any, tmp_path: Path, context: core.Context
) -> None:
    runs.fit(context, epochs=1)
    uuid = records(context, CheckpointSaved)[0].uuid
    search = searched(new_context(tmp_path, uuid), "epochs", "val_loss", (3, False))
    assert runs.fit(search).history.epoch == [0, 1, 2]
    stopped = searched(new_context(tmp_path, uuid), "epochs", "val_loss")
    assert runs.fit(stopped).history.epoch == [0]


def test_training_that_a_callback_ends_is_enough_for_the_search(
    runs: Any, context: core.Context
) -> None:
    search = searched(context, "epochs", "val_loss", (4, True))
    with search:
        callbacks = [runs.early_stopping(patience=1), runs.DetCallback()]
    assert runs.fit(search, callbacks).history.epoch == [0, 1]
    assert [each.reason for each in records(context, RunEnded)] == ["stopped"]


@pytest.mark.parametrize(
    ("unit", "metric", "epochs", "problem"),
    [
        ("batches", "val_loss", 4, r"max_length is in batches.*write max_length: \{epochs: N\}"),
        (
            "epochs",
            "val_accuracy",
            4,
            "is val_accuracy, which Keras' .* not logged; it has logged: val_loss",
        ),
        ("epochs", "val_loss", 2, r"fit trains 2 epochs, the search has 3 .*fit\(epochs=N\)"),
    ],
)
def test_search_that_cannot_be_followed_is_refused(
    runs: Any, context: core.Context, unit: str, metric: str, epochs: int, problem: str
) -> None:
    with pytest.raises(DetError, match=problem):
        runs.fit(searched(context, unit, metric, (3, False)), epochs=epochs)


def test_metric_that_is_not_validated_is_an_error_after_the_first_validation(
    runs: Any, context: core.Context
) -> None:
    search = searched(context, "epochs", "val_accuracy", (4, True), first=3)
    with pytest.raises(DetError, match=r"is val_accuracy, which .* it has logged: val_loss"):
        runs.fit(search)
    assert [at for group, at, _ in metrics(context) if group == "validation"] == [4]


@pytest.mark.parametrize(
    ("arguments", "found", "steps"),
    [({}, "validations have: val_loss", 6), ({"validation_data": None}, "there is no", 16)],
)
def test_metric_that_is_not_validated_is_named_though_nothing_is_compared(
    runs: Any, context: core.Context, arguments: dict[str, Any], found: str, steps: int
) -> None:
    alone = compared_at_the_end(context, "accuracy")
    runs.fit(alone, **arguments)
    ((text, said_at),) = notices(alone).items()
    assert text.startswith(f"searcher.metric is accuracy, and {found}")
    assert said_at == steps


def test_callback_needs_a_context_and_is_given_once(runs: Any, context: core.Context) -> None:
    core.set_current(None)
    with pytest.raises(DetError, match=r"DetCallback: .* inside of `with core\.init\(\)"):
        runs.DetCallback()
    with context:
        callbacks = [runs.DetCallback(), runs.DetCallback()]
    with pytest.raises(DetError, match="it twice"):
        runs.fit(context, callbacks)


def test_backend_and_ranks_that_keras_cannot_continue_on_are_refused_together(
    runs: Any, context: core.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks: Any = SimpleNamespace(size=2)
    monkeypatch.setattr(runs.keras.backend, "backend", lambda: "jax")
    with pytest.raises(DetError, match=r"(?s)backend is jax.*KERAS_BACKEND=torch.*has 2 ranks"):
        runs.DetCallback(dataclasses.replace(context, distributed=ranks))


def test_deterministic_training_depends_on_its_seed_only(runs: Any, context: core.Context) -> None:
    torch = importlib.import_module("torch")
    threads = torch.get_num_threads()
    try:
        with context:
            assert runs.make_deterministic() == 5  # the trial's
            first = runs.new_model().get_weights()[0]
            assert runs.make_deterministic(5) == 5
            assert (runs.new_model().get_weights()[0] == first).all()
            assert runs.make_deterministic(6) == 6
            assert (runs.new_model().get_weights()[0] != first).any()
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.get_num_threads() == 1
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(threads)
