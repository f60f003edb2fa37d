"""What a rank's process and interpreter are given, and how it ends with its agent."""

from __future__ import annotations

import builtins
import errno
import faulthandler
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import Capsule, RankSpec
from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.rank import __main__ as main_module
from det_jupyter.rank import process as module
from det_jupyter.rank import rank as rank_module
from det_jupyter.rank.process import prepare_process, prepare_python, watch_lifeline
from tests.unit.rank.rank_specs import make_spec

PROGRAM, COMMAND = "python3 train.py", "sh -c true"


class Ended(BaseException):
    """The process has ended."""


@pytest.fixture
def interpreter() -> Iterator[None]:
    """Restore what the interpreter of a rank gets."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    settings = dict(multiprocessing.current_process()._config)  # type: ignore[attr-defined]
    yield
    for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
        signal.signal(number, handler)
    multiprocessing.current_process()._config.clear()  # type: ignore[attr-defined]
    multiprocessing.current_process()._config.update(settings)  # type: ignore[attr-defined]
    vars(builtins).pop("display", None)


@pytest.mark.usefixtures("interpreter")
def test_an_interpreter_of_a_rank_ignores_interrupts_and_shows_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    enabled: list[str] = []
    monkeypatch.setattr(faulthandler, "enable", lambda: enabled.append("faulthandler"))
    monkeypatch.setattr(module, "warn_of_users_threads", lambda: enabled.append("threads"))
    prepare_python(make_spec(tmp_path, rank=1, num_ranks=2))
    assert enabled == ["faulthandler", "threads"]
    os.kill(os.getpid(), signal.SIGINT)
    builtins.display("a", 1, raw=True)  # type: ignore[attr-defined]
    said = capsys.readouterr()
    assert said.out == "'a'\n1\n"
    assert "interrupts do not stop training" in said.err
    from multiprocessing.util import get_temp_dir

    folder = tmp_path / "pymp-1"
    assert get_temp_dir() == str(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("interpreter")
def test_a_rank_that_reads_requests_leaves_at_sigterm_and_another_one_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faulthandler, "enable", lambda: None)
    monkeypatch.setattr(module, "warn_of_users_threads", lambda: None)
    spec = make_spec(tmp_path)
    control = RunDir(Path(spec.run_dir)).control
    prepare_python(spec)

    def end() -> int:
        """Send SIGTERM to a copy of this process; return its exit status."""
        pid = os.fork()
        if pid == 0:
            module._leave(RunDir(control.parent), os.getpid(), signal.SIGTERM, None)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert end() == -signal.SIGTERM
    with closing(ControlPage(control)) as page:
        assert not page.check("preempt")
        assert end() == 0
        assert page.is_raised("preempt")
    with monkeypatch.context() as full:  # the disk with the file of its output

        def write(number: int, text: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr(os, "write", write)
        assert end() == 0
    if (pid := os.fork()) == 0:  # a process that the user's code has forked
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM


class Process:
    """The calls of a process that is made a rank."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, group: int) -> None:
        self.done: list[Any] = []
        self.variables: dict[str, str] = {}
        monkeypatch.setattr(os, "getpgrp", lambda: group)
        monkeypatch.setattr(os, "setpgid", lambda *pair: self.done.append(("group", *pair)))
        monkeypatch.setattr(os, "umask", lambda mask: self.done.append(("umask", mask)))
        monkeypatch.setattr(
            module, "kill_with_parent", lambda pid: self.done.append(("parent", pid))
        )
        monkeypatch.setattr(
            module, "_redirect_streams", lambda *given: self.done.append(("streams", given[1]))
        )
        monkeypatch.setattr(
            module, "set_variables", lambda spec, found: self.variables.update(found)
        )


@pytest.mark.parametrize(("entrypoint", "follows"), [("Trial", True), (COMMAND, False)])
@pytest.mark.parametrize(("group", "umask"), [("own", None), ("other", 0o027)])
def test_a_process_becomes_a_rank(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    entrypoint: str,
    follows: bool,
    group: str,
    umask: int | None,
) -> None:
    process = Process(monkeypatch, os.getpid() if group == "own" else 1)
    capsule = Capsule(entrypoint="Trial", payload="a" * 64, sources="", umask=umask)
    prepare_process(make_spec(tmp_path, entrypoint, capsule=capsule), 77)
    assert process.done == [
        *([("group", 0, 0)] if group == "other" else []),
        *([("parent", 77)] if follows else []),
        ("streams", 0),
        *([("umask", umask)] if umask is not None else []),
    ]
    assert process.variables["RANK"] == "0"


@pytest.mark.parametrize(
    ("given", "digest", "expected"),
    [({"TOKEN": "given"}, True, "given"), (None, True, "kept"), (None, False, None)],
)
def test_values_of_variables_are_those_that_were_sent_along_or_kept_here(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str] | None,
    digest: bool,
    expected: str | None,
) -> None:
    process = Process(monkeypatch, 1)
    kept = BlobStore(tmp_path / "blobs").put(json.dumps({"values": {"TOKEN": "kept"}}).encode())
    capsule = Capsule(
        entrypoint="Trial", payload="a" * 64, sources="", environment=kept if digest else None
    )
    config = {"entrypoint": "Trial", "environment": {"environment_variables": ["TOKEN"]}}
    spec = make_spec(tmp_path, capsule=capsule, config=config)
    prepare_process(spec.model_copy(update={"environment": given}), 1)
    assert process.variables.get("TOKEN") == expected


class Lifeline:
    """A rank that watches its agent, and what it does when the agent ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, spec: RankSpec, group: int) -> None:
        self.done: list[Any] = []
        self.called = threading.Event()
        self.read_end, self.write_end = os.pipe()
        place = spec.place.model_copy(update={"lifeline_fd": self.read_end})
        self.spec = spec.model_copy(update={"place": place})
        self._ended = threading.Event()
        monkeypatch.setattr(os, "getpgrp", lambda: group)
        monkeypatch.setattr(os, "killpg", lambda *pair: self.done.append(("kill", *pair)))
        monkeypatch.setattr(os, "_exit", self._exit)
        monkeypatch.setattr(
            module, "kill_run_processes", lambda run: self.done.append(("run", run.path))
        )
        monkeypatch.setattr(threading, "excepthook", lambda ended: self._ended.set())

    def _exit(self, code: int) -> None:
        self.done.append(code)
        raise Ended

    def end_agent(self) -> None:
        """Let the agent end, and wait until the rank has noticed."""
        os.close(self.write_end)
        self._ended.wait()
        os.close(self.read_end)


@pytest.mark.parametrize("entrypoint", ["Trial", PROGRAM])
@pytest.mark.parametrize("is_leader", [True, False])
@pytest.mark.parametrize("is_early", [True, False])
def test_a_rank_ends_with_its_agent_and_takes_along_what_it_has_started(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    entrypoint: str,
    is_leader: bool,
    is_early: bool,
) -> None:
    lifeline = Lifeline(
        monkeypatch, make_spec(tmp_path, entrypoint), os.getpid() if is_leader else 1
    )
    after_s = 3600.0 if is_early else 0.001
    watch_lifeline(lifeline.spec, after_s=after_s, then=lifeline.called.set)
    if not is_early:
        lifeline.called.wait()
    lifeline.end_agent()
    assert lifeline.called.is_set() is not is_early
    assert lifeline.done == [
        *([("run", tmp_path)] if entrypoint == PROGRAM else []),
        *([("kill", 0, signal.SIGKILL)] if is_leader else []),
        1,
    ]


def test_a_rank_without_a_lifeline_calls_what_comes_later(tmp_path: Path) -> None:
    called = threading.Event()
    watch_lifeline(make_spec(tmp_path), after_s=0.001, then=called.set)
    called.wait()


@pytest.mark.parametrize("has_spec", [True, False])
def test_the_kernel_spec_starts_a_rank_or_an_ordinary_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_spec: bool
) -> None:
    from ipykernel.kernelapp import IPKernelApp

    done: list[Any] = []
    spec = make_spec(tmp_path)
    file = tmp_path / "spec.json"
    file.write_text(spec.model_dump_json())
    if has_spec:
        monkeypatch.setenv("DET_RANK_SPEC", str(file))
    else:
        monkeypatch.delenv("DET_RANK_SPEC", raising=False)
    monkeypatch.setattr(main_module, "prepare_process", lambda *given: done.append(given))
    monkeypatch.setattr(rank_module, "run_rank", lambda given: done.append(given))
    monkeypatch.setattr(IPKernelApp, "launch_instance", lambda: done.append("kernel"))
    main_module.main()
    assert done == ([(spec, os.getppid()), spec] if has_spec else ["kernel"])
    assert "DET_RANK_SPEC" not in os.environ
    assert "torch" in sys.modules


def test_what_a_rank_prints_goes_to_its_file_at_once_whatever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_spec(tmp_path)
    pointed: list[tuple[str, int]] = []

    def dup2(source: int, target: int) -> None:
        pointed.append((os.readlink(f"/proc/self/fd/{source}"), target))

    num = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        for name in ("stdin", "stdout", "stderr"):
            patch.setattr(sys, name, None)
            patch.setattr(sys, f"__{name}__", None)
        patch.setattr(os, "dup2", dup2)
        module._redirect_streams(RunDir(tmp_path), 1)
        streams = [sys.stdin, sys.stdout, sys.stderr]
        assert streams == [sys.__stdin__, sys.__stdout__, sys.__stderr__]
    assert len(os.listdir("/proc/self/fd")) == num
    output = str(tmp_path / "output-1")
    assert pointed == [("/dev/null", 0), (output, 1), (output, 2)]
    assert Path(output).stat().st_mode & 0o777 == 0o600
    assert [stream.fileno() for stream in streams] == [0, 1, 2]
    assert {stream.encoding for stream in streams} == {"utf-8"}
    assert {stream.errors for stream in streams} == {"backslashreplace"}
    assert all(stream.line_buffering for stream in streams)
    for stream in streams:
        stream.detach()


def test_what_prints_waits_while_the_disk_is_full(tmp_path: Path) -> None:
    file = os.open(tmp_path / "output", os.O_WRONLY | os.O_CREAT)
    full = os.open("/dev/full", os.O_WRONLY)
    waits: list[int | None] = []

    class Gate:
        def await_room_after(self, error: OSError) -> None:
            waits.append(error.errno)
            if len(waits) == 2:
                os.dup2(file, full)

    output = module._Output(full, Gate())  # type: ignore[arg-type]
    try:
        assert output.write(b"epoch 1") == 7
        output.close()
        assert os.fstat(full).st_size == 7  # the descriptor is the rank's, and stays open
    finally:
        os.close(file)
        os.close(full)
    assert waits == [errno.ENOSPC] * 2
    assert (tmp_path / "output").read_bytes() == b"epoch 1"
