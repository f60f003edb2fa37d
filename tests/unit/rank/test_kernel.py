"""What keeps a kernel from changing its rank. One that serves: integration/test_rank_kernel.py."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from ipykernel.iostream import IOPubThread
from ipykernel.zmqshell import ZMQInteractiveShell

from det_jupyter.contract.host.connection_files import read_connection_file
from det_jupyter.rank import kernel
from det_jupyter.rank.kernel import KernelServer


def test_only_what_the_kernels_thread_prints_goes_to_consoles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streams = {name: io.StringIO() for name in ("stdout", "stderr")}
    consoles: dict[str, Any] = {name: io.StringIO() for name in streams}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)

    def work() -> None:
        kernel._split_streams(consoles.__getitem__)
        print("a cell")
        sys.stderr.write("an error of a cell")
        sys.stdout.encoding_of_cell = "utf-8"  # type: ignore[union-attr]

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    print("a batch")
    assert streams["stdout"].getvalue() == "a batch\n"
    assert streams["stderr"].getvalue() == ""
    assert consoles["stdout"].getvalue() == "a cell\n"
    assert consoles["stderr"].getvalue() == "an error of a cell"
    assert consoles["stdout"].encoding_of_cell == "utf-8"
    assert not hasattr(sys.stdout, "encoding_of_cell")


def interrupted(*, runs_cell: bool, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Interrupt a thread, which runs a cell or something else; return whether that ended it."""
    ended: list[str] = []
    begun, done = threading.Event(), threading.Event()

    def spin() -> None:
        begun.set()
        while not done.is_set():
            pass

    def run_cell() -> None:
        try:
            spin()
        except KeyboardInterrupt:
            ended.append("interrupted")

    if runs_cell:
        monkeypatch.setattr(kernel, "_RUN_CODE", run_cell.__code__)
    thread = threading.Thread(target=run_cell)
    thread.start()
    begun.wait()
    kernel._interrupt_cell(thread)
    if not runs_cell:
        done.set()
    thread.join()
    return bool(ended)


def test_an_interrupt_ends_a_cell_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not interrupted(runs_cell=False, monkeypatch=monkeypatch)
    assert interrupted(runs_cell=True, monkeypatch=monkeypatch)
    kernel._interrupt_cell(threading.Thread())  # it has not begun


class Served:
    """What serves a kernel, instead of one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.given: list[tuple[Path, Any]] = []
        self.threads: list[str] = []
        self.done = threading.Event()
        self._error = error
        monkeypatch.setattr(kernel, "_serve", self._serve)
        monkeypatch.setattr(kernel, "_SOON_S", 0.0)

    def _serve(self, connection_file: Path, namespace: Any) -> None:
        self.given.append((connection_file, namespace))
        self.threads.append(threading.current_thread().name)
        asyncio.get_event_loop().close()
        self.done.set()
        if self._error is not None:
            raise self._error


def wait_for_threads() -> None:
    for thread in threading.enumerate():
        if thread.name == "kernel" or isinstance(thread, threading.Timer):
            thread.join()


def test_a_kernel_is_started_once_however_often_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served(monkeypatch)
    file = tmp_path / "kernel-0.json"
    made = KernelServer(file, "/s/0", dict)
    made.start_soon()
    served.done.wait()
    made.start()
    made.start_soon()
    wait_for_threads()
    assert served.given == [(file, dict)]
    assert served.threads == ["kernel"]
    connection = read_connection_file(file)
    assert (connection["ip"], len(connection["key"])) == ("/s/0", 64)


def test_a_rank_trains_on_without_a_kernel_that_cannot_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served = Served(monkeypatch, OSError("no descriptor is free"))
    KernelServer(tmp_path / "kernel-0.json", "/s/0", dict).start()
    served.done.wait()
    wait_for_threads()
    assert "OSError: no descriptor is free" in capsys.readouterr().err


class Replies:
    """A session, which records the replies to front ends."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    def send(self, stream: Any, kind: str, content: Any, parent: Any, *, ident: Any) -> None:
        self.sent.append((kind, content))


@pytest.fixture
def guest(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a kernel that belongs to no application."""
    made = kernel._GuestKernel.__new__(kernel._GuestKernel)
    session = Replies()
    monkeypatch.setattr(kernel._GuestKernel, "session", session)
    made._thread = threading.current_thread()
    made.namespace = lambda: {"rank": 1, "world_size": 2, "loss": 0.5, "_hidden": 1}
    return made


def test_a_console_is_told_the_rank_and_its_variables(guest: Any) -> None:
    assert guest.banner.startswith("Rank 1 of 2. It trains on while you look;")
    assert guest.banner.endswith("when a cell begins: loss, rank, world_size\n")


def test_a_front_end_can_neither_end_nor_restart_a_rank(guest: Any) -> None:
    for content in ({"restart": True}, {}):
        asyncio.run(guest.shutdown_request(None, None, {"content": content}))
    asyncio.run(guest.interrupt_request(None, None, {}))  # no cell runs
    assert guest.session.sent == [
        ("shutdown_reply", {"status": "ok", "restart": True}),
        ("shutdown_reply", {"status": "ok", "restart": False}),
        ("interrupt_reply", {"status": "ok"}),
    ]


def test_libraries_do_not_take_a_rank_for_a_notebook() -> None:
    config = kernel._GuestConfig()
    config.HistoryManager.enabled = False
    config.IPKernelApp.debug = True
    assert "HistoryManager" in config
    assert "IPKernelApp" not in config
    assert config.IPKernelApp.debug is True


def test_a_kernel_changes_no_handler_of_the_process() -> None:
    logger = logging.getLogger("_GuestApp")
    before = logger.level
    handlers = list(logging.root.handlers)
    kernel._GuestApp._configure_logging(kernel._GuestApp.__new__(kernel._GuestApp))
    assert logger.level == logging.ERROR
    assert logging.root.handlers == handlers
    logger.setLevel(before)


def test_only_the_kernels_own_process_sends_the_output_of_cells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(
        IOPubThread, "_really_send", lambda self, msg, *args, **kwargs: sent.append(msg)
    )
    thread = kernel._GuestIOPubThread.__new__(kernel._GuestIOPubThread)
    for is_own in (True, False):
        monkeypatch.setattr(IOPubThread, "_is_master_process", lambda self, is_own=is_own: is_own)
        thread._really_send(f"own: {is_own}")
    assert sent == ["own: True"]


def test_a_front_end_interrupts_the_cell(guest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted: list[threading.Thread] = []
    monkeypatch.setattr(kernel, "_interrupt_cell", interrupted.append)
    asyncio.run(guest.interrupt_request(None, None, {}))
    assert interrupted == [threading.current_thread()]


def test_exit_in_a_console_ends_the_console_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[object] = []
    monkeypatch.setattr(
        ZMQInteractiveShell, "ask_exit", lambda shell: kept.append(shell.keepkernel_on_exit)
    )
    guest_shell = type("Shell", (kernel._GuestShell,), {"__init__": lambda self: None})
    monkeypatch.setattr(guest_shell, "keepkernel_on_exit", None)
    made = guest_shell()
    made.ask_exit()
    assert kept == [True]
