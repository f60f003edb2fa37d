"""An engine of DeepSpeed on the two ranks of a trial, which fails and goes on."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from det_jupyter.client import Client
from det_jupyter.contract.messages import State
from tests.scripts import create

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),  # DeepSpeed compiles an extension when it is first used
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs deepspeed"),
]

SOURCE = """
import deepspeed
import torch
from det_jupyter import core
from det_jupyter.integrations.deepspeed import load_engine, save_engine

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
}

with core.init() as context:
    torch.manual_seed(7 + context.distributed.rank)
    layers = torch.nn.Linear(8, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1)
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    state = load_engine(engine)
    losses = []
    while engine.global_steps < 6:
        loss = engine(torch.randn(4, 8)).square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
        if context.distributed.is_chief:
            context.train.report_training_metrics(engine.global_steps, {"loss": loss.item()})
        if engine.global_steps == 3:
            save_engine(engine, {"epoch": 1})
        if engine.global_steps == 4 and state is None and context.info.hparams["fails"]:
            raise RuntimeError("on purpose")
    save_engine(engine)
    assert state in (None, {"epoch": 1})
    print(f"losses of rank {context.distributed.rank}: {losses[-3:]};")
"""
CONFIG = """
entrypoint: python3 -m det_jupyter.launch.deepspeed train.py
hyperparameters: {fails: false}
resources: {slots_per_trial: 2}
searcher: {name: single, metric: loss, max_length: {batches: 6}}
max_restarts: 1
"""


def test_failed_training_goes_on_as_if_it_had_not_failed(client: Client, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SOURCE)
    losses = []
    for fails in (False, True):
        changes = {"hyperparameters": {"fails": fails}}
        experiment = create(client, CONFIG, context=tmp_path, changes=changes)
        assert experiment.wait(timeout=800) == State.COMPLETED
        trial = experiment.trials[0]
        assert trial.view.restarts == int(fails)
        losses.append(sorted(line.text for line in trial.logs(search="losses of rank")))
    assert len(losses[0]) == 2
    assert losses[0] == losses[1]
