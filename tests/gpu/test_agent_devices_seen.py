"""What the driver itself says of a stranger. Skipped where there is no device."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import torch

from det_jupyter.agent.devices.identify import identify
from det_jupyter.agent.devices.nvml import NvmlProbe, ProcessUse, cuda_devices, open_nvml
from det_jupyter.agent.devices.occupancy import Occupancy
from det_jupyter.agent.devices.offered_slots import discover_slots
from det_jupyter.contract.messages import DeviceProcess, SlotView
from tests.processes import wait_until

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() == 0, reason="there is no CUDA device"),
]

GIB = 1 << 30
HOLD = """
import sys, torch
held = torch.zeros(3 << 28, device="cuda")  # 3 GiB
torch.cuda.synchronize()
print("held", flush=True)
sys.stdin.readline()
while True:
    held.add_(1)
"""


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def strangers(slot: SlotView, probe: NvmlProbe) -> Occupancy:
    """Return who is on the device, us included: the stranger is our own child here."""

    def identified(use: ProcessUse, now: float) -> DeviceProcess | None:
        return identify(
            use.pid, memory_bytes=use.memory_bytes, notebook_of=lambda kernel, pid: None
        )

    return Occupancy([slot], probe=probe.read, identify=identified, is_own=lambda pid: False)


def test_memory_of_a_stranger_is_seen_and_is_gone_with_it(
    stranger: subprocess.Popen[bytes],
) -> None:
    slot, probe = discover_slots()[0], open_nvml()
    occupancy = strangers(slot, probe)
    occupancy.read(time.time(), [])
    who = occupancy.read(time.time(), [])[slot.id]
    # In a container the driver may not name it, or name it by a pid that is nobody's there.
    assert {process.pid for process in who} & {stranger.pid} or "unknown process" in {
        process.command for process in who
    }
    assert sum(process.memory_bytes for process in who) > 3 * GIB
    stranger.kill()
    stranger.wait()

    def is_free() -> bool:
        found = occupancy.read(time.time(), []).get(slot.id, [])
        return sum(process.memory_bytes for process in found) < GIB

    wait_until(is_free, "the memory is free")


def test_who_computes_is_busy_where_the_driver_can_say(stranger: subprocess.Popen[bytes]) -> None:
    slot, probe = cuda_devices()[0], open_nvml()
    if probe.read(slot).busy_pids is None:
        pytest.skip("the driver does not say who computes")
    assert stranger.stdin is not None
    stranger.stdin.write(b"\n")
    stranger.stdin.flush()
    wait_until(lambda: probe.read(slot).busy_pids, "somebody is busy")
