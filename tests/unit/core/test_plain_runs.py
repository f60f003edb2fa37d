"""Trainers that are called without DetCallback, as a run finds them."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.contract.run.journal import Notice
from det_jupyter.core.journal import RecordList
from det_jupyter.core.plain_runs import watch_trainers


class OfTheLibrary:
    """A callback of transformers' own."""


class OfTheUser:
    """A callback that may save by itself."""


class DetCallback:
    """Stands for ours."""


class Extended(DetCallback):
    """One of the user's that is ours too."""


OfTheLibrary.__module__ = "transformers.trainer_callback"
DetCallback.__module__ = "det_jupyter.integrations.transformers"


class Trained:
    """A library whose trainer is watched, and what was written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sink = RecordList()
        self.seen: list[list[str]] = []
        trained = self

        class Trainer:
            def __init__(self, *callbacks: object) -> None:
                self.callback_handler = SimpleNamespace(callbacks=list(callbacks))

            def train(self, result: int = 3) -> int:
                trained.seen.append(trained.noted)
                return result

        class Model:
            def fit(self, x: Any = None, *others: Any, callbacks: Any = None) -> str:
                trained.seen.append(trained.noted)
                return "history"

        self.trainer, self.model = Trainer, Model
        for module, made in (
            ("transformers.trainer", SimpleNamespace(Trainer=Trainer)),
            ("keras.src.models.model", SimpleNamespace(Model=Model)),
        ):
            monkeypatch.setitem(sys.modules, module, made)
        for name in [each for each in sys.modules if each.startswith("det_jupyter.integrations.")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
        watch_trainers(self.sink, "finetune")

    @property
    def noted(self) -> list[str]:
        return [each.trainer for each in self.sink.records if isinstance(each, Notice)]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Trained:
    return Trained(monkeypatch)


def test_a_plain_trainer_is_noted_once_and_before_it_trains(trained: Trained) -> None:
    assert trained.trainer(OfTheLibrary()).train(result=4) == 4
    assert trained.model().fit(1) == "history"
    assert trained.seen == [["transformers.Trainer"]] * 2
    assert trained.noted == ["transformers.Trainer"]
    (notice,) = trained.sink.records
    assert isinstance(notice, Notice)
    assert notice.text.startswith("`finetune` calls transformers.Trainer without DetCallback")


def test_another_callback_may_save_until_the_training_is_over(trained: Trained) -> None:
    trained.trainer(OfTheUser()).train()
    assert trained.seen == [[]]
    assert trained.noted == ["transformers.Trainer"]


def test_what_has_our_callback_is_not_noted(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained.trainer(OfTheLibrary(), Extended()).train()
    trained.model().fit(1, 2, callbacks=[DetCallback()])
    trained.model().fit(1, 2, 3, 4, 5, [DetCallback()])
    trained.model().fit(callbacks=DetCallback())
    assert trained.noted == []
    monkeypatch.setitem(sys.modules, "det_jupyter.integrations.keras", SimpleNamespace())
    with pytest.raises(TypeError):
        trained.model().fit(no_such_argument=1)  # type: ignore[call-arg]  # fails, so nothing trained
    assert trained.noted == []
