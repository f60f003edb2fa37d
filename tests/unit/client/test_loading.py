"""Checkpoints are loaded by the library that has trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import det_jupyter.pytorch
from det_jupyter.client.handles.checkpoint import load_checkpoint
from det_jupyter.contract.trial.origin import TRIALS, Origin
from det_jupyter.integrations import loading
from tests.unit.client.handles.test_checkpoint_files import stored


@pytest.mark.parametrize(
    ("library", "loader"), [(TRIALS, "trial"), ("det_jupyter.integrations.transformers", "model")]
)
def test_the_library_that_has_trained_loads(
    library: str, loader: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checkpoint = stored(tmp_path / "stored")
    monkeypatch.setattr(Origin, "read", lambda folder: Origin(trial_class="T", library=library))
    loaded: list[Any] = []

    def load(kind: str) -> Any:
        def loads(folder: Path, **how: Any) -> str:
            loaded.append((kind, folder, how))
            return kind

        return loads

    monkeypatch.setattr(det_jupyter.pytorch, "load_trial_from_checkpoint_path", load("trial"))
    monkeypatch.setattr(loading, "load_model", load("model"))
    assert checkpoint.load(device="cuda") == loader
    assert load_checkpoint(checkpoint.path) == loader
    assert loaded == [
        (loader, tmp_path / "stored", {"device": "cuda", "data_dir": tmp_path}),
        (loader, tmp_path / "stored", {}),
    ]
