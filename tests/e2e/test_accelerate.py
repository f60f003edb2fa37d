"""A loop with Accelerate on the two ranks of a trial that is paused, and then killed.

It is killed within a window of accumulated gradients, and continues within one.

The ranks are ours, which call a function, and those of a launcher, which run a script.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from det_jupyter.client import Client
from det_jupyter.contract.messages import State
from tests.scripts import create, ends_as_undisturbed, pause, wait_for_line
from tests.trials import Gate

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(find_spec("keras") is None, reason="not an environment of all trainers"),
]

# Its import takes seconds: what is compared runs in the same processes.
SOURCE = """
import hashlib, os, pathlib, signal
import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset
from det_jupyter import core
from det_jupyter.integrations.accelerate import DetTracker

STEPS_PER_EPOCH, NUM_STEPS = 5, 20
SAVE_EVERY = 7  # within windows, which are 3 batches, and the last 2 of an epoch
KILLED = pathlib.Path(os.environ["MARKER"])

def disturb(step, rank):
    print(f"step {step};", flush=True)
    if step == 17 and rank == 1 and not KILLED.exists():
        KILLED.touch()
        os.kill(os.getpid(), signal.SIGKILL)

def train(det):
    set_seed(3)
    data = TensorDataset(torch.randn(2 * 4 * STEPS_PER_EPOCH, 8))
    seeded = DataLoaderConfiguration(use_seedable_sampler=True)
    accelerator = Accelerator(
        cpu=True, log_with=det, dataloader_config=seeded, gradient_accumulation_steps=3
    )
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Dropout(0.2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = DataLoader(data, 4, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    torch.manual_seed(accelerator.process_index)  # the ranks draw different numbers
    accelerator.init_trackers("mine")
    step = det.load_state(accelerator) if det else 0
    epoch = 0
    while step < NUM_STEPS:
        loader.set_epoch(epoch)
        epoch += 1
        for (batch,) in det.batches(loader) if det else loader:
            with accelerator.accumulate(model):
                loss = model(batch).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            step += 1
            loss = accelerator.gather(loss.detach()).mean().item()
            accelerator.log({"loss": loss}, step=step)
            if det:
                disturb(step, accelerator.process_index)
                if step % STEPS_PER_EPOCH == 0:
                    accelerator.log({"val_loss": loss}, step=step)
                if step % SAVE_EVERY == 0:
                    det.save_state(step)
                if det.leaves(step):
                    return ""
    state = [*model.state_dict().values(), torch.get_rng_state()]
    digest = hashlib.sha256(b"".join(each.numpy().tobytes() for each in state)).hexdigest()
    return f"rank {accelerator.process_index}: {loss!r}, {digest};"

def main(core_context):
    if core_context.info.latest_checkpoint is None:
        print("alone:", train(None), flush=True)
    ended = train(DetTracker(core_context))
    if ended:
        print("disturbed:", ended, flush=True)

if __name__ == "__main__":
    with core.init(distributed=core.DistributedContext.from_torch_distributed()) as context:
        main(context)
"""
CONFIG = """
resources: {slots_per_trial: 2}
searcher: {name: single, metric: val_loss, max_length: {batches: 20}}
checkpoint_storage: {save_trial_latest: 9}
max_restarts: 1
"""


@pytest.mark.parametrize(
    "entrypoint", ["fits:main", "python3 -m det_jupyter.launch.torch_distributed fits.py"]
)
def test_paused_and_killed_training_on_two_ranks_ends_as_an_undisturbed_one(
    client: Client, tmp_path: Path, entrypoint: str
) -> None:
    folder = tmp_path / "context"
    folder.mkdir()
    gate, before = Gate(tmp_path, 8), '    print(f"step {step};", flush=True)'
    (folder / "fits.py").write_text(gate.source(SOURCE, before=before, step="step"))
    variable = [f"MARKER={tmp_path / 'killed'}"]
    changes = {
        "entrypoint": entrypoint,
        "environment": {"environment_variables": variable},
    }
    experiment = create(client, CONFIG, context=folder, changes=changes)
    wait_for_line(experiment, "step 7;")
    assert pause(experiment) is State.PAUSED
    (trial,) = experiment.view.trials
    left = trial.steps_completed
    assert 7 <= left < 17
    assert left in [each.steps_completed for each in experiment.checkpoints()]
    gate.open()
    experiment.activate()
    ends_as_undisturbed(experiment)
    curves = {each.name: each.steps for each in client.curves(experiment.id)}
    assert curves["loss"] == list(range(1, 21))
    assert curves["val_loss"] == [5, 10, 15, 20]
    saved = [each.steps_completed for each in experiment.checkpoints()]
    assert left % 5 in (0, 3)  # where the optimizer has stepped
    assert saved == sorted([7, 14, left])
    first = experiment.checkpoints()[0].files.keys()
    assert {"generators-0.pt", "generators-1.pt", "model.safetensors"} <= first
    assert {"gradients-0.pt", "gradients-1.pt"} <= first
