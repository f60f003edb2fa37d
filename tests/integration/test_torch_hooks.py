"""Torch's hooks that time a loop: they change nothing of what torch does."""

from __future__ import annotations

import subprocess
import sys

import pytest

# In a process of its own, since hooks stay.
SCRIPT = """
import io, sys, warnings
warnings.simplefilter("error")
from det_jupyter.core import RecordList
from det_jupyter.core.timings.any_loop import LoopTimings
from det_jupyter.core.timings.torch_hooks import clock_of, watch
assert "torch" not in sys.modules
sink = RecordList()
loop = LoopTimings(sink, open_clock=clock_of)
watch(loop)
assert "torch" not in sys.modules
import torch
from torch import nn
from torch.nn.modules import module
from torch._dynamo.utils import counters

def train(model, num):
    optimizer = torch.optim.SGD(nn.Module.parameters(weights), lr=0.1)
    before = len(sink.records)
    data = torch.utils.data.DataLoader(torch.randn(4 * num, 8), batch_size=4)
    for inputs in data:
        model(inputs).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    loop.flush()
    records = sink.records[before:]
    times = [part for record in records for part in record.parts.items()]
    nums = {name: sum(part.num for other, part in times if other == name) for name, _ in times}
    return sum(record.batches for record in records), nums

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    def forward(self, inputs):
        return self.layers(inputs)

weights = Net()
assert train(weights, 4)[0] == 3
before = len(sink.records)
torch.save(weights.state_dict(), io.BytesIO())
loop.flush()
(record,) = sink.records[before:]
assert record.parts["checkpoint"].num == 1, record
for compiled in (
    torch.compile(weights, backend="eager"),
    torch.compile(lambda inputs: weights(inputs), backend="eager", fullgraph=True),
):
    torch._dynamo.reset()
    counters.clear()
    batches, nums = train(compiled, 6)
    assert batches == 6
    assert nums["forward"] == nums["backward"] == nums["optimizer"] == 6, nums
    assert counters["stats"]["unique_graphs"] == 1, counters
    assert not counters["graph_break"], counters
inside = Net()
inside.compile(backend="eager")
weights = inside
torch._dynamo.reset()
counters.clear()
assert train(inside, 6)[1]["forward"] == 6
assert counters["stats"]["unique_graphs"] == 1, counters
loop.close()
assert not module._global_forward_pre_hooks
print("as without hooks")
"""


@pytest.mark.long  # compiles models
def test_hooks_come_with_torch_and_change_no_compiled_graph() -> None:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert run.stdout == "as without hooks\n", run.stderr
