"""Memory of a batch on a GPU, by part and as its allocator counts. Skipped where there is none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from det_jupyter.pytorch.training.memory_meter import MemoryMeter

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() == 0, reason="there is no CUDA device"),
]


def test_parts_are_exact_and_the_peak_is_the_allocators() -> None:
    device = torch.device("cuda", 0)
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(256, 512, device=device)
    context = SimpleNamespace(device=device, models=[model], optimizers=[optimizer])
    meter = MemoryMeter(cast("Any", context))
    with meter.counting():
        for _ in range(2):
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    found = meter.read()
    numbers = sum(each.numel() for each in model.parameters())
    assert found["parameter_bytes"] == found["gradient_bytes"] == 4 * numbers
    assert found["optimizer_bytes"] == 8 * numbers + 4 * 4, (
        "two moments, and a step on the CPU each"
    )
    assert found["activation_bytes"] == 4 * 256 * (512 + 2048 + 512)
    standing = found["parameter_bytes"] + found["optimizer_bytes"]
    assert standing < torch.cuda.max_memory_allocated(device) <= found["peak_bytes"]
    assert found["peak_bytes"] < found["slot_bytes"]
    assert found["slot_bytes"] == torch.cuda.mem_get_info(device)[1]
