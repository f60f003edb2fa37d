"""Which callbacks keep a rank from saving for all others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.core import TrialInfo
from det_jupyter.pytorch import PyTorchCallback
from det_jupyter.pytorch.training.whole_state import can_copy, have_to_be_called
from det_jupyter.pytorch.trial.callback_runner import Callbacks


@pytest.mark.parametrize(
    ("hooks", "in_windows", "has_to"),
    [
        ({}, True, False),
        ({"on_training_batch_start"}, True, False),
        ({"state_dict"}, True, False),
        ({"on_training_batch_start", "state_dict"}, False, True),
        ({"on_training_epoch_start", "state_dict"}, False, True),
        ({"on_training_batch_end", "state_dict"}, False, False),
        ({"on_training_batch_end", "state_dict"}, True, True),
        ({"on_checkpoint_save_start"}, False, True),
        ({"on_checkpoint_write_end"}, False, True),
    ],
)
def test_callbacks_that_have_to_be_called_in_a_whole_step(
    hooks: set[str], in_windows: bool, has_to: bool
) -> None:
    callback = type("Own", (PyTorchCallback,), {name: lambda *_: None for name in hooks})()
    callbacks = Callbacks({"own": callback})
    assert have_to_be_called(callbacks, in_windows) is has_to


@pytest.mark.parametrize(
    ("hooks", "are_whole"),
    [
        ({"on_training_batch_start", "on_validation_end"}, True),
        ({"on_training_batch_end"}, False),
        ({"on_training_epoch_end"}, False),
        ({"state_dict"}, False),
    ],
)
def test_copies_of_a_sharded_model_have_to_be_the_whole_state(
    hooks: set[str], are_whole: bool, tmp_path: Path
) -> None:
    callback = type("Own", (PyTorchCallback,), {name: lambda *_: None for name in hooks})()
    callbacks = Callbacks({"own": callback})
    info = cast(TrialInfo, SimpleNamespace(folder=RunDir(tmp_path)))
    info.folder.copy(1, 0).touch()
    assert can_copy(info, 1, torch.device("cpu"), callbacks) is are_whole
    assert not can_copy(info, 1, torch.device("cuda"), callbacks)
    assert not can_copy(info, 0, torch.device("cpu"), callbacks)  # without memory of its agent
    info.folder.copy(2, 0).symlink_to("x" * 300)  # as memory that it must not look at: an OSError
    assert not can_copy(info, 2, torch.device("cpu"), callbacks)
