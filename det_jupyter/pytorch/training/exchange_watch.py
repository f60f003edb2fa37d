"""Leaving an exchange of NCCL when another rank was killed, without a step on what it left behind.

A rank of NCCL does not notice that another one has ended: its device waits in the exchange, and
the host runs ahead of the device. A communicator that is aborted ends the wait, but the device
then goes on with what is queued behind: with gradients that are those of no batch.

    agent           writes the end of a rank into the control page
    watch, thread   notes that, and only then aborts the process groups
    rank            before an optimizer steps, waits until the device has done all that is queued;
                    if nothing is noted then, the exchange was complete before any abort

So no step is queued before its exchange is known to be complete, and the host runs ahead of the
device by one step at most. Prior art: torchft (`ProcessGroupNCCL.errored`) also sets its error
before it aborts, and looks at it after a synchronization.

Buffers that rank 0 sends as a window begins are received in the same way, but not waited for: an
event is queued behind them, and the watch looks before the abort whether the device has passed it.
Pages of ranks on GPUs have no buffers, which would be one more wait.

Not for TORCH_NCCL_ASYNC_ERROR_HANDLING=1 or 2, with which torch's own watchdog aborts groups, and
notes it nowhere. Written on a computer without GPUs: it has not run on one yet.
"""

from __future__ import annotations

import os
import threading
from contextlib import closing, suppress

import torch

from det_jupyter.config import ExperimentConfig
from det_jupyter.contract.host.own_threads import start_own
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.core.peer_errors import PeerLost

_LOOK_S = 0.05


def can_watch(device: torch.device, config: ExperimentConfig | None) -> bool:
    """Return whether this rank can leave an exchange, and the configuration wants it to."""
    return (
        config is not None
        and config.optimizations.recover_on_gpus
        and device.type == "cuda"
        and torch.distributed.get_backend() == "nccl"
        and os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3") in ("0", "3")
    )


class ExchangeWatch:
    """Aborts the exchanges of a rank on a GPU once another rank on this computer was killed.

    Args:
        folder: The run's folder.
        device: The rank's device.

    Attributes:
        is_aborted: Whether the process groups are aborted, or about to be. What the device has
            exchanged since it was last waited for may be incomplete.
    """

    def __init__(self, folder: RunDir, device: torch.device) -> None:
        self.is_aborted = False
        self._device = device
        self._received = torch.cuda.Event()
        self._is_past = True  # the device had passed the event before the abort
        self._is_late = False  # the event was queued when the abort had begun
        self._state_bytes = len(torch.cuda.get_rng_state(device))
        self._is_over = threading.Event()
        start_own(threading.Thread(target=self._watch, args=(folder,), name="exchange-watch"))

    def await_exchange(self) -> None:
        """Wait until the device has done what is queued.

        Raises:
            PeerLost: Another rank was killed before.
        """
        torch.cuda.current_stream(self._device).synchronize()
        self._check()

    def mark_received(self) -> None:
        """Mark the place in the queue where buffers of rank 0 are received and copied.

        Raises:
            PeerLost: Another rank was killed before.
        """
        self._received.record()
        self._is_late = self.is_aborted
        self._check()

    @property
    def has_received(self) -> bool:
        """Whether the device had passed the last mark before the groups were aborted."""
        return self._is_past and not self._is_late

    def pack_generator(self, slot: memoryview, begin: int) -> int:
        """Write the state of the device's generator at `begin`, and return where it ends."""
        end = begin + self._state_bytes
        slot[begin:end] = torch.cuda.get_rng_state(self._device).numpy().data
        return end

    def unpack_generator(self, packed: bytes) -> bytes:
        """Set the device's generator to the state at the end; return what is before it."""
        state = torch.frombuffer(bytearray(packed[-self._state_bytes :]), dtype=torch.uint8)
        torch.cuda.set_rng_state(state, self._device)
        return packed[: -self._state_bytes]

    def close(self) -> None:
        """Stop the thread."""
        self._is_over.set()

    def _check(self) -> None:
        if self.is_aborted:
            raise PeerLost("another rank was killed, so the exchange of gradients was aborted")

    def _watch(self, folder: RunDir) -> None:
        with suppress(OSError, ValueError), closing(ControlPage(folder.control)) as page:
            while not page.is_killed():
                if self._is_over.wait(_LOOK_S):
                    return
            torch.cuda.set_device(self._device)  # a thread begins with device 0
            self.is_aborted = True
            self._is_past = self._received.query()
            torch.distributed.distributed_c10d._abort_process_group()
