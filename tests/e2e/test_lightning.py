"""A Trainer of Lightning on the two ranks of a trial."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.client import Client
from det_jupyter.contract.messages import LogQuery, State
from det_jupyter.contract.trial.origin import Origin
from tests.scripts import create

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
    assert experiment.wait(timeout=150) == State.COMPLETED
    assert [each.steps_completed for each in experiment.checkpoints()] == [4, 8]
    assert experiment.view.trials[0].best_metric is not None
    origin = Origin.read(experiment.best_checkpoint().path)
    assert (origin.library, origin.trial_class) == ("lightning", "fits:Net")
    assert origin.blobs is not None  # the code is there
    lines = client.experiment_logs(experiment.id, LogQuery()).lines
    ended = [line.text for line in lines if "ended at 8" in line.text]
    assert len(ended) == 2
    assert len({text[text.index("with") :] for text in ended}) == 1
