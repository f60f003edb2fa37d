"""A Trainer of Lightning that shards its model over two ranks, in a trial that is disturbed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from det_jupyter.client import Client
from det_jupyter.contract.messages import LogQuery, State
from tests.scripts import create, pause, wait_for_line

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(find_spec("keras") is None, reason="not an environment of all trainers"),
]

SOURCE = """
import hashlib, os, pathlib, signal, time
import lightning.pytorch as L
import torch
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from det_jupyter.integrations.lightning import DetCallback, DetModelParallelStrategy

KILLED = pathlib.Path(os.environ["MARKER"])

class Net(L.LightningModule):
    def __init__(self, disturbed):
        super().__init__()
        self.disturbed = disturbed
        layers = torch.nn.Linear(8, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 4)
        self.net = torch.nn.Sequential(*layers)
    def configure_model(self):
        mesh = self.device_mesh["data_parallel"]
        for each in (self.net[0], self.net[2], self.net):
            fully_shard(each, mesh=mesh)
    def training_step(self, batch, index):
        if self.disturbed:
            time.sleep(0.1)
            print(f"step {self.global_step};", flush=True)
            if self.global_step == 18 and self.global_rank == 1 and not KILLED.exists():
                KILLED.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        loss = self.net(batch[0]).square().mean()
        self.log("loss", loss)
        return loss
    def validation_step(self, batch, index):
        self.log("val_loss", self.net(batch[0]).square().mean(), sync_dist=True)
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)

def train(callbacks, checkpoint, disturbed):
    L.seed_everything(3, verbose=False)
    data = TensorDataset(torch.randn(64, 8))
    trainer = L.Trainer(
        max_epochs=6, callbacks=callbacks, strategy=DetModelParallelStrategy(), accelerator="cpu",
        logger=False, enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=bool(callbacks), log_every_n_steps=1,
    )
    loaders = DataLoader(data, 8, shuffle=True), DataLoader(data, 8)
    trainer.fit(Net(disturbed), *loaders, ckpt_path=checkpoint)
    if trainer.current_epoch < 6:
        return ""
    parts = [each.to_local() for each in trainer.lightning_module.parameters()]
    state = [*parts, torch.get_rng_state()]
    digest = hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in state))
    shapes = [tuple(each.shape) for each in parts]
    return f"rank {trainer.global_rank}: {shapes}, {digest.hexdigest()};"

def main(core_context, info):
    if info.latest_checkpoint is None:
        print("alone:", train([], None, False), flush=True)
    det = DetCallback()
    ended = train([det], det.ckpt_path, True)
    if ended:
        print("disturbed:", ended, flush=True)
"""
CONFIG = """
entrypoint: fits:main
resources: {slots_per_trial: 2}
searcher: {name: single, metric: val_loss, max_length: {epochs: 6}}
max_restarts: 1
"""


def test_paused_and_killed_training_of_a_sharded_model_ends_as_an_undisturbed_one(
    client: Client, tmp_path: Path
) -> None:
    folder = tmp_path / "context"
    folder.mkdir()
    (folder / "fits.py").write_text(SOURCE)
    variable = [f"MARKER={tmp_path / 'killed'}"]
    changes = {"environment": {"environment_variables": variable}}
    experiment = create(client, CONFIG, context=folder, changes=changes)
    wait_for_line(experiment, "step 5;", timeout_s=150)
    assert pause(experiment) is State.PAUSED
    experiment.activate()
    assert experiment.wait(timeout=150) == State.COMPLETED
    (trial,) = experiment.view.trials
    assert trial.restarts == 1
    lines = client.experiment_logs(experiment.id, LogQuery()).lines
    ends = {
        name: sorted(line.text.split(name)[1] for line in lines if name in line.text)
        for name in ("alone:", "disturbed:")
    }
    assert len(ends["alone:"]) == 2
    assert "(4, 8)" in ends["alone:"][0]  # of (8, 8): a rank has half of a layer
    assert ends["disturbed:"] == ends["alone:"]
    saved = [each.steps_completed for each in experiment.checkpoints()]
    assert saved == [4, 8, 12, 16, 20, 24]
    files = experiment.best_checkpoint().files
    assert {"lightning.ckpt/__0_0.distcp", "lightning.ckpt/__1_0.distcp"} <= files.keys()
