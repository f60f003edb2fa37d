"""A Trainer of transformers on the two ranks of a trial that is paused, and may be killed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.client import Client
from det_jupyter.contract.messages import State
from tests.scripts import create, ends_as_undisturbed, pause, wait_for_line
from tests.trials import Gate

pytestmark = pytest.mark.e2e

# Its import takes seconds of a core in each rank: what is compared runs in the same processes, and
# libraries that it imports if they are installed are hidden ([m] 1.8 instead of 3.2 s CPU).
SOURCE = """
import hashlib, os, pathlib, signal, sys
sys.modules.update(dict.fromkeys(["boto3", "datasets", "pandas", "scipy", "sklearn"]))
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, set_seed
from det_jupyter.integrations.transformers import DetCallback, training_arguments

CONFIG = GPT2Config(
    n_layer=1, n_head=1, n_embd=8, vocab_size=16, n_positions=8, bos_token_id=0, eos_token_id=0
)
KILLED = pathlib.Path(os.environ["MARKER"])

class Disturbed(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        print("step", state.global_step)
        if state.global_step == 13 and args.process_index == 1 and not KILLED.exists():
            KILLED.touch()
            os.kill(os.getpid(), signal.SIGKILL)

def history(trainer):
    times = ("runtime", "per_second")
    for log in trainer.state.log_history:
        if "train_loss" not in log:
            yield sorted(pair for pair in log.items() if not pair[0].endswith(times))

def train(hparams, folder, callbacks, checkpoint):
    set_seed(3)
    tokens = torch.randint(0, 16, (48, 8), generator=torch.Generator().manual_seed(1))
    data = [{"input_ids": each, "labels": each} for each in tokens]
    arguments = training_arguments(
        hparams, output_dir=folder, num_train_epochs=4, per_device_train_batch_size=4,
        logging_steps=2, eval_strategy="epoch", save_strategy="epoch",
    )
    trainer = Trainer(
        GPT2LMHeadModel(CONFIG), arguments, train_dataset=data[8:], eval_dataset=data[:8],
        callbacks=callbacks,
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    weight = sum(each.sum().item() for each in trainer.model.parameters())
    digest = hashlib.sha256(repr(list(history(trainer))).encode()).hexdigest()
    return f"{weight!r}, {digest};"

def main(core_context, hparams, info):
    if info.latest_checkpoint is None:
        print("alone:", train(hparams, "alone", [], None))
    det = DetCallback()
    ended = train(hparams, "out", [det, Disturbed()], det.resume_from_checkpoint)
    if not det.has_left:
        print("disturbed:", ended)
"""
CONFIG = """
entrypoint: fits:main
hyperparameters: {learning_rate: 0.01}
resources: {slots_per_trial: 2}
searcher: {name: single, metric: eval_loss, max_length: {batches: 20}}
reproducibility: {experiment_seed: 5}
max_restarts: 1
"""

RANDOM = {"rng_state_0.pth", "rng_state_1.pth"}


def zero(stage: int) -> Any:
    """Return the parameter of ZeRO's stage: an argument of the Trainer, and files of its state."""
    deepspeed = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    states = [f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in (0, 1)]
    return pytest.param(
        {"deepspeed": deepspeed},
        RANDOM | {f"global_step20/{each}" for each in states},
        True,
        id=f"zero-{stage}",
        marks=[
            pytest.mark.timeout(900),  # DeepSpeed compiles an extension when it is first used
            pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs deepspeed"),
        ],
    )


@pytest.mark.parametrize(
    ("arguments", "stored", "is_killed"),
    [
        pytest.param({}, RANDOM | {"model.safetensors"}, False, id="ddp"),
        pytest.param(
            {}, RANDOM | {"model.safetensors"}, True, id="ddp, killed", marks=pytest.mark.long
        ),
        zero(2),
        zero(3),
    ],
)
def test_paused_and_killed_training_on_two_ranks_ends_as_an_undisturbed_one(
    client: Client, tmp_path: Path, arguments: dict[str, Any], stored: set[str], is_killed: bool
) -> None:
    if not is_killed:
        (tmp_path / "killed").touch()
    folder = tmp_path / "context"
    folder.mkdir()
    gate = Gate(tmp_path, 4)
    before = '        print("step", state.global_step)'
    (folder / "fits.py").write_text(gate.source(SOURCE, before=before, step="state.global_step"))
    variable = [f"MARKER={tmp_path / 'killed'}"]
    changes = {
        "environment": {"environment_variables": variable},
        "hyperparameters": arguments,
    }
    experiment = create(client, CONFIG, context=folder, changes=changes)
    wait_for_line(experiment, "alone:")
    wait_for_line(experiment, "step 3")
    assert pause(experiment) is State.PAUSED
    gate.open()
    experiment.activate()
    ends_as_undisturbed(experiment, restarts=int(is_killed))
    curves = {each.name: each.steps for each in client.curves(experiment.id)}
    assert curves["loss"] == list(range(2, 21, 2))
    assert curves["eval_loss"] == list(range(5, 21, 5))
    saved = [each.steps_completed for each in experiment.checkpoints()]
    assert len(saved) == len(set(saved))
    (last,) = (each for each in experiment.checkpoints() if each.steps_completed == 20)
    assert stored <= last.files.keys()
