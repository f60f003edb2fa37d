"""The fork server in the test's own process: a thread plays the agent, and ranks exit at once."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from det_jupyter._version import __version__
from det_jupyter.contract.messages import PROTOCOL, ForkGang, RankSpec
from det_jupyter.rank import zygote
from det_jupyter.rank.zygote import ForkServer
from tests.unit.rank.rank_specs import make_spec

Reports = list[dict[str, Any]]


class Agent:
    """The agent's end of a fork server's socket."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.theirs = socket.socketpair()
        self._lines = self.ours.makefile("rb")
        self._folder = folder

    def order(self, *targets: str, late: bool = False, num: int = 1) -> None:
        """Order gangs whose ranks do what their entrypoints say, in one write."""
        requests = b""
        for target in targets:
            specs = [
                make_spec(self._folder, target, rank=rank, num_ranks=num) for rank in range(num)
            ]
            until = time.monotonic() + (-1.0 if late else 60.0)
            requests += ForkGang.of(specs, until=until).model_dump_json().encode() + b"\n"
        self.ours.sendall(requests)

    def hear(self, num: int) -> Reports:
        """Return so many reports, by their kind."""
        found = [json.loads(self._lines.readline()) for _ in range(num)]
        return sorted(found, key=lambda report: str(report["kind"]))

    def leave(self) -> None:
        """Close the socket."""
        self.ours.shutdown(socket.SHUT_RDWR)  # ranks have inherited this end
        self._lines.close()
        self.ours.close()


def run_rank(spec: RankSpec) -> NoReturn:
    """Do what the entrypoint says: exit with a code, end by a signal, raise, or wait."""
    what, _, number = str(spec.plan.config["entrypoint"]).partition(":")
    if what == "exit":
        os._exit(int(number))
    if what == "kill":
        os.kill(os.getpid(), int(number))
    if what == "raise":
        raise ValueError("no")
    while True:
        signal.pause()


Serve = Callable[[Callable[[Agent], None]], None]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Return what serves an agent that a function plays in a thread; its errors are raised."""
    monkeypatch.setattr(zygote, "why_unsafe", lambda: "")  # though the agent is a thread here
    monkeypatch.setattr(zygote, "prepare_process", lambda spec, parent: os.setpgid(0, 0))
    monkeypatch.setattr(zygote.traceback, "print_exc", lambda: None)  # type: ignore[attr-defined]
    before = signal.getsignal(signal.SIGCHLD)

    def serve_one(play: Callable[[Agent], None]) -> None:
        agent, errors = Agent(tmp_path), list[BaseException]()

        def run() -> None:
            try:
                play(agent)
            except BaseException as error:
                errors.append(error)
            agent.leave()

        thread = threading.Thread(target=run)
        server = ForkServer(agent.theirs, run_rank)
        thread.start()
        server.serve()
        signal.set_wakeup_fd(-1)
        thread.join()
        agent.theirs.close()
        for descriptor in (server._wake_read, server._wake_write):
            os.close(descriptor)
        for error in errors:
            raise error

    yield serve_one
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, before)


def test_the_end_of_each_rank_is_reported_with_its_code_or_signal(serve: Serve) -> None:
    def play(agent: Agent) -> None:
        for target, code in (("exit:0", 0), ("exit:7", 7), ("kill:9", -9), ("raise:", 1)):
            agent.order(target)
            exited, forked = agent.hear(2)
            assert (forked["kind"], forked["allocation_id"]) == ("forked", "1.1.1")
            assert exited == {"kind": "exited", "pid": forked["pids"][0], "exit_code": code}

    serve(play)


def test_a_gang_is_forked_whole_and_its_groups_are_killed_with_the_agent(serve: Serve) -> None:
    pids: list[int] = []

    def play(agent: Agent) -> None:
        agent.order("wait:", num=3)
        (forked,) = agent.hear(1)
        pids.extend(forked["pids"])
        assert len({*pids}) == 3
        assert [os.getpgid(pid) for pid in pids] == pids

    serve(play)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [-9] * 3


def test_requests_may_arrive_together_or_in_parts(serve: Serve) -> None:
    def play(agent: Agent) -> None:
        agent.order("exit:3", "exit:3")
        reports = agent.hear(4)
        assert [report["kind"] for report in reports] == ["exited"] * 2 + ["forked"] * 2
        request = ForkGang.of([make_spec(agent._folder, "exit:4")], until=time.monotonic() + 60)
        data = request.model_dump_json().encode() + b"\n"
        agent.ours.sendall(data[:100])
        agent.ours.sendall(data[100:])
        exited, _ = agent.hear(2)
        assert exited["exit_code"] == 4

    serve(play)


def test_what_is_too_late_or_not_safe_is_refused(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def play(agent: Agent) -> None:
        agent.order("exit:0", late=True)
        (refused,) = agent.hear(1)
        assert refused == {
            "kind": "refused",
            "allocation_id": "1.1.1",
            "reason": "the request is too old",
        }
        monkeypatch.setattr(zygote, "why_unsafe", lambda: "a thread runs")
        agent.order("exit:0")
        assert agent.hear(1)[0]["reason"] == "a thread runs"

    serve(play)
    assert "allocation=1.1.1 refused: a thread runs" in caplog.text


def test_of_a_gang_that_cannot_be_forked_whole_no_rank_is_left(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked: list[int] = []
    fork, is_full = os.fork, True

    def fork_two() -> int:
        if is_full and len(forked) == 2:
            raise BlockingIOError(11, "no more processes")
        if pid := fork():
            forked.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", fork_two)

    def play(agent: Agent) -> None:
        nonlocal is_full
        agent.order("wait:", num=3)
        (refused,) = agent.hear(1)
        assert refused["reason"].startswith("rank 2 could not be forked: [Errno 11]")
        assert not [pid for pid in forked if os.path.exists(f"/proc/{pid}")]
        is_full = False
        agent.order("exit:5")
        assert agent.hear(2)[0]["exit_code"] == 5  # it serves on

    serve(play)


class Preloaded:
    """The modules of a fork server that a test starts, and what it does with the collector."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.collector: list[str] = []
        self.variables: list[str | None] = []
        self.served: list[Any] = []
        self.ours, theirs = socket.socketpair()
        module: Any = ModuleType("det_preloaded")
        module.run = run_rank
        monkeypatch.setitem(sys.modules, "det_preloaded", module)
        monkeypatch.setattr(zygote, "NEEDED", ("json",))
        monkeypatch.setattr(zygote, "HELPFUL", ("det_missing_module", "socket"))
        monkeypatch.setattr(zygote, "ForkServer", self._server)
        for name in ("disable", "freeze", "enable"):
            monkeypatch.setattr(gc, name, lambda name=name: self.collector.append(name))
        monkeypatch.setattr(zygote, "why_unsafe", lambda: "")
        monkeypatch.setattr(zygote, "why_cuda_unusable", self._look_at_variables)
        monkeypatch.setattr(zygote, "torch_cuda_version", lambda: "12.4")
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", "5")
        monkeypatch.delenv("PYTORCH_NVML_BASED_CUDA_CHECK", raising=False)
        connections: list[socket.socket] = []

        def set_inheritable(connection: socket.socket, inheritable: bool) -> None:
            os.set_inheritable(connection.fileno(), inheritable)
            connections.append(connection)

        self.connections = connections
        monkeypatch.setattr(socket.socket, "set_inheritable", set_inheritable)
        argv = ["zygote", "--socket", str(theirs.detach()), "--target", "det_preloaded:run"]
        monkeypatch.setattr(sys, "argv", argv)

    def _look_at_variables(self) -> str:
        names = ("OPENBLAS_NUM_THREADS", "PYTORCH_NVML_BASED_CUDA_CHECK")
        self.variables = [os.environ.get(name) for name in names]
        return ""

    def _server(self, connection: socket.socket, target: Any) -> Preloaded:
        self.served.append(target)
        return self

    def serve(self) -> None:
        """Serve nobody."""

    def report(self) -> dict[str, Any]:
        """Return what was reported."""
        (connection,) = self.connections
        with self.ours, connection:
            assert not connection.get_inheritable()
            found: dict[str, Any] = json.loads(self.ours.recv(1 << 16))
        return found


def test_a_server_is_ready_when_all_that_ranks_need_is_imported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    preloaded = Preloaded(monkeypatch)
    assert zygote.main() == 0
    report = preloaded.report()
    assert 0 <= report.pop("warmup_s") < 60
    assert report == {
        "kind": "ready",
        "protocol": PROTOCOL,
        "version": __version__,
        "unsafe": "",
        "torch_cuda": "12.4",
    }
    assert preloaded.served == [run_rank]
    assert preloaded.collector == ["disable", "freeze", "enable"]
    assert preloaded.variables == ["5", None]  # the users, again
    assert "not preloaded: det_missing_module: " in caplog.text


def test_a_server_imports_in_an_environment_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    preloaded = Preloaded(monkeypatch)
    imported: list[list[str | None]] = []

    def import_module(name: str) -> ModuleType:
        preloaded._look_at_variables()
        imported.append(preloaded.variables)
        return sys.modules[name]

    monkeypatch.setattr(zygote.importlib, "import_module", import_module)  # type: ignore[attr-defined]
    monkeypatch.setattr(zygote, "HELPFUL", ())
    assert zygote.main() == 0
    assert imported == [["1", "1"]] * 2
    assert preloaded.report()["kind"] == "ready"


@pytest.mark.parametrize(("check", "collected"), [("why_platform_unsafe", 0), ("why_unsafe", 3)])
def test_a_server_that_cannot_fork_says_why(
    monkeypatch: pytest.MonkeyPatch, check: str, collected: int
) -> None:
    preloaded = Preloaded(monkeypatch)
    monkeypatch.setattr(zygote, check, lambda: "it cannot")
    assert zygote.main() == 0
    assert preloaded.report()["unsafe"] == "it cannot"
    assert len(preloaded.collector) == collected  # where it never forks, nothing is preloaded


def test_a_server_that_cannot_import_what_ranks_need_says_why_and_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    preloaded = Preloaded(monkeypatch)
    monkeypatch.setattr(zygote, "NEEDED", ("det_missing_module",))
    assert zygote.main() == 1
    report = preloaded.report()
    assert report["kind"] == "failed"
    assert "No module named 'det_missing_module'" in report["reason"]
    assert preloaded.served == []
    assert "Traceback" in capsys.readouterr().err


class Left(BaseException):
    """The process has ended."""


@pytest.mark.parametrize("returns", [True, False])
def test_a_forked_process_is_no_server_and_never_goes_on_as_a_copy_of_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    returns: bool,
) -> None:
    prepared: list[tuple[RankSpec, int]] = []
    codes: list[int] = []
    states: list[tuple[object, int]] = []
    before = signal.signal(signal.SIGCHLD, lambda number, frame: None)  # the server's

    def end(code: int) -> None:
        codes.append(code)
        raise Left

    def target(spec: RankSpec) -> None:
        states.append((signal.getsignal(signal.SIGCHLD), signal.set_wakeup_fd(-1)))
        print("last words", end="")
        if not returns:
            raise ValueError("no")

    monkeypatch.setattr(zygote, "prepare_process", lambda *given: prepared.append(given))
    monkeypatch.setattr(os, "_exit", end)
    ours, theirs = socket.socketpair()
    num = len(os.listdir("/proc/self/fd"))
    server = ForkServer(theirs, target)  # type: ignore[arg-type]
    spec = make_spec(tmp_path)
    with pytest.raises(Left):
        server._become_rank(spec)
    assert len(os.listdir("/proc/self/fd")) == num - 1  # the socket is closed too
    assert ours.recv(1) == b""
    ours.close()
    signal.signal(signal.SIGCHLD, before)
    assert prepared == [(spec, os.getpid())]
    assert (codes, states) == ([1], [(signal.SIG_DFL, -1)])
    said = capsys.readouterr()
    assert said.out == "last words"
    assert ("ValueError: no" in said.err) is not returns


def test_a_user_who_has_closed_the_streams_does_not_keep_a_rank_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Closed:
        def flush(self) -> None:
            raise ValueError("I/O operation on closed file")

    monkeypatch.setattr(sys, "stdout", Closed())
    monkeypatch.setattr(sys, "stderr", Closed())
    zygote._flush_streams()
