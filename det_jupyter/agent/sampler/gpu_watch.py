"""Keeps the process that reads the GPUs (gpu_process.py) running, and passes its samples on.

    no output      the driver hangs: the process is killed. If it hangs within the driver, it stays
                   until the driver returns; no other is started before
    it exits       NVML does not work, or has crashed: it is started again
    pauses         between starts: 1 s, 2 s, ... 60 s; a sample resets them

Meanwhile all values of the GPUs are missing, and the reason is passed on. No caller waits for it.
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

from det_jupyter.agent.sampler.readings import Values
from det_jupyter.agent.starting.zygote_process import child_setup
from det_jupyter.contract.host import paths
from det_jupyter.contract.values.pauses import growing_pauses

logger = logging.getLogger(__name__)

_EXIT_S = 1.0  # time to exit before it is killed
_PAUSES_S = (1.0, 60.0)
_MAX_LINE_BYTES = 1 << 20

HANGS = "the GPU driver does not answer; it is queried again when its last call has returned"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """A sample of all GPUs."""

    values: Mapping[str, Values]  # by source and name
    # Reasons by source and name; None: they have not changed.
    missing: Mapping[str, Mapping[str, str]] | None
    memory: Mapping[int, float]  # GPU memory by pid


class GpuWatch:
    """Samples the GPUs of an agent process.

    Args:
        take: Receives each sample, or the reason why there are none.
        start_s: Time limit of the process's first sample; the driver takes this long to load if no
            program used it before.
        silence_s: Time limit of each further sample, beyond the interval.
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

    def start(self, interval_s: float) -> None:
        """Start sampling, or change the interval."""
        has_changed, self._interval_s = interval_s != self._interval_s, interval_s
        if self._task is None:
            self._task = asyncio.create_task(self._keep_running())
        elif has_changed and self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(f"{interval_s}\n".encode())

    def stop(self) -> None:
        """Stop sampling."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _keep_running(self) -> None:
        pauses, reported = growing_pauses(*_PAUSES_S), ""
        while True:
            reason, has_worked = await self._run_once()
            if reason != reported or has_worked:
                logger.warning("the GPUs cannot be sampled: %s", reason)
                self._take(reason)
            reported = reason
            if has_worked:
                pauses = growing_pauses(*_PAUSES_S)
            await asyncio.sleep(next(pauses))

    async def _run_once(self) -> tuple[str, bool]:
        """Run the process until it exits; return the reason, and whether it printed samples."""
        try:
            process = self._process = await self._spawn()
        except OSError as error:
            return f"the process that reads the GPUs cannot be started: {error}", False
        has_worked = False
        reason = ""
        try:
            assert process.stdout is not None
            while True:
                limit_s = self._silence_s if has_worked else self._start_s
                async with asyncio.timeout(self._interval_s + limit_s):
                    line = await process.stdout.readline()
                if not line:
                    break
                message = json.loads(line)
                if "failed" in message:
                    reason = message["failed"]
                else:
                    has_worked = True
                    self._take(
                        GpuSample(
                            values=message["values"],
                            missing=message.get("missing"),
                            memory={int(p): float(used) for p, used in message["memory"].items()},
                        )
                    )
        except TimeoutError:
            self._take(HANGS)
            reason = HANGS
        except ValueError as error:  # a library has printed something else
            reason = f"the process that reads the GPUs printed an invalid sample: {error}"
        except asyncio.CancelledError:
            await _end(process)
            raise
        finally:
            self._process = None
        await _end(process)
        code = await process.wait()  # blocks while the process hangs in the driver
        return reason or f"the process that reads the GPUs ended with exit code {code}", has_worked

    async def _spawn(self) -> Process:
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


async def _end(process: Process) -> None:
    """End the process: close its standard input, and kill it if it does not exit."""
    if process.stdin is not None:
        process.stdin.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(_EXIT_S):
            await process.wait()
        return
    with suppress(ProcessLookupError):
        process.kill()
