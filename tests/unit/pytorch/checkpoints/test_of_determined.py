"""Checkpoints that Determined saved are loaded and continued, and their pickles are not run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from det_jupyter.client.handles.checkpoint import load_checkpoint
from det_jupyter.errors import CheckpointError
from det_jupyter.pytorch.checkpoints.restore import (
    read_state,
    restore_generators,
    restore_models,
    restore_training,
)
from tests.determined_checkpoints import CODE, write_checkpoint
from tests.unit.pytorch.checkpoints.test_training_state import build, save, train

HPARAMS = {"width": 3, "lr": 0.1}


class Wrapped(nn.Module):
    """A model as DistributedDataParallel names its parameters."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def test_the_trial_of_a_checkpoint_is_loaded_with_its_weights(tmp_path: Path) -> None:
    model = nn.Linear(3, 1)
    write_checkpoint(tmp_path / "one", [Wrapped(model)], steps_completed=8, hparams=HPARAMS)
    other = CODE.replace("nn.Linear(", "nn.Bilinear(2, ")
    bilinear = nn.Bilinear(2, 3, 1)
    write_checkpoint(tmp_path / "two", [bilinear], steps_completed=8, hparams=HPARAMS, code=other)
    trial, second = load_checkpoint(tmp_path / "one"), load_checkpoint(tmp_path / "two")
    assert torch.equal(trial.model.weight, model.weight)
    assert torch.equal(second.model.weight, bilinear.weight)  # its model_def is another
    assert "model_def" not in sys.modules


def test_a_file_of_the_users_does_not_make_it_a_checkpoint_of_determined(tmp_path: Path) -> None:
    save(build(1), tmp_path)
    torch.save({}, tmp_path / "state_dict.pth")
    assert read_state(tmp_path)["steps_completed"] == 3


def test_training_goes_on_with_models_optimizers_and_schedulers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = build(1), build(2)
    train(before, 3)
    context, scaler = before.context, before.context.scaler
    assert scaler is not None
    write_checkpoint(
        tmp_path / "saved",
        context.models,
        context.optimizers,
        [item.scheduler for item in context.lr_schedulers],
        steps_completed=3,
        scaler_state_dict=scaler.state_dict(),
        callbacks={"memory": {"seen": 3}},
    )
    state = read_state(tmp_path / "saved")
    restore_models(after.context, state, "here")
    restore_training(after, state, "here")
    restore_generators(after.context, state, seed=1)
    for old, new in zip(context.models, after.context.models, strict=True):
        for name, value in old.state_dict().items():
            assert torch.equal(new.state_dict()[name], value)
    first, second = (each.context.optimizers[1].state_dict() for each in (before, after))
    assert torch.equal(first["state"][0]["exp_avg"], second["state"][0]["exp_avg"])
    assert after.context.lr_schedulers[0].scheduler.last_epoch == 3
    assert after.callbacks.state_dict() == {"memory": {"seen": 3}}
    assert "batch 3 with the state that Determined saved" in capsys.readouterr().err


class Unsafe:
    """A class that a safe load does not know."""


def test_a_state_with_objects_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a", [], steps_completed=1, callbacks={"mine": Unsafe()})
    with pytest.raises(CheckpointError, match=r"(?s)state_dict.pth cannot be read: .*Unsafe"):
        read_state(tmp_path / "a")
    torch.save({"model_state_dict": {}}, tmp_path / "a" / "state_dict.pth")
    with pytest.raises(CheckpointError, match=r"not of a PyTorchTrial of Determined 0\.13"):
        read_state(tmp_path / "a")
    load_data = json.loads((tmp_path / "a" / "load_data.json").read_text())
    load_data["trial_type"] = "TFKerasTrial"
    (tmp_path / "a" / "load_data.json").write_text(json.dumps(load_data))
    with pytest.raises(CheckpointError, match="a TFKerasTrial of Determined saved it"):
        load_checkpoint(tmp_path / "a")


def test_code_that_imports_determined_names_the_package_with_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("determined.")]:
        monkeypatch.delitem(sys.modules, name)  # of another test
    monkeypatch.setitem(sys.modules, "determined", None)
    code = CODE.replace("from det_jupyter.pytorch", "from determined.pytorch")
    write_checkpoint(tmp_path / "a", [], steps_completed=1, code=code)
    with pytest.raises(CheckpointError, match=r"pip install det-jupyter-determined, or give"):
        load_checkpoint(tmp_path / "a")
