"""The rival's script: the first step of a DDP model under torchrun."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
inputs, targets = torch.randn(256, 64), torch.randint(0, 10, (256,))
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
share = slice(dist.get_rank() * 32, (dist.get_rank() + 1) * 32)
loss = nn.functional.cross_entropy(model(inputs[share]), targets[share])
loss.backward()
optimizer.step()
if dist.get_rank() == 0:
    print(f"first step at {time.time():.6f}", flush=True)
dist.barrier()  # otherwise rank 0 may end the store while rank 1 still needs it
dist.destroy_process_group()
