"""What is known of processes: whether they live, are stopped, or have ended and how."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from det_jupyter.contract.host import pdeathsig, processes
from det_jupyter.contract.host.own_threads import frame_of, own_thread_ids, start_own
from det_jupyter.contract.host.ports import free_port
from det_jupyter.contract.host.processes import (
    ProcessIdentity,
    birth_of,
    exit_status_of,
    is_frozen,
)
from det_jupyter.contract.host.tls_client import tls_problem, trusting
from tests.unit.agent.tunnel.test_tunnel import certificate
from tests.waiting import wait_until

NOBODY = 2**22 + 1
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="it is read from /proc")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("70@boot", "71@boot", True),
        ("70@boot", "70@boot", True),
        ("71@boot", "70@boot", False),
        ("9@boot", "10@boot", True),  # numbers, not words
        ("70@boot", "71@another", False),
        ("", "71@boot", False),
        ("70@boot", "", False),
    ],
)
def test_which_of_two_processes_was_started_first_is_known_within_a_boot(
    one: str, other: str, expected: bool
) -> None:
    assert ProcessIdentity(1, one).started_no_later_than(ProcessIdentity(2, other)) is expected


@on_linux
def test_a_process_is_known_until_it_has_ended() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        known = ProcessIdentity.of(child.pid)
        assert (known.is_alive, known.is_frozen, known.on_host) == (True, False, "")
        assert exit_status_of(child.pid) is None
        child.send_signal(signal.SIGSTOP)
        wait_until(lambda: known.is_frozen, "it is stopped")
        assert known.end(60.0)  # it is killed at once, as it cannot leave
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        status = exit_status_of(child.pid)
        assert status is not None
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        assert not known.is_alive
    assert exit_status_of(child.pid) is None
    assert (birth_of(NOBODY), is_frozen(NOBODY)) == (None, False)


def test_a_process_that_does_not_end_is_waited_for_as_long_as_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(processes, "time", clock)
    assert not ProcessIdentity.of(os.getpid()).wait(3.0)
    assert 103.0 < now[0] < 103.1
    assert ProcessIdentity(os.getpid(), "7@before").wait(3.0)
    assert now[0] < 103.1


def test_processes_are_known_without_proc_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with subprocess.Popen(["sleep", "600"]) as child:
        birth = birth_of(child.pid)
        assert birth == str(psutil.Process(child.pid).create_time())
        assert not is_frozen(child.pid)
        child.send_signal(signal.SIGSTOP)
        wait_until(lambda: is_frozen(child.pid), "it is stopped")
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert birth_of(child.pid) is None
        assert exit_status_of(child.pid) is None
    assert (birth_of(NOBODY), is_frozen(NOBODY)) == (None, False)


class Ended(BaseException):
    """The process has ended."""


@pytest.mark.parametrize("result", [0, -1])
def test_a_child_asks_the_kernel_to_end_with_its_parent(
    monkeypatch: pytest.MonkeyPatch, result: int
) -> None:
    asked: list[tuple[int, int]] = []

    def prctl(*given: int) -> int:
        asked.append((given[0], given[1]))
        return result

    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(pdeathsig, "_LIBC", SimpleNamespace(prctl=prctl))
    monkeypatch.setattr(os, "_exit", end)
    if result:
        ctypes.set_errno(1)
        with pytest.raises(OSError, match=r"prctl\(PR_SET_PDEATHSIG\) failed"):
            pdeathsig.kill_with_parent(os.getppid())
    else:
        pdeathsig.kill_with_parent(os.getppid())
        with pytest.raises(Ended, match="1"):  # the parent has ended meanwhile
            pdeathsig.kill_with_parent(os.getppid() + 1)
    assert set(asked) == {(1, signal.SIGKILL)}
    asked.clear()
    monkeypatch.setattr(sys, "platform", "darwin")
    pdeathsig.kill_with_parent(os.getppid())
    assert asked == []


def test_threads_of_ours_are_marked_and_can_be_looked_at() -> None:
    done = threading.Event()

    def wait_here() -> None:
        done.wait()

    own, theirs = (threading.Thread(target=wait_here) for _ in range(2))
    before = own_thread_ids()
    start_own(own)
    theirs.start()
    try:
        assert own.daemon
        assert own_thread_ids() - before == {own.native_id}
        frame = frame_of(theirs)
        names = []
        while frame is not None:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        assert "wait_here" in names
    finally:
        done.set()
        own.join()
        theirs.join()
    assert frame_of(theirs) is None


def test_a_free_port_is_one_that_can_be_listened_at() -> None:
    with socket.create_server(("127.0.0.1", port := free_port())):
        assert 1024 <= port <= 65535


def test_only_the_given_certificate_is_trusted_at_whatever_address(tmp_path: Path) -> None:
    context = trusting(certificate(tmp_path / "a")[0])
    assert context.check_hostname is False
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert len(context.get_ca_certs()) == 1
    with pytest.raises(ssl.SSLError):
        trusting("no certificate")


@pytest.mark.parametrize("is_cause", [True, False])
def test_why_a_connection_failed_is_told_if_tls_was_the_reason(is_cause: bool) -> None:
    assert tls_problem(OSError("refused")) == ""
    other = ssl.SSLCertVerificationError("self-signed")
    wrapped = RuntimeError("connect")
    if is_cause:
        wrapped.__cause__ = other
    else:
        wrapped.__context__ = other
    assert tls_problem(wrapped).startswith("the server there has another certificate than")
    problem = ssl.SSLError("wrong version")
    assert tls_problem(problem).startswith("the server there is no master of det_jupyter, or a")
