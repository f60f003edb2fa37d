"""Scripts that know nothing of det_jupyter: where their time goes, and the verdict on them.

They sleep where they are slow, so several train at the same time on few cores.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from det_jupyter.client import Experiment
from det_jupyter.contract.messages import State, Verdict
from tests.e2e.test_scripts import start
from tests.processes import DetHome

pytestmark = pytest.mark.e2e

SCRIPT = """
import os, sys, time
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

kind, ends = sys.argv[1], time.monotonic() + 4.6
distributed.init_process_group("gloo")
is_last = distributed.get_rank() == 1

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        time.sleep(0.04 * (kind == "input" or (kind == "straggler" and is_last)))
        return torch.randn(4, 8)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    def forward(self, inputs):
        time.sleep(0.04 if kind == "compute" else 0.003)
        return self.layers(inputs)

def exchanged_slowly(state, bucket):
    def later(future):
        time.sleep(0.04)
        return future.value()[0] / 2
    return distributed.all_reduce(bucket.buffer(), async_op=True).get_future().then(later)

model = DistributedDataParallel(Net())
if kind == "communication":
    model.register_comm_hook(None, exchanged_slowly)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
is_over = torch.zeros(1)
while not is_over:
    for inputs in torch.utils.data.DataLoader(Data(), batch_size=None):
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    is_over.fill_(time.monotonic() > ends)
    distributed.broadcast(is_over, 0)
"""
KINDS = ("input", "compute", "straggler", "communication")


@pytest.fixture(scope="module")
def ended(
    home: DetHome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Experiment]]:
    """Return an experiment of each kind, on two ranks, that has completed."""
    client = home.client()
    launcher = "python3 -m det_jupyter.launch.torch_distributed"
    experiments = {
        kind: start(
            client,
            tmp_path_factory.mktemp(kind),
            f"{launcher} train.py {kind}",
            {"train.py": SCRIPT},
            resources={"slots_per_trial": 2},
        )
        for kind in KINDS
    }
    for experiment in experiments.values():
        assert experiment.wait() is State.COMPLETED
    yield experiments
    client.session.close()


def verdict_of(experiment: Experiment) -> Verdict:
    verdict = experiment.view.trials[0].verdict
    assert verdict is not None
    return verdict


def test_the_verdict_on_a_script_is_what_it_was_made_for(ended: dict[str, Experiment]) -> None:
    found = {kind: verdict_of(experiment) for kind, experiment in ended.items()}
    sentences = {kind: verdict.sentence for kind, verdict in found.items()}
    assert found["input"].kind == "input", sentences
    assert found["compute"].kind in ("healthy", "compute"), sentences
    assert found["communication"].kind == "communication", sentences
    assert found["straggler"].kind == "straggler", sentences
    slow = found["straggler"].causes[0]
    assert (slow.rank, slow.because) == (1, "data")
    assert "num_workers" in sentences["input"] or "full" in sentences["input"]
    # What the configuration or a diagnosis could change of a PyTorchTrial is not for a script.
    for sentence in sentences.values():
        assert "optimizations." not in sentence
        assert "diagnose" not in sentence
