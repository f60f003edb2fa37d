"""The Jupyter kernel of a rank: it answers while the main thread trains.

    kernel             a daemon thread, started soon after the first step, or 2 s after the rank.
                       Its start costs as much as a short trial, which needs no kernel
    connection file    written just before, so that no client waits for a kernel that never starts
    clients            execute, complete, inspect, interrupt a cell; never the training

Signals, standard streams and `__main__` belong to the trainer. Before each execution the kernel's
namespace gets the trial's present variables. Cells run between two bytecodes of the trainer, so
without clients the kernel costs the training nothing.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from det_jupyter.system.paths import write_private
from det_jupyter.worker.guest_kernel import serve

_SOON_S = 0.5
Namespace = Callable[[], Mapping[str, Any]]


class RankKernel:
    """The kernel of one rank.

    Args:
        connection_file: Written when the kernel starts.
        sockets: Prefix of the paths of the five IPC sockets; has to be short.
        namespace: Returns the variables for an execution.
    """

    def __init__(self, connection_file: Path, sockets: str, namespace: Namespace) -> None:
        self._connection_file = connection_file
        self._sockets = sockets
        self._namespace = namespace
        self._started = threading.Lock()  # taken by the first call of `start`, and never released

    def start_soon(self) -> None:
        """Start in half a second."""
        timer = threading.Timer(_SOON_S, self.start)
        timer.daemon = True
        timer.start()

    def start(self) -> None:
        """Start, unless it has started. Any thread may call."""
        if self._started.acquire(blocking=False):
            threading.Thread(target=self._serve, name="kernel", daemon=True).start()

    def _serve(self) -> None:
        asyncio.set_event_loop(asyncio.new_event_loop())
        try:
            self._write_connection_file()
            serve(self._connection_file, self._namespace)
        except Exception:  # the rank trains on without a kernel
            traceback.print_exc()

    def _write_connection_file(self) -> None:
        connection = {
            "transport": "ipc",
            "ip": self._sockets,
            "shell_port": 1,
            "iopub_port": 2,
            "stdin_port": 3,
            "control_port": 4,
            "hb_port": 5,
            "key": secrets.token_hex(32),
            "signature_scheme": "hmac-sha256",
            "kernel_name": "det-worker",
        }
        write_private(self._connection_file, json.dumps(connection, indent=1))
