"""The fork server by itself, at the other end of its socket."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from det_jupyter.agent.runs.run import new_run
from det_jupyter.agent.runs.specs import make_specs
from det_jupyter.agent.starting.rank_processes import has_ended
from det_jupyter.agent.starting.zygote_process import RANK_TARGET, start_zygote
from det_jupyter.agent.starting.zygotes import Zygotes
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import PROTOCOL, ForkGang
from det_jupyter.rank import fork_safety
from tests.forks import Fork, torch_source, with_python_path
from tests.integration.agent_support import ROOT, STAND_IN, make_plan
from tests.processes import wait_until, wait_until_gone


class Zygote:
    """A zygote that we talk to as an agent does.

    Args:
        is_fork: Whether it is forked from a process that has loaded torch ([m] 0.5 s CPU less).
    """

    def __init__(self, folder: Path, target: str, *, is_fork: bool) -> None:
        self._folder = folder
        self.lifeline, self._write_end = os.pipe()
        self._lifeline_fd = self.lifeline  # of its process
        if is_fork:
            self.connection, theirs = socket.socketpair()
            with theirs:
                fork = torch_source().start(
                    "tests.integration.parallel_ranks:become_zygote", target,
                    environment=with_python_path(os.environ),
                    outputs=[folder / "zygote.out"] * 2,
                    descriptors=[theirs.fileno(), self.lifeline],
                )  # fmt: skip
            self._lifeline_fd = fork.descriptors[1]
            self.started: Fork | subprocess.Popen[bytes] = fork
        else:
            zygote = start_zygote(sys.executable, lifeline_fd=self.lifeline, target=target)
            self.connection, self.started, self.log = zygote.connection, zygote.process, zygote.log
        self.process = psutil.Process(self.started.pid)
        self._lines = self.connection.makefile("rb")

    def hear(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self._lines.readline() or b"{}")
        return report

    def fork(self, allocation_id: str, acts: Any, slots: int = 2) -> dict[str, Any]:
        plan = make_plan(allocation_id, acts, slots=slots)
        run = new_run(plan, sockets=self._folder / allocation_id)
        run.prepare()
        request = ForkGang.of(
            make_specs(run, lifeline_fd=self._lifeline_fd, num_threads=1),
            until=time.monotonic() + 60,
        )
        self.connection.sendall(request.model_dump_json().encode() + b"\n")
        return self.hear()

    def close(self) -> None:
        self._lines.close()
        self.connection.close()
        self.started.wait()
        for descriptor in (self.lifeline, self._write_end):
            os.close(descriptor)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, light_torch: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)


@contextmanager
def running(folder: Path, target: str = STAND_IN, *, is_fork: bool = True) -> Iterator[Zygote]:
    server = Zygote(folder, target, is_fork=is_fork)
    try:
        yield server
    finally:
        server.close()


def test_zygote_forks_gangs_and_reports_each_end(tmp_path: Path) -> None:
    with running(tmp_path, is_fork=False) as server:
        ready = server.hear()
        assert (ready["kind"], ready["protocol"], ready["unsafe"]) == ("ready", PROTOCOL, "")
        acts = {"0": [["exit", 3]], "1": [["kill", 15]], "2": []}
        forked = server.fork("1.1.1", acts, slots=3)
        assert (forked["kind"], forked["allocation_id"]) == ("forked", "1.1.1")
        exits = {}
        for _ in range(3):
            report = server.hear()
            exits[report["pid"]] = report["exit_code"]
        assert [exits[pid] for pid in forked["pids"]] == [3, -15, 0]
        assert server.process.children() == []


def test_rank_that_was_killed_is_reported_before_those_that_ended_for_want_of_it(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as server:
        server.hear()
        first, second = server.fork("1.1.1", [["sleep", 3600]])["pids"]
        server.process.suspend()  # as while it forks another gang
        os.kill(second, signal.SIGKILL)
        os.kill(first, signal.SIGTERM)
        wait_until(lambda: has_ended(first) and has_ended(second), "the ranks have ended")
        server.process.resume()
        reports = [server.hear() for _ in range(2)]
    assert [(each["pid"], each["exit_code"]) for each in reports] == [(second, -9), (first, -15)]


def test_gang_whose_last_rank_cannot_be_forked_has_no_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_TEST_NUM_FORKS", "3")  # the first one is the probe
    with running(tmp_path) as server:
        assert server.hear()["kind"] == "ready"
        refused = server.fork("1.1.1", [["sleep", 3600]], slots=3)
        assert refused["kind"] == "refused"
        assert refused["reason"] == "rank 2 could not be forked: [Errno 11] no more processes"
        assert server.process.children() == []


def test_zygote_without_a_free_descriptor_refuses_and_lives(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        server.hear()
        pids = server.fork("1.1.1", [["sleep", 3600]])["pids"]
        limits = server.process.rlimit(psutil.RLIMIT_NOFILE)
        assert limits is not None
        server.process.rlimit(psutil.RLIMIT_NOFILE, (3, limits[1]))
        refused = server.fork("2.1.1", [["sleep", 3600]])
        assert refused["kind"] == "refused"
        assert refused["reason"].startswith("rank 0 could not be forked: [Errno 24]")
        server.process.rlimit(psutil.RLIMIT_NOFILE, limits)
        assert server.fork("3.1.1", [["sleep", 3600]])["kind"] == "forked"
        assert set(pids) <= {child.pid for child in server.process.children()}


def test_forks_that_could_not_use_cuda_are_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_TEST_SPOILED", "1")
    with running(tmp_path) as server:
        assert server.hear()["unsafe"] == (
            "a preloaded module has called the CUDA driver, after which forks cannot use CUDA"
        )
        assert server.process.children() == []


def test_what_a_zygote_prints_is_the_user_s_alone_and_its_ranks_leave_with_the_socket(
    tmp_path: Path,
) -> None:
    before = os.umask(0)
    try:
        with running(tmp_path, is_fork=False) as server:
            server.hear()
            assert stat.S_IMODE(server.log.stat().st_mode) == 0o600
            pids = server.fork("1.1.1", [["sleep", 3600]])["pids"]
    finally:
        os.umask(before)
    wait_until_gone(*pids)


def test_target_that_cannot_be_imported_is_the_reason_it_fails(tmp_path: Path) -> None:
    with running(tmp_path, "tests.no_such_module:run_rank") as server:
        failed = server.hear()
        assert failed["kind"] == "failed"
        assert failed["reason"] == "ModuleNotFoundError: No module named 'tests.no_such_module'"
        assert server.started.wait() == 1


def test_threads_of_libraries_make_forking_unsafe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_safety, "_threads", lambda: {1: "python", 2: "openblas"})
    assert fork_safety.why_unsafe() == "the zygote has 2 threads: openblas, python"


def test_initialised_cuda_makes_forking_unsafe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_safety, "_threads", lambda: {1: "python"})
    assert fork_safety.why_unsafe() == ""
    torch = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert fork_safety.why_unsafe() == "the zygote has initialised CUDA"


def test_macos_never_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fork_safety.why_platform_unsafe() == ""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert fork_safety.why_platform_unsafe().startswith("macOS cannot fork")


def test_agent_that_ends_while_torch_is_loaded_reports_no_lack_of_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lifeline, write_end = os.pipe()

    async def end_at_once() -> None:
        zygotes = Zygotes(lifeline_fd=lifeline, target=RANK_TARGET)
        await zygotes.adopt(start_zygote(sys.executable, lifeline_fd=lifeline, target=RANK_TARGET))
        await zygotes.close()

    asyncio.run(end_at_once())
    os.close(lifeline)
    os.close(write_end)
    assert caplog.records == []


def test_numpy_is_not_loaded_before_its_threads_are_limited() -> None:
    """OpenBLAS starts its threads when it is loaded, and with them no gang can be forked."""
    code = "import sys, det_jupyter.rank.zygote; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
