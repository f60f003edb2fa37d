"""What is said of a feeder that does not start."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from det_jupyter.errors import DetError
from det_jupyter.front.jupyter_server import feeder_process
from det_jupyter.front.jupyter_server.feeder_process import FeederProcess
from tests.waiting import wait_until_gone


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


def test_a_line_of_long_ago_is_not_why_a_feeder_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeder_process, "_REASON_S", -1.0)
    program = "import sys; print('long ago', file=sys.stderr); sys.exit(3)"
    with pytest.raises(DetError, match=r"exit status 3 before it could be used$"):
        asyncio.run(started([sys.executable, "-c", program], 60))


def test_a_feeder_that_fails_is_started_less_and_less_often_until_one_is_steady(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, slept = [100.0], list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    async def run() -> None:
        real_sleep = asyncio.sleep
        command = ["/no/such/program"]
        feeder = FeederProcess(
            command, start_master=True, start_s=60, on_started=print, log=logging.getLogger("x")
        )
        monkeypatch.setattr(asyncio, "sleep", sleep)
        for _ in range(5):
            with pytest.raises(DetError, match="the feeder cannot be started"):
                await feeder.address()
        assert slept == [0, 0.5, 1, 2, 4]
        for pause_s in (8, 16, 30, 30):
            with pytest.raises(DetError, match=f"; it is started again in {pause_s} s"):
                await feeder.address()
            now[0] += pause_s
            with pytest.raises(DetError, match="the feeder cannot be started"):
                await feeder.address()
        now[0] += 30
        command[:] = ["sh", "-c", """read settings; echo '{"port": '$$'}'; exec cat"""]
        for lasted_s, again_s in ((61, 0.5), (60, 1.0)):
            address = await feeder.address()
            assert (feeder.state, feeder.is_at(address)) == ("running", True)
            now[0] += lasted_s
            os.kill(int(address.url.split(":")[2].partition("/")[0]), signal.SIGKILL)
            while feeder.state == "running":
                await real_sleep(0.001)
            assert feeder.problem == "the feeder was killed by SIGKILL"
            slept.clear()
            await feeder.address()
            assert slept == [again_s]
            await feeder.close()
            feeder._is_closed = False
            now[0] += 100

    monkeypatch.setattr(feeder_process, "time", SimpleNamespace(monotonic=lambda: now[0]))
    asyncio.run(run())


def test_a_feeder_is_not_interrupted_with_the_terminal_of_its_server() -> None:
    async def run() -> None:
        program = "import os, sys; sys.stdin.readline(); own = os.getsid(0) == os.getpid(); "
        told = """print('{"port": %d}' % own, flush=True); sys.stdin.read()"""
        log = logging.getLogger(__name__)
        command = [sys.executable, "-c", program + told]
        feeder = FeederProcess(command, start_master=False, start_s=60, on_started=print, log=log)
        address = await feeder.address()
        assert address.url == "ws://127.0.0.1:1/socket", "it is in a session of its own"
        await feeder.close()

    asyncio.run(run())


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_feeder_whose_child_keeps_its_output_open_is_closed_all_the_same(
    is_killed: bool,
) -> None:
    async def run() -> None:
        script = """sleep 600 & echo "{\\"port\\": 1, \\"child\\": $!}" >&2; read settings
        echo '{"port": 1}'; exec cat > /dev/null"""
        seen: list[str] = []
        log = logging.getLogger(f"{__name__}.child")
        log.setLevel(logging.INFO)

        def keep(record: logging.LogRecord) -> bool:
            seen.append(record.getMessage())
            return True

        log.addFilter(keep)
        feeder = FeederProcess(
            ["sh", "-c", script], start_master=False, start_s=60, on_started=print, log=log
        )
        address = await feeder.address()
        await (feeder.drop(address) if is_killed else feeder.close())
        assert feeder.state == "off"
        [told] = [line for line in seen if "child" in line]
        os.kill(json.loads(told.removeprefix("feeder: "))["child"], signal.SIGKILL)
        await asyncio.sleep(0.1)  # the loop closes the pipes

    asyncio.run(run())


def test_a_start_that_is_canceled_leaves_no_process(tmp_path: Path) -> None:
    async def run() -> None:
        log = logging.getLogger(__name__)
        written = tmp_path / "pid"
        script = f"echo $$ > {written}; exec sleep 600"
        feeder = FeederProcess(
            ["sh", "-c", script], start_master=False, start_s=600, on_started=print, log=log
        )
        starting = asyncio.create_task(feeder.address())
        while not (written.exists() and written.read_text().strip()):
            await asyncio.sleep(0.01)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await feeder.close()
        wait_until_gone(int(written.read_text()))
        await asyncio.sleep(0.1)  # the loop closes the pipes

    asyncio.run(run())


async def started(command: list[str], start_s: float) -> None:
    log = logging.getLogger(__name__)
    feeder = FeederProcess(command, start_master=False, start_s=start_s, on_started=print, log=log)
    try:
        await feeder.address()
    finally:
        await feeder.close()
