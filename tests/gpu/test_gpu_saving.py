"""Snapshots of what lies on a GPU. Skipped where there is none."""

from __future__ import annotations

import pytest
import torch

from det_jupyter.pytorch.checkpoints.state_snapshot import SnapshotMemory, StateSnapshot

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() == 0, reason="there is no CUDA device"),
]


def test_a_snapshot_holds_what_was_there_while_the_device_trains_on() -> None:
    memory = SnapshotMemory()
    for round_ in range(3):  # the second round uses the page-locked memory of the first
        tensors = [torch.full((1 << 22,), float(i + round_), device="cuda") for i in range(8)]
        snapshot = StateSnapshot(memory)
        copied = snapshot.take({"tensors": tensors})
        for tensor in tensors:
            tensor.fill_(-1.0)  # queued behind the copies
        memory.wait()
        assert snapshot.unsafe == []
        for i, tensor in enumerate(copied["tensors"]):
            assert tensor.device.type == "cpu"
            assert tensor.is_pinned()
            assert torch.equal(tensor, torch.full((1 << 22,), float(i + round_)))
        memory.release()
