"""How the process that reads GPUs is kept running; the processes are played."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.agent.sampler import gpu_watch
from det_jupyter.agent.sampler.gpu_watch import HANGS, GpuSample, GpuWatch
from det_jupyter.contract.host import paths

SAMPLE = {"values": {"gpu:GPU-0": {"gpu_util": 7.0}}, "memory": {"42": 5}}
TAKEN = GpuSample(values=SAMPLE["values"], missing=None, memory={42: 5.0})  # type: ignore[arg-type]


class Process:
    """A process that reads GPUs."""

    def __init__(self, argv: tuple[str, ...]) -> None:
        self.argv = argv
        self.stdout = asyncio.StreamReader()
        self.stdin = self
        self.written = b""
        self.is_closed = False
        self.killed = False
        self.exits_when_closed = True
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def write(self, data: bytes) -> None:
        """Receive from the agent."""
        self.written += data

    def close(self) -> None:
        """Have standard input closed."""
        self.is_closed = True
        if self.exits_when_closed:
            self.exit(0)

    def kill(self) -> None:
        """Be killed."""
        self.killed = True
        self.exit(-9)

    async def wait(self) -> int:
        """Return the exit code."""
        return await asyncio.shield(self._code)

    def exit(self, code: int) -> None:
        """Exit."""
        if not self._code.done():
            self._code.set_result(code)
            self.stdout.feed_eof()

    def print(self, line: object) -> None:
        """Print a line."""
        self.stdout.feed_data(json.dumps(line).encode() + b"\n")


class World:
    """The processes that are started, what was taken, and the pauses between starts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.processes: list[Process] = []
        self.pauses: list[float] = []
        self.taken: list[Any] = []
        self.error: OSError | None = None
        self.start = asyncio.Event()
        sleep = asyncio.sleep

        async def create(*argv: str, **_: Any) -> Process:
            if self.error is not None:
                raise self.error
            self.processes.append(Process(argv))
            return self.processes[-1]

        async def pause(seconds: float) -> None:
            self.pauses.append(seconds)
            await self.start.wait()
            self.start.clear()

        monkeypatch.setattr(asyncio, "create_subprocess_exec", create)
        monkeypatch.setattr(gpu_watch, "asyncio", Patched(pause))
        self._sleep = sleep

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds."""
        while not holds():
            await self._sleep(0)


class Patched:
    """The module asyncio, whose `sleep` the test ends."""

    def __init__(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        self.sleep = sleep

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


def play(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    scenario: Callable[[World, GpuWatch], Awaitable[None]],
    **limits: float,
) -> World:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))

    async def act() -> World:
        world = World(monkeypatch)
        watch = GpuWatch(["GPU-0", "GPU-1"], take=world.taken.append, **limits)
        await scenario(world, watch)
        watch.stop()
        watch.stop()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)
        assert all(process.is_closed or process.killed for process in world.processes)
        return world

    return asyncio.run(act())


def is_longer(found: Sequence[object], num: int) -> bool:
    return len(found) > num


def test_samples_are_passed_on_and_a_new_interval_is_told_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def scenario(world: World, watch: GpuWatch) -> None:
        watch.start(2.0)
        await world.until(lambda: world.processes)
        (process,) = world.processes
        assert process.argv[-3:] == ("2.0", "GPU-0", "GPU-1")
        process.print(SAMPLE)
        process.print({**SAMPLE, "missing": {"gpu:GPU-0": {"gpu_power": "no"}}})
        await world.until(lambda: len(world.taken) == 2)
        for interval_s in (2.0, 0.5, 0.5):
            watch.start(interval_s)
        assert process.written == b"0.5\n"

    world = play(monkeypatch, tmp_path, scenario)
    assert world.taken[0] == TAKEN
    assert world.taken[1].missing == {"gpu:GPU-0": {"gpu_power": "no"}}
    assert len(world.processes) == 1
    assert not world.processes[0].killed


def test_a_process_that_ends_is_started_again_after_growing_pauses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World, watch: GpuWatch) -> None:
        watch.start(1.0)
        for number in range(9):
            await world.until(partial(is_longer, world.processes, number))
            process = world.processes[number]
            if number == 7:
                process.print(SAMPLE)
            if number < 2:
                process.print({"failed": "no driver"})
            process.exit(3)
            await world.until(partial(is_longer, world.pauses, number))
            world.start.set()

    with caplog.at_level(logging.WARNING):
        world = play(monkeypatch, tmp_path, scenario)
    assert world.pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 1.0, 2.0]
    ended = "the process that reads the GPUs ended with exit code 3"
    assert world.taken == ["no driver", ended, TAKEN, ended]  # each reason once, or after a sample
    assert len(caplog.records) == 3


def test_a_driver_that_hangs_is_told_at_once_and_its_process_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu_watch, "_EXIT_S", 0.0)

    async def scenario(world: World, watch: GpuWatch) -> None:
        watch.start(0.0)
        await world.until(lambda: world.processes)
        world.processes[0].exits_when_closed = False
        world.processes[0].print(SAMPLE)
        await world.until(lambda: world.pauses)
        watch.start(5.0)  # no process is there to be told
        assert world.processes[0].killed
        assert world.processes[0].written == b""

    # The first sample may take long; the next ones may not.
    world = play(monkeypatch, tmp_path, scenario, start_s=3600.0, silence_s=0.001)
    assert world.taken == [TAKEN, HANGS, HANGS]


def test_a_first_sample_has_a_limit_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def scenario(world: World, watch: GpuWatch) -> None:
        watch.start(0.0)
        await world.until(lambda: world.pauses)

    world = play(monkeypatch, tmp_path, scenario, start_s=0.001, silence_s=3600.0)
    assert world.taken == [HANGS, HANGS]


def test_what_is_no_sample_and_a_start_that_fails_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def scenario(world: World, watch: GpuWatch) -> None:
        world.error = OSError(24, "Too many open files")
        watch.start(1.0)
        await world.until(lambda: world.pauses)
        world.error = None
        world.start.set()
        await world.until(lambda: world.processes)
        world.processes[0].stdout.feed_data(b"a warning of a library\n")
        await world.until(lambda: len(world.pauses) == 2)

    first, second = play(monkeypatch, tmp_path, scenario).taken
    assert first.startswith("the process that reads the GPUs cannot be started: [Errno 24]")
    assert second.startswith("the process that reads the GPUs printed an invalid sample: ")
