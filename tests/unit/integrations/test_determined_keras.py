"""Determined's callback for Keras, which compat/ has."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from det_jupyter import core
from tests.unit.integrations.contexts import metrics, new_context, runs_of, saved

pytestmark = pytest.mark.filterwarnings("ignore")  # Keras' own
COMPAT = Path(__file__).parents[3] / "compat"


@pytest.fixture(scope="module")
def runs() -> Iterator[Any]:
    sys.path.insert(0, str(COMPAT))
    try:
        yield from runs_of("keras")
    finally:
        sys.path.remove(str(COMPAT))


def fit(
    runs: Any,
    context: core.Context,
    latest: str | None,
    training: str,
    later: Sequence[Any] = (),
    **options: Any,
) -> list[int]:
    from determined.keras import DeterminedCallback

    callback = DeterminedCallback(context, latest, training, **options)
    epochs: list[int] = runs.fit(context, [callback, *later]).history.epoch
    return epochs


def test_checkpoint_of_another_training_gives_only_its_weights(runs: Any, tmp_path: Path) -> None:
    context = new_context(tmp_path)
    assert fit(runs, context, None, "a", checkpoint_epochs=3) == [0, 1, 2, 3]
    assert [each.steps_completed for each in saved(context)] == [12, 16]
    last = saved(context)[0].uuid
    same, other = new_context(tmp_path), new_context(tmp_path)
    assert fit(runs, same, last, "a") == [0, 1, 2, 3]
    assert [each.steps_completed for each in saved(same)] == [16]
    assert fit(runs, other, last, "b") == [0, 1, 2, 3]
    assert [each.steps_completed for each in saved(other)] == [4, 8, 12, 16]


def test_without_a_period_a_checkpoint_is_saved_when_the_training_ends_or_is_paused(
    runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, paused, ended = (new_context(tmp_path) for _ in range(3))
    assert fit(runs, whole, None, "a", checkpoint_epochs=0) == [0, 1, 2, 3]
    assert [each.steps_completed for each in saved(whole)] == [16]

    answers = iter([False, True])
    monkeypatch.setattr(paused.preempt, "should_preempt", lambda: next(answers))
    assert fit(runs, paused, None, "a", checkpoint_epochs=0) == [0, 1]
    assert [each.steps_completed for each in saved(paused)] == [8]

    stops: Any = runs.keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: setattr(stops.model, "stop_training", epoch == 2)
    )
    assert fit(runs, ended, None, "a", [stops], checkpoint_epochs=0) == [0, 1, 2]
    assert [each.steps_completed for each in saved(ended)] == [12]


def test_validations_have_determineds_names(runs: Any, tmp_path: Path) -> None:
    context = new_context(tmp_path)
    fit(runs, context, None, "a", train_metrics_report_period="epoch")
    reported = [(group, at, sorted(values)) for group, at, values in metrics(context)]
    assert reported[:2] == [("training", 4, ["loss"]), ("validation", 4, ["loss"])]
