"""The programs that a master starts, played by scripts: bridges, and senders to trackers."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import BridgeReport, EndBridge, TrackerOrder
from det_jupyter.contract.schema.clusters import ClusterConfig
from det_jupyter.errors import DetError
from det_jupyter.master.background import bridge as bridges
from det_jupyter.master.background.bridge import Bridge, bridge_log, last_line
from det_jupyter.master.background.cleanup import clean_up
from det_jupyter.master.delivery.trackers import LOG, run_process
from tests.integration.master_support import Bench
from tests.waiting import until, wait_until

REPORT = BridgeReport(is_connected=True, num_asked=3).model_dump_json()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    paths.log_dir()
    return tmp_path


def script(folder: Path, *lines: str) -> str:
    path = folder / "program"
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o700)
    return str(path)


# bridges


def with_bridge(python: str, scene: Callable[[Bridge], Awaitable[None]]) -> int:
    """Start a bridge, play a scene with it, and end it; return its exit status."""
    config = ClusterConfig.model_validate(
        {"engine": "ray", "address": "h:1", "bridge_python": python}
    )

    async def run() -> int:
        bridge = await Bridge.start(config, "the.module", "the master")
        try:
            await scene(bridge)
        finally:
            status = await bridge.end()
        return status

    return asyncio.run(run())


async def reports_of(bridge: Bridge) -> list[int]:
    return [report.num_asked async for report in bridge.reports(60.0)]


def test_reports_are_read_until_the_bridge_ends_and_other_lines_are_left_out(home: Path) -> None:
    python = script(home, "echo no report", f"echo '{REPORT}'", "echo '{}'", "exit 7")

    async def scene(bridge: Bridge) -> None:
        assert await reports_of(bridge) == [3, 0]

    assert with_bridge(python, scene) == 7


def test_a_bridge_is_started_with_its_settings_in_a_session_of_its_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "another cluster")
    words = ('echo "$1 $2 $4" >&2', 'echo "$3" > settings', 'echo "[$RAY_ADDRESS]" >&2')
    python = script(home, *words, "ps -o sid= -p $$ > session", "echo $$ > pid")

    async def scene(bridge: Bridge) -> None:
        assert await reports_of(bridge) == []

    assert with_bridge(python, scene) == 0
    data = paths.data_dir()
    assert bridge_log("ray").read_text() == "-m the.module the master\n[]\n"
    settings = json.loads((data / "settings").read_text())
    assert (settings["address"], settings["bridge_python"]) == ("h:1", python)
    assert (data / "session").read_text().strip() == (data / "pid").read_text().strip()


def test_a_bridge_gets_orders_and_sees_their_end(home: Path) -> None:
    python = script(home, "read order", 'echo "$order" >&2', "cat > rest", "exit 0")

    async def scene(bridge: Bridge) -> None:
        bridge.send(EndBridge())
        await until(lambda: bridge_log("ray").read_text() != "", "it has the order")

    assert with_bridge(python, scene) == 0
    assert json.loads(last_line("ray")) == {"kind": "end_bridge"}


def test_a_bridge_that_does_not_end_is_killed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridges, "_END_S", 0.01)

    async def scene(bridge: Bridge) -> None:
        return

    assert with_bridge(script(home, "exec sleep 600"), scene) == -9


def test_a_bridge_that_is_silent_is_not_waited_for(home: Path) -> None:
    async def scene(bridge: Bridge) -> None:
        reports = bridge.reports(0.01)
        with pytest.raises(TimeoutError):
            await anext(reports)

    with_bridge(script(home, "read order"), scene)


def test_an_interpreter_that_is_not_there_is_named(home: Path) -> None:
    async def scene(bridge: Bridge) -> None:
        return

    with pytest.raises(DetError, match=r"^/gone/python cannot be started: No such file"):
        with_bridge("/gone/python", scene)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, ""),
        ("", ""),
        ("one\n", "one"),
        ("one\ntwo\x1b[0m\n\n", "two"),
        ("x" * 1000, "x" * 300),
    ],
)
def test_the_last_line_of_a_bridge_is_what_it_printed_last(
    text: str | None, expected: str
) -> None:
    if text is not None:
        bridge_log("ray").write_text(text)
    found = last_line("ray")
    assert found.startswith(expected[:200])
    assert len(found) <= 300
    assert found.isprintable()
    assert bool(found) == bool(expected)


# processes that send to trackers


ORDER = TrackerOrder(
    group="g", tracker={"a": 1}, folder="/f", credentials={}, gets_credentials=True
)


def test_a_process_gets_its_order_and_its_status_is_returned(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ('echo "$1 $2"', "read order", 'echo "$order" > order', "echo lost >&2", "exit 4")
    monkeypatch.setattr(sys, "executable", script(home, *words))
    assert asyncio.run(run_process(ORDER)) == 4
    assert json.loads((paths.data_dir() / "order").read_text()) == ORDER.model_dump()
    assert (paths.log_dir() / LOG).read_text() == "-m det_jupyter.trackers\nlost\n"


def test_a_process_that_has_ended_before_it_got_its_order_is_no_failure_of_ours(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", script(home, "exec <&-", "exit 5"))
    large = ORDER.model_copy(update={"credentials": {"A": "x" * 10**6}})
    assert asyncio.run(run_process(large)) == 5


@pytest.mark.parametrize("is_early", [False, True])
def test_a_process_that_is_not_wanted_any_more_is_killed_with_what_it_has_started(
    home: Path, monkeypatch: pytest.MonkeyPatch, is_early: bool
) -> None:
    """Early: while asyncio still connects its pipes."""
    create, is_begun = asyncio.create_subprocess_exec, (paths.data_dir() / "pid").exists

    async def slow(*given: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await create(*given, **options)
        await until(is_begun, "it runs")
        await asyncio.sleep(0.1)
        return process

    words = ("sleep 600 &", "echo $! > child", "echo $$ > own", "mv own pid", "read order; wait")
    monkeypatch.setattr(sys, "executable", script(home, *words))

    async def run() -> None:
        running = asyncio.create_task(run_process(ORDER))
        if is_early:
            monkeypatch.setattr(asyncio, "create_subprocess_exec", slow)
        await until(is_begun, "it runs")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())
    for name in ("pid", "child"):
        pid = int((paths.data_dir() / name).read_text())
        wait_until(partial(has_ended, pid), "it has ended")


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_without_an_interpreter_nothing_is_sent_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/gone/python")
    with pytest.raises(DetError, match=r"^/gone/python cannot be started: No such file"):
        asyncio.run(run_process(ORDER))


# tidying up


def test_a_master_tidies_up_at_its_start_and_goes_on_after_an_error(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = paths.data_dir() / "blobs" / "aa" / ("a" * 64)
    old.parent.mkdir(parents=True)
    old.touch()
    os.utime(old, (1.0, 1.0))
    scratch = paths.data_dir() / "checkpoints" / ".part-left"
    scratch.mkdir(parents=True)
    bench = Bench(paths.data_dir() / "det.sqlite3")
    sleep, errors, times = asyncio.sleep, [OSError("full")], list[float]()
    give_back = bench.store.give_back

    def fail_once() -> bool:
        if errors:
            raise errors.pop()
        return give_back()

    async def sleep_no_time(seconds: float) -> None:
        if seconds:
            times.append(seconds)
        await sleep(0)

    async def run() -> None:
        monkeypatch.setattr(bench.store, "give_back", fail_once)
        monkeypatch.setattr(asyncio, "sleep", sleep_no_time)
        tidying = asyncio.create_task(clean_up(bench.service))
        while len(times) < 2 or old.exists() or scratch.exists():
            await sleep(0.001)
        tidying.cancel()

    asyncio.run(run())
    assert times[:2] == [60.0, 60.0]
    bench.service.close()
