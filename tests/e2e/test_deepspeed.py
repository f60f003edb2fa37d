"""Engines of DeepSpeed on the two ranks of a trial, which is paused, fails and goes on."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from det_jupyter.client import Client
from det_jupyter.contract.messages import State
from tests.scripts import create, pause, wait_for_line
from tests.trials import Gate

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),  # DeepSpeed compiles an extension when it is first used
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs deepspeed"),
]

SOURCE = """
import deepspeed
import torch
from det_jupyter import core
from det_jupyter.errors import DetError
from det_jupyter.integrations.deepspeed import load_engine, save_engine

with core.init() as context:
    rank, hparams = context.distributed.rank, context.info.hparams
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 3,
        "zero_optimization": {"stage": hparams["stage"]},
        "zero_allow_untested_optimizer": True,
    }
    torch.manual_seed(7 + rank)
    layers = torch.nn.Linear(8, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1)
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    state = load_engine(engine)
    print(f"rank {rank} begins with {state};", flush=True)
    for operation in context.searcher.operations():
        while engine.global_steps < operation.length:
            loss = engine(torch.randn(4, 8)).square().mean()
            engine.backward(loss)
            engine.step()
            step = engine.global_steps
            batch = f"{step} + {engine.micro_steps % 3}"
            print(f"step {batch} of rank {rank}: {loss.item()!r};", flush=True)
            if context.distributed.is_chief:
                context.train.report_training_metrics(step, {"loss": loss.item()})
            if step == 8 and engine.micro_steps % 3 == 0:
                save_engine(engine, {"saved": step})
            elif step == 8:
                try:
                    save_engine(engine)
                except DetError as error:
                    print(f"refused: {error}")
            if step == 9 and hparams["disturbed"] and state != {"saved": 8}:
                raise RuntimeError("on purpose")
            if hparams["disturbed"]:
                if context.preempt.should_preempt():
                    save_engine(engine, {"saved": step})
                    raise SystemExit
        save_engine(engine)
        if context.distributed.is_chief:
            operation.report_completed(loss.item())
"""
CONFIG = """
entrypoint: python3 -m det_jupyter.launch.deepspeed train.py
resources: {slots_per_trial: 2}
searcher: {name: single, metric: loss, max_length: {batches: 12}}
max_restarts: 1
"""


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_disturbed_training_goes_on_as_if_it_had_not_been_disturbed(
    client: Client, tmp_path: Path, stage: int
) -> None:
    folder, gate = tmp_path / "context", Gate(tmp_path, 3)
    folder.mkdir()
    before = "                if context.preempt.should_preempt():"
    (folder / "train.py").write_text(gate.source(SOURCE, before=before, step="step"))
    losses = []
    for disturbed in (False, True):
        changes = {"hyperparameters": {"disturbed": disturbed, "stage": stage}}
        experiment = create(client, CONFIG, context=folder, changes=changes)
        if disturbed:
            wait_for_line(experiment, "step 2 + 1 of rank")
            assert pause(experiment) is State.PAUSED
            gate.open()
            experiment.activate()
        assert experiment.wait() == State.COMPLETED
        trial = experiment.trials[0]
        assert trial.view.restarts == int(disturbed)
        losses.append({line.text for line in trial.logs(search="of rank")})
        begun = trial.logs(search="begins with")
        assert len(begun) == (6 if disturbed else 2)
        refused = trial.logs(search="refused: save_engine: gradients are accumulated")
        assert len(refused) >= 2 * 2
    assert len(losses[0]) == 2 * 3 * 12
    assert losses[0] == losses[1]  # and what was trained twice has the same losses


TRIAL = """
import deepspeed
import torch
from torch.utils.data import TensorDataset
from det_jupyter.pytorch import DataLoader, PyTorchCallback
from det_jupyter.pytorch.deepspeed import DeepSpeedTrial, overwrite_deepspeed_config

class Counting(PyTorchCallback):
    saved = 0
    def on_checkpoint_save_start(self, state):
        self.saved += 1
    def state_dict(self):
        return {"saved": self.saved}
    def load_state_dict(self, state):
        self.saved = state["saved"]
        print(f"a state of {self.saved} checkpoints;", flush=True)

class Trial(DeepSpeedTrial):
    def __init__(self, context):
        self.context, hparams = context, context.get_hparams()
        layers = torch.nn.Linear(8, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1)
        model = torch.nn.Sequential(*layers)
        config = overwrite_deepspeed_config(
            {"train_micro_batch_size_per_gpu": 4, "zero_allow_untested_optimizer": True},
            {"gradient_accumulation_steps": 3, "zero_optimization": {"stage": hparams["stage"]}},
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
        self.engine = context.wrap_model_engine(engine)

    def train_batch(self, dataloader_iter, epoch_idx, batch_idx):
        x, y = self.context.to_device(next(dataloader_iter))
        loss = (self.engine(x) - y).square().mean()
        self.engine.backward(loss)
        self.engine.step()
        where = f"batch {batch_idx} of rank {self.context.distributed.rank}"
        print(f"{where}: {loss.item()!r} of {x.sum().item()!r};", flush=True)
        return {"loss": loss}

    def evaluate_batch(self, dataloader_iter, batch_idx):
        x, y = self.context.to_device(next(dataloader_iter))
        return {"error": (self.engine(x) - y).square().mean()}

    def build_training_data_loader(self):
        return self.loader(96, shuffle=True)

    def build_validation_data_loader(self):
        return self.loader(20, shuffle=False)

    def loader(self, records, shuffle):
        x = torch.randn(records, 8, generator=torch.Generator().manual_seed(records))
        size = self.context.get_train_micro_batch_size_per_gpu()
        return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), size, shuffle=shuffle)

    def build_callbacks(self):
        return {"counting": Counting()}
"""
FIRST = "        x, y = self.context.to_device(next(dataloader_iter))\n        loss"
TRIAL_CONFIG = """
entrypoint: python3 -m det_jupyter.launch.deepspeed --trial model_def:Trial
resources: {slots_per_trial: 2}
searcher: {name: single, metric: error, max_length: {epochs: 3}}
min_validation_period: {epochs: 1}
reproducibility: {experiment_seed: 7}
max_restarts: 0
"""


@pytest.mark.parametrize("stage", [1, 3])
def test_a_trial_of_an_engine_goes_on_after_a_pause_as_if_there_had_been_none(
    client: Client, tmp_path: Path, stage: int
) -> None:
    folder, gate = tmp_path / "context", Gate(tmp_path, 6)
    folder.mkdir()
    runs = []
    for disturbed in (False, True):
        source = gate.source(TRIAL, before=FIRST, step="batch_idx") if disturbed else TRIAL
        (folder / "model_def.py").write_text(source)
        changes = {"hyperparameters": {"stage": stage}}
        experiment = create(client, TRIAL_CONFIG, context=folder, changes=changes)
        if disturbed:
            wait_for_line(experiment, "batch 5 of rank")
            assert pause(experiment) is State.PAUSED
            gate.open()
            experiment.activate()
        assert experiment.wait() == State.COMPLETED
        trial = experiment.trials[0]
        # An epoch: 96 records are 12 micro batches of both ranks, and so 4 batches.
        assert trial.view.steps_completed == 12
        curves = {each.key[1:]: (each.steps, each.values) for each in experiment.curves()}
        assert curves["validation", "error"][0] == [4, 8, 12]
        assert len(trial.logs(search="a state of")) == 2 * disturbed
        runs.append(({line.text for line in trial.logs(search="of rank")}, curves))
    assert len(runs[0][0]) == 2 * 3 * 12
    assert runs[0] == runs[1]
    if stage == 1:
        torch = pytest.importorskip("torch")
        layers = torch.nn.Linear(8, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1)
        loaded = experiment.best_checkpoint().load(model=torch.nn.Sequential(*layers))
        assert not loaded.training
