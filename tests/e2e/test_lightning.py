"""A Trainer of Lightning on the two ranks of a trial."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from det_jupyter.client import Client
from det_jupyter.contract.messages import LogQuery, State
from det_jupyter.contract.trial.origin import Origin
from tests.scripts import create, ends_as_undisturbed, pause, wait_for_line
from tests.trials import Gate

pytestmark = pytest.mark.e2e

SOURCE = """
import lightning.pytorch as L
import torch
from torch.utils.data import DataLoader, TensorDataset
from det_jupyter.integrations.lightning import DetCallback, DetStrategy

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 1)
    def training_step(self, batch, index):
        return self.net(batch[0]).square().mean()
    def validation_step(self, batch, index):
        loss = self.net(batch[0]).square().mean()
        self.log("val_loss", loss, sync_dist=True)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

def main(core_context):
    L.seed_everything(3, verbose=False)
    loader = DataLoader(TensorDataset(torch.randn(64, 8)), 8)
    det = DetCallback()
    trainer = L.Trainer(
        max_epochs=2, callbacks=[det], strategy=DetStrategy(), accelerator="cpu", logger=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Net(), loader, loader, ckpt_path=det.ckpt_path)
    weight = trainer.lightning_module.net.weight.detach().sum().item()
    print(f"ended at {trainer.global_step} with {weight!r};")
"""
CONFIG = """
entrypoint: fits:main
resources: {slots_per_trial: 2}
searcher: {name: single, metric: val_loss, max_length: {epochs: 2}}
max_restarts: 0
"""


def test_two_ranks_share_the_data_and_have_the_same_weights(
    client: Client, tmp_path: Path
) -> None:
    (tmp_path / "fits.py").write_text(SOURCE)
    experiment = create(client, CONFIG, context=tmp_path)
    assert experiment.wait() == State.COMPLETED
    assert [each.steps_completed for each in experiment.checkpoints()] == [4, 8]
    assert experiment.view.trials[0].best_metric is not None
    origin = Origin.read(experiment.best_checkpoint().path)
    assert (origin.library, origin.trial_class) == ("lightning", "fits:Net")
    assert origin.blobs is not None  # the code is there
    lines = client.experiment_logs(experiment.id, LogQuery()).lines
    ended = [line.text for line in lines if "ended at 8" in line.text]
    assert len(ended) == 2
    assert len({text[text.index("with") :] for text in ended}) == 1


DISTURBED = """
import hashlib, os, pathlib, signal
import lightning.pytorch as L
import torch
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from det_jupyter.integrations.lightning import (
    DetCallback, DetModelParallelStrategy, DetStrategy
)

KILLED = pathlib.Path(os.environ["MARKER"])

class Net(L.LightningModule):
    def __init__(self, disturbed):
        super().__init__()
        self.disturbed = disturbed
        layers = torch.nn.Linear(8, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 4)
        self.net = torch.nn.Sequential(*layers)
    def configure_model(self):
        if not isinstance(self.trainer.strategy, DetModelParallelStrategy):
            return
        mesh = self.device_mesh["data_parallel"]
        for each in (self.net[0], self.net[2], self.net):
            fully_shard(each, mesh=mesh)
    def training_step(self, batch, index):
        if self.disturbed:
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

def train(strategy, callbacks, checkpoint, disturbed):
    L.seed_everything(3, verbose=False)
    data = TensorDataset(torch.randn(64, 8))
    trainer = L.Trainer(
        max_epochs=6, callbacks=callbacks, strategy=strategy, accelerator="cpu",
        logger=False, enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=bool(callbacks), log_every_n_steps=1,
    )
    loaders = DataLoader(data, 8, shuffle=True), DataLoader(data, 8)
    trainer.fit(Net(disturbed), *loaders, ckpt_path=checkpoint)
    if trainer.current_epoch < 6:
        return ""
    weights = trainer.lightning_module.parameters()
    parts = [getattr(each, "_local_tensor", each) for each in weights]
    state = [*parts, torch.get_rng_state()]
    digest = hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in state))
    shapes = [tuple(each.shape) for each in parts]
    return f"rank {trainer.global_rank}: {shapes}, {digest.hexdigest()};"

def main(core_context, info, hparams):
    new = DetModelParallelStrategy if hparams["shards"] else DetStrategy
    if info.latest_checkpoint is None:
        print("alone:", train(new(), [], None, False), flush=True)
    det = DetCallback()
    ended = train(new(), [det], det.ckpt_path, True)
    if ended:
        print("disturbed:", ended, flush=True)
"""
DISTURBED_CONFIG = """
entrypoint: fits:main
resources: {slots_per_trial: 2}
searcher: {name: single, metric: val_loss, max_length: {epochs: 6}}
max_restarts: 1
"""


@pytest.mark.skipif(find_spec("keras") is None, reason="not an environment of all trainers")
@pytest.mark.parametrize(
    ("shards", "shape", "stored"),
    [
        (False, "(8, 8)", {"lightning.ckpt"}),
        (True, "(4, 8)", {"lightning.ckpt/__0_0.distcp", "lightning.ckpt/__1_0.distcp"}),
    ],
    ids=["ddp", "sharded"],
)
def test_paused_and_killed_training_on_two_ranks_ends_as_an_undisturbed_one(
    client: Client, tmp_path: Path, shards: bool, shape: str, stored: set[str]
) -> None:
    import torch

    folder = tmp_path / "context"
    folder.mkdir()
    gate = Gate(tmp_path, 6)
    before = '            print(f"step {self.global_step};", flush=True)'
    source = gate.source(DISTURBED, before=before, step="self.global_step")
    (folder / "fits.py").write_text(source)
    variable = [f"MARKER={tmp_path / 'killed'}"]
    changes = {
        "environment": {"environment_variables": variable},
        "hyperparameters": {"shards": shards},
    }
    experiment = create(client, DISTURBED_CONFIG, context=folder, changes=changes)
    wait_for_line(experiment, "step 5;")
    assert pause(experiment) is State.PAUSED
    gate.open()
    experiment.activate()
    ends = ends_as_undisturbed(experiment)
    assert f": [{shape}" in ends[0]  # of its first layer, which has (8, 8)
    saved = [each.steps_completed for each in experiment.checkpoints()]
    assert saved == [4, 8, 12, 16, 20, 24]
    best = experiment.best_checkpoint()
    assert stored <= best.files.keys()
    model = torch.nn.Module()
    layers = torch.nn.Linear(8, 8), torch.nn.Dropout(), torch.nn.Linear(8, 4)
    model.net = torch.nn.Sequential(*layers)
    assert best.load(model=model, weights_only=not shards) is model
