"""What ranks exchange on GPUs: the numbers of one rank, also compressed, sharded and resumed.

With one device two ranks share it: NCCL allows that to ranks that believe to be on different
computers. Skipped where there is no device.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from det_jupyter.pytorch.steps.precision import Precision

NUM_DEVICES = torch.cuda.device_count()

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(NUM_DEVICES == 0, reason="there is no CUDA device"),
]

SOURCE = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from det_jupyter.core import DistributedContext
from det_jupyter.pytorch import parallel
from det_jupyter.pytorch.parallel import ParallelOptions

store, rank, devices, answer = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
device = torch.device(f"cuda:{rank % devices}")
torch.cuda.set_device(device)
where = f"file://{store}"
dist.init_process_group("cpu:gloo,cuda:nccl", init_method=where, rank=rank, world_size=2)
context = DistributedContext(
    rank=rank, size=2, local_rank=rank, local_size=2, cross_rank=0, cross_size=1,
    secret=store.encode(),
)

def train(options, batches, state=None):
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(64, 96), nn.Tanh(), nn.Linear(96, 32)).double().to(device)
    model = parallel.parallelize(model, device, context, options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    first = 0
    if state:
        first, weights, moments, memory = state
        parallel.load_model_state(model, weights)
        parallel.load_optimizer_state([model], optimizer, moments)
        parallel.load_rank_state([model], memory)
    for index in range(first, batches):
        generator = torch.Generator().manual_seed(index)
        records = torch.randn(8, 64, generator=generator, dtype=torch.float64).chunk(2)[rank]
        model(records.to(device)).square().mean().backward()
        nn.utils.clip_grad_norm_(list(model.parameters()), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    state = context.broadcast((parallel.model_state(model),
                               parallel.optimizer_state([model], optimizer)))
    return batches, *state, parallel.rank_state([model])

found = {}
for kind in ("fp16", "bf16", "powersgd", None, "fsdp"):
    sharding = kind if kind == "fsdp" else None
    options = ParallelOptions(compression=None if sharding else kind, sharding=sharding)
    straight = train(options, 16)[1]
    resumed = train(options, 16, train(options, 12))[1]
    same = all(torch.equal(straight[k].cpu(), resumed[k].cpu()) for k in straight)
    found[str(kind)] = same, {k: v.cpu() for k, v in straight.items()}
if rank == 0:
    torch.save(found, answer)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Train on two ranks in each way, straight and with a pause."""
    folder = tmp_path_factory.mktemp("ranks")
    script = folder / "rank.py"
    script.write_text(SOURCE)
    shares = NUM_DEVICES < 2
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    argv = [sys.executable, str(script), str(folder / "store")]
    ranks = [
        subprocess.Popen(
            [*argv, str(rank), str(NUM_DEVICES), str(folder / "answer")],
            env=environment | ({"NCCL_HOSTID": f"rank-{rank}"} if shares else {}),
        )
        for rank in range(2)
    ]
    try:
        assert [rank.wait() for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return torch.load(folder / "answer")


@pytest.mark.parametrize("kind", ["None", "fp16", "bf16", "powersgd", "fsdp"])
def test_a_paused_run_ends_with_the_same_bits(found: Any, kind: str) -> None:
    is_same, _ = found[kind]
    assert is_same


def test_sharded_and_replicated_ranks_train_the_same(found: Any) -> None:
    for name, value in found["None"][1].items():
        torch.testing.assert_close(found["fsdp"][1][name], value, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", ["fp16", "bf16", "powersgd"])
def test_compressed_gradients_train_nearly_the_same(found: Any, kind: str) -> None:
    for name, value in found["None"][1].items():
        assert not torch.equal(found[kind][1][name], value)
        torch.testing.assert_close(found[kind][1][name], value, rtol=0.1, atol=0.05)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_forward_pass_computes_in_16_bits(dtype: torch.dtype) -> None:
    device = torch.device("cuda:0")
    precision = Precision(device, dtype)
    model = precision.wrap_forward(torch.nn.Linear(64, 64).to(device))
    inputs = torch.randn(8, 64, device=device)
    outputs = model(inputs)
    assert outputs.dtype == torch.float32
    assert torch.equal(outputs, outputs.to(dtype).float())
    precision.scale(outputs.mean()).backward()
    assert model.weight.grad is not None
    assert torch.isfinite(model.weight.grad).all()
