"""What is said of a feeder that does not start."""

from __future__ import annotations

import asyncio
import logging
import sys

import pytest

from det_jupyter.errors import DetError
from det_jupyter.front.jupyter_server.feeder_process import FeederProcess


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("import os; os.kill(os.getpid(), 9)", "the feeder was killed by SIGKILL before"),
        ("import sys; print('no torch', file=sys.stderr); sys.exit(3)",
         "the feeder has ended with exit status 3 before it could be used: no torch"),
        ("print('no port'); input()", "the feeder has ended with exit status 0 before"),
    ],
)  # fmt: skip
def test_a_feeder_that_ends_at_once_is_said_to_have_ended(program: str, problem: str) -> None:
    with pytest.raises(DetError, match=problem):
        asyncio.run(started([sys.executable, "-c", program], 60))


def test_a_feeder_that_is_silent_is_said_not_to_have_started() -> None:
    with pytest.raises(DetError, match=r"did not start within 0\.01 s"):
        asyncio.run(started([sys.executable, "-c", "import sys; sys.stdin.read()"], 0.01))


async def started(command: list[str], start_s: float) -> None:
    log = logging.getLogger(__name__)
    feeder = FeederProcess(command, start_master=False, start_s=start_s, on_started=print, log=log)
    try:
        await feeder.address()
    finally:
        await feeder.close()
