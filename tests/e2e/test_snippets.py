"""Every Python block of README and docs that no comment marks runs here, in a notebook.

One kernel and one master for all of them; a page begins with what its reader has already. Those of
docs/integrations.md run where their libraries are (`make test-integrations`).
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.notebook_kernel import Notebook, notebook
from tests.processes import DetHome
from tests.snippets import snippets

pytestmark = pytest.mark.e2e

DATA = """
import subprocess, sys, time, torch
from pathlib import Path
from types import SimpleNamespace
from torch import nn
from torch.nn import functional as F
import det_jupyter
from det_jupyter import core, pytorch
from det_jupyter.pytorch import PyTorchCallback, PyTorchTrial

torch.manual_seed(0)
training_set = [(torch.randn(4), torch.tensor(index % 2)) for index in range(64)]
validation_set = dataset = training_set
def make_model():
    return nn.Linear(4, 2)
"""
# `context` and `self` of a trial, as its methods have them.
IN_A_TRIAL = """
entered = pytorch.init(hparams={"global_batch_size": 8, "lr": 0.1})
context = entered.__enter__()
self = SimpleNamespace(context=context, model=context.wrap_model(make_model()))
self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))
scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
MNIST = lambda folder, download: []
"""
LEAVE = "entered.__exit__(None, None, None)"
ENDED = """
if "experiment" not in globals():
    settings = {
        "hyperparameters": {"global_batch_size": 8, "lr": 0.1},
        "searcher": {"name": "single", "metric": "accuracy", "smaller_is_better": False,
                     "max_length": {"batches": 8}},
    }
    Path("digits.yaml").write_text(__import__("json").dumps(settings))
    experiment = det_jupyter.submit(DigitsTrial, settings, name="wide nets", labels=["fast"])
    assert experiment.wait().value == "COMPLETED"
"""
BEFORE = {
    "docs/training.md": IN_A_TRIAL,
    "docs/exactness.md": f"""{IN_A_TRIAL}
logits = torch.randn(2, 3, 5, requires_grad=True)
labels = torch.randint(0, 5, (2, 3))
""",
    "docs/batch-inference.md": "model = make_model()",
    "docs/core-api.md": """
Model, train, evaluate = make_model, lambda model, lr: 0.5, lambda model: 0.5
def save(model, step, folder):
    torch.save(model, folder / "model.pt")
""",
    "docs/models.md": f"""{ENDED}
better = det_jupyter.submit(DigitsTrial, "digits.yaml")
assert better.wait().value == "COMPLETED"
""",
    "docs/questions.md": f"{ENDED}\nearlier, newest = experiment, det_jupyter.experiments()[0].id",
    "docs/launchers.md": "rank = 0\nPath('train.py').write_text('print(1)')",
}
AFTER = {
    "docs/exactness.md": LEAVE,
    "docs/training.md": LEAVE,
    "docs/launchers.md": "assert worker.wait(60) == 0",
    "docs/looking-back.md": "[each.kill() for each in det_jupyter.experiments(state='active')]",
    "docs/models.md": "model.delete()",
    "docs/questions.md": """
ours = [each for each in det_jupyter.experiments() if each.id > newest]
assert {each.wait().value for each in ours} == {"COMPLETED"}, ours
experiment = earlier
""",
    "docs/scheduling.md": "child.kill()",
}
OF_LIBRARIES = "docs/integrations.md"
FOUND = [each for each in snippets("python") if not each.why_not and each.page != OF_LIBRARIES]


@pytest.fixture(scope="module")
def kernel(home: DetHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    with notebook(tmp_path_factory.mktemp("pages")) as running:
        running.check("%load_ext det_jupyter")
        running.check(DATA)
        (trial,) = (
            each
            for each in FOUND
            if "self.model(images).argmax" in each.text and each.page == "docs/training.md"
        )  # other pages go on with it
        running.check(trial.text)
        running.check("DefinedTrial = DigitsTrial")
        yield running


@pytest.mark.parametrize("page", list(dict.fromkeys(each.page for each in FOUND)))
def test_the_snippets_of_a_page_run(kernel: Notebook, page: str) -> None:
    kernel.check("DigitsTrial = DefinedTrial  # README has one that does nothing")
    kernel.check(BEFORE.get(page, ""))
    for snippet in FOUND:
        if snippet.page == page:
            if re.search(r"\bexperiments?\b", snippet.text):
                kernel.check(ENDED)
            outputs = kernel.run(snippet.text)
            assert outputs.error is None, f"{snippet.place}\n{outputs.error}"
    kernel.check(AFTER.get(page, ""))


# What the reader of a library's section has, by the library; and the call of what it defines.
LIBRARIES = {
    "lightning": (
        """
import lightning as L
class Net(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.save_hyperparameters()
        self.layer = nn.Linear(4, 1)
    def training_step(self, batch, index):
        return self.layer(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)
data = torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=4)
""",
        "finetune(context, {'lr': 0.01})",
    ),
    "keras": (
        """
import numpy
x = x_val = numpy.random.rand(16, 4).astype("float32")
y = y_val = numpy.arange(16) % 10
""",
        "train(context, {'lr': 0.01})",
    ),
    "transformers": (
        """
from transformers import GPT2Config, GPT2LMHeadModel
GPT2LMHeadModel(GPT2Config(
    n_layer=1, n_head=1, n_embd=8, vocab_size=16, n_positions=8, bos_token_id=0, eos_token_id=0
)).save_pretrained("model")
train = test = [{"input_ids": each, "labels": each} for each in torch.randint(0, 16, (8, 4))]
""",
        "finetune(context, {'learning_rate': 0.01, 'use_cpu': True, 'disable_tqdm': True})",
    ),
    "accelerate": (
        """
def make_all():
    model = nn.Linear(4, 1)
    loader = torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=4, shuffle=True)
    return model, torch.optim.SGD(model.parameters(), lr=0.1), loader
""",
        "train(context, {})",
    ),
    "tensorboard": (
        """
from torch.utils.tensorboard import SummaryWriter
loader, loss = [(torch.zeros(1), torch.zeros(1))] * 3, 0.5
""",
        "writer.close()",
    ),
}


@pytest.mark.skipif(find_spec("keras") is None, reason="not an environment of all trainers")
@pytest.mark.timeout(900)  # a library's import takes minutes where many others compute
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_snippet_of_a_library_trains(library: str, tmp_path: Path) -> None:
    before, call = LIBRARIES[library]
    word = "SummaryWriter(" if library == "tensorboard" else f"integrations.{library} "
    (snippet,) = (
        each
        for each in snippets("python")
        if each.page == OF_LIBRARIES and not each.why_not and word in each.text
    )
    trained = f"with core.init() as context:\n    {call}"
    file = tmp_path / "train.py"  # a script, since Lightning's strategies refuse notebooks
    file.write_text("\n".join((DATA, before, snippet.text, trained)), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-W", "ignore", file.name],
        cwd=tmp_path, capture_output=True, text=True, timeout=880, check=False,
    )  # fmt: skip
    assert run.returncode == 0, f"{snippet.place}\n{run.stderr[-3000:]}"


def test_each_snippet_of_a_library_is_one_of_those() -> None:
    left = [each for each in snippets("python") if each.page == OF_LIBRARIES]
    assert len([each for each in left if not each.why_not]) == len(LIBRARIES)
