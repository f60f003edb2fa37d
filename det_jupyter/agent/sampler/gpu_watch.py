"""Keeps the process that reads the GPUs running, and passes its samples on.

    no answer      the driver hangs: the process is killed. One that hangs within the driver stays
                   until the driver returns; no other is started before
    it ends        NVML does not work, or has crashed: it is started again
    pauses         between starts: 1 s, 2 s, ... 60 s; a sample resets them

Meanwhile all values of the GPUs are missing, and the reason is passed on. Nothing waits for it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from det_jupyter.agent.sampler.readings import Values
from det_jupyter.agent.starting.zygote_process import child_setup
from det_jupyter.contract.host import paths

logger = logging.getLogger(__name__)

_GOODBYE_S = 1.0
_PAUSES_S = (1.0, 60.0)
_MAX_LINE_BYTES = 1 << 20

HANGS = "the GPU driver does not answer; it is asked again when its last call has returned"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """A sample of the GPUs."""

    values: Mapping[str, Values]  # by source and name
    # Why names of a source have no values; None: as before.
    missing: Mapping[str, Mapping[str, str]] | None
    memory: Mapping[int, float]  # GPU memory by pid


class GpuWatch:
    """The GPUs of an agent process.

    Args:
        take: Gets the samples, and a reason when there are none.
        start_s: How long to wait for the process's first sample: the driver may load for so long
            if no program used it before.
        silence_s: How long to wait for the next, beyond the interval.
    """

    def __init__(
        self,
        uuids: Sequence[str],
        *,
        take: Callable[[GpuSample | str], None],
        start_s: float = 30.0,
        silence_s: float = 10.0,
    ) -> None:
        self._uuids = uuids
        self._take = take
        self._start_s, self._silence_s = start_s, silence_s
        self._interval_s = 1.0
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None

    def keep(self, interval_s: float) -> None:
        """Sample this often from now on."""
        has_changed, self._interval_s = interval_s != self._interval_s, interval_s
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        elif has_changed and self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(f"{interval_s}\n".encode())

    def stop(self) -> None:
        """Stop sampling."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        pause_s, longest_s = _PAUSES_S
        told = ""
        while True:
            reason, has_worked = await self._follow()
            if reason != told or has_worked:
                logger.warning("the GPUs cannot be sampled: %s", reason)
                self._take(reason)
            told = reason
            if has_worked:
                pause_s = _PAUSES_S[0]
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    async def _follow(self) -> tuple[str, bool]:
        """Start the process and follow it; return why it ended, and whether it had worked."""
        try:
            process = self._process = await self._start()
        except OSError as error:
            return f"the process that reads the GPUs cannot be started: {error}", False
        has_worked = False
        reason = ""
        try:
            while line := await self._next_line(process, is_first=not has_worked):
                message = json.loads(line)
                if "failed" in message:
                    reason = message["failed"]
                else:
                    has_worked = True
                    self._take(_to_sample(message))
        except TimeoutError:
            self._take(HANGS)
            reason = HANGS
        except ValueError as error:  # a library has printed something in between
            reason = f"the process that reads the GPUs printed what is no sample: {error}"
        except asyncio.CancelledError:
            await _end(process)
            raise
        finally:
            self._process = None
        await _end(process)
        code = await process.wait()  # for as long as the driver keeps it
        return reason or f"the process that reads the GPUs ended with exit code {code}", has_worked

    async def _start(self) -> Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "det_jupyter.agent.sampler.gpu_process"),
            *(str(self._interval_s), *self._uuids),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
            preexec_fn=child_setup(),
            cwd=paths.data_dir(),
            limit=_MAX_LINE_BYTES,
        )

    async def _next_line(self, process: Process, *, is_first: bool) -> bytes:
        assert process.stdout is not None
        more_s = self._start_s if is_first else self._silence_s
        return await asyncio.wait_for(process.stdout.readline(), self._interval_s + more_s)


async def _end(process: Process) -> None:
    """End the process: by the end of its input, then by a signal if it does not carry_out."""
    if process.stdin is not None:
        process.stdin.close()
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _GOODBYE_S)
        return
    with suppress(ProcessLookupError):
        process.kill()


def _to_sample(message: Mapping[str, Any]) -> GpuSample:
    return GpuSample(
        values=message["values"],
        missing=message.get("missing"),
        memory={int(pid): float(used) for pid, used in message["memory"].items()},
    )
