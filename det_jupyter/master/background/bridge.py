"""The process of a bridge to a cluster: starts it, sends orders to it, reads its reports."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.ownership import open_own
from det_jupyter.contract.messages import BridgeReport, Wire
from det_jupyter.contract.schema.clusters import ClusterConfig
from det_jupyter.contract.values.text import printable, shortened
from det_jupyter.errors import DetError

logger = logging.getLogger(__name__)

_LONGEST_LINE = 16 * 2**20  # bytes of a report of a cluster with some thousand nodes
_END_S = 2.0
_TAIL = 300  # characters of the log that are read for its last line


def bridge_log(name: str) -> Path:
    """Return the log file with the output of a cluster's bridge."""
    return paths.log_dir() / f"bridge-{name}.log"


def last_line(name: str) -> str:
    """Return the last line that a cluster's bridge printed."""
    try:
        text = bridge_log(name).read_text(encoding="utf-8", errors="replace")[-_TAIL:]
    except OSError:
        return ""
    return shortened(printable(text.strip().rpartition("\n")[2]), _TAIL)


class Bridge:
    """A running bridge, created by `start`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, config: ClusterConfig, module: str, master: str) -> Bridge:
        """Start the bridge of a cluster.

        Args:
            config: The cluster.
            module: The program.
            master: The master's id.

        Raises:
            DetError: The interpreter cannot be started.
        """
        python = config.bridge_python or sys.executable
        log = open_own(bridge_log(config.name), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            process = await asyncio.create_subprocess_exec(
                python,
                "-m",
                module,
                config.model_dump_json(),
                master,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=_LONGEST_LINE,
                start_new_session=True,
                cwd=paths.data_dir(),
                env=_environment(os.environ),
            )
        except OSError as error:
            raise DetError(f"{python} cannot be started: {error.strerror}") from None
        finally:
            os.close(log)
        return cls(process)

    def send(self, order: Wire) -> None:
        """Send an order; if the bridge has ended, the order is lost, and it has no effect."""
        assert self._process.stdin is not None
        with suppress(OSError, RuntimeError):
            self._process.stdin.write(order.model_dump_json().encode() + b"\n")

    async def reports(self, timeout_s: float) -> AsyncIterator[BridgeReport]:
        """Yield reports until the bridge ends, or is silent for `timeout_s`."""
        assert self._process.stdout is not None
        while True:
            async with asyncio.timeout(timeout_s):
                line = await self._process.stdout.readline()
            if not line:
                return
            try:
                yield BridgeReport.model_validate_json(line)
            except ValidationError:
                logger.warning("a bridge wrote %r", line[:200])

    async def end(self) -> int:
        """Close the bridge's stdin, wait, kill it if it does not end; return its status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                return await self._process.wait()
        with suppress(ProcessLookupError):
            self._process.kill()  # Ray may not react to SIGTERM
        return await self._process.wait()


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the bridge's variables, without those that would bind it to the caller's cluster."""
    return {name: value for name, value in environ.items() if name != "RAY_ADDRESS"}
