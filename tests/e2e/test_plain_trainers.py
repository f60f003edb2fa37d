"""A Trainer that a notebook's function calls without DetCallback: said, and mended by a button."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.client.answers.answering import answer
from det_jupyter.contract.messages import State
from det_jupyter.errors import NotFound
from tests.notebook_kernel import notebook

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is absent"),
]

# The notebook's own process never imports transformers, which takes seconds. To save a model of
# transformers takes another second.
CELL = """
def finetune(core_context, hparams):
    import torch
    from transformers import Trainer, TrainingArguments

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def forward(self, inputs, labels):
            return {"loss": (self.layer(inputs) - labels).square().mean()}

    data = [{"inputs": torch.randn(8), "labels": torch.ones(1)} for _ in range(8)]
    arguments = TrainingArguments(
        "out", max_steps=4, save_steps=2, eval_strategy="steps", eval_steps=2, use_cpu=True,
        report_to=[], disable_tqdm=True,
    )
    trainer = Trainer(
        Net(), arguments, train_dataset=data, eval_dataset=data
    )
    trainer.train()
"""
SUBMIT = """
import det_jupyter
length = {"name": "single", "metric": "eval_loss", "max_length": {"batches": 4}}
print("is", det_jupyter.submit(finetune, {"searcher": length}).id)
"""
SAID = "`finetune` calls transformers.Trainer without DetCallback, so nothing is saved"


def test_it_is_said_at_submission_and_afterwards_and_the_button_mends_it(
    client: Client, tmp_path: Path
) -> None:
    with notebook(tmp_path) as kernel:
        kernel.check("%load_ext det_jupyter")
        kernel.check(CELL)
        said = kernel.check(SUBMIT).all_text
        assert SAID in said
        first = int(said.rpartition("is ")[2])
        plain = Experiment(client, first)
        assert plain.wait() is State.COMPLETED
        assert plain.view.trials[0].plain_trainer == "transformers.Trainer"  # the run saw it too
        with pytest.raises(NotFound, match=SAID):
            plain.best_checkpoint()
        changed = answer(client, first, {"type": "callback", "request": "1"})
        assert (changed["error"], changed["before"].strip()) == ("", CELL.strip())
        kernel.check(changed["after"])
        said = kernel.check(SUBMIT).all_text
        assert SAID not in said
        mended = Experiment(client, int(said.rpartition("is ")[2]))
        assert mended.wait() is State.COMPLETED
        assert mended.view.plain_trainer == ""
        assert mended.best_checkpoint().steps_completed in (2, 4)
