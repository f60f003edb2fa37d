"""A chief that is killed at any moment of saving leaves the older checkpoint whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from det_jupyter.errors import CheckpointError
from det_jupyter.pytorch.checkpoints.restore import read_state
from det_jupyter.pytorch.checkpoints.state import STATE_FILE
from det_jupyter.storage import LocalStorage

# Saves one checkpoint in peace, begins another, tells when it is at the moment, and waits.
CHIEF = """
import os, sys, time
from pathlib import Path
import torch
from torch import nn
from det_jupyter.core import CheckpointContext, DistributedContext, RecordList
from det_jupyter.pytorch import PyTorchCallback, PyTorchTrialContext
from det_jupyter.pytorch.checkpoints import saving
from det_jupyter.pytorch.trial.callbacks import Callbacks
from det_jupyter.pytorch.checkpoints.origin import Origin
from det_jupyter.pytorch.checkpoints.state import STATE_FILE, Parts
from det_jupyter.storage import LocalStorage, local

root, moment = Path(sys.argv[1]), sys.argv[2]
armed = False

def say(text):
    os.write(1, (text + "\\n").encode())  # of two threads, whole lines

def reach(name):
    if armed and moment == name:
        say("there")
        time.sleep(120)

class Callback(PyTorchCallback):
    def on_checkpoint_write_end(self, path):
        reach("callbacks")

def half_written(path, state):
    if armed and moment == "half":
        (path / STATE_FILE).write_bytes(b"half of it")
        reach("half")
    write(path, state)
    reach("before the sync")

write = saving.write_state
saving.write_state = half_written
rename = Path.rename
Path.rename = lambda self, target: (reach("before the rename"), rename(self, target))

distributed = DistributedContext()
context = PyTorchTrialContext(distributed=distributed, device=torch.device("cpu"))
model = context.wrap_model(nn.Linear(4, 4))
nn.init.constant_(model.weight, 1.0)
parts = Parts(context=context, callbacks=Callbacks({"own": Callback()}))
storage = CheckpointContext(LocalStorage(root), RecordList(), distributed, {})
saver = saving.Saver(storage, parts, Origin(trial_class="m:T"))
say(saver.begin(steps_completed=1))
saver.finish()
armed = True
nn.init.constant_(model.weight, 2.0)
say(saver.begin(steps_completed=2))
if moment == "training":
    nn.init.constant_(model.weight, 3.0)
    say("there")
    time.sleep(120)
saver.finish()
"""
MOMENTS = ["half", "before the sync", "training", "callbacks", "before the rename"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_chief_killed_while_saving_leaves_the_older_checkpoint_whole(
    tmp_path: Path, moment: str
) -> None:
    argv = [sys.executable, "-c", CHIEF, str(tmp_path), moment]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as chief:
        assert chief.stdout is not None
        lines = [chief.stdout.readline().strip() for _ in range(3)]
        chief.kill()
    assert "there" in lines
    first, second = [line for line in lines if line != "there"]
    storage = LocalStorage(tmp_path)
    state = read_state(storage.find(first))
    assert torch.equal(state["models"][0]["weight"], torch.ones(4, 4))
    with pytest.raises(CheckpointError):
        storage.find(second)
    with storage.store("next") as path:
        (path / STATE_FILE).write_bytes(b"")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([first, "next"])
