"""Runs the programs of the outbox: commands of alerts, and the processes of trackers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_END_S = 2.0


async def run_program(
    command: Sequence[str],
    text: bytes,
    *,
    output: int,
    cwd: str | Path,
    variables: Mapping[str, str] | None = None,
    keeps_input: bool = False,
) -> int:
    """Run a program to its end, and return its exit status.

    If this is cancelled, the program and the processes that it has started are killed.

    Args:
        text: Written to its standard input.
        output: Descriptor of the file for its output.
        variables: Added to its environment.
        keeps_input: Whether its standard input stays open until this returns.

    Raises:
        OSError, ValueError: The program cannot be started.
    """
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**os.environ, **(variables or {})},
            cwd=cwd,
            start_new_session=True,
        )
    )
    try:
        process = await asyncio.shield(starting)
        assert process.stdin is not None
        with suppress(OSError, RuntimeError):  # it has ended already
            process.stdin.write(text)
            await process.stdin.drain()
        if not keeps_input:
            process.stdin.close()
        return await process.wait()
    finally:
        # If cancelled early, asyncio would kill only the program itself.
        await _end(await starting)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a program, and the processes that it has left running."""
    if process.stdin is not None:
        process.stdin.close()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_S):
            await process.wait()
