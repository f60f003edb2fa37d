"""The Jupyter kernel of a rank: it answers while the main thread trains.

    kernel             a daemon thread, started soon after the first step, or 2 s after the rank.
                       Its start costs as much as a short trial, which needs no kernel
    connection file    written just before, so that no client waits for a kernel that never starts
    clients            execute, complete, inspect, interrupt a cell; never the training

Signals, standard streams and `__main__` belong to the trainer. Before each execution the kernel's
namespace gets the trial's present variables. Cells run between two bytecodes of the trainer, so
without clients the kernel costs the training nothing.

A rank is not a notebook: its output goes to a log. Libraries that draw progress as a widget if
they find a kernel (tqdm, transformers) do not find one.

It is IPython's kernel, without the parts that would change the process. This module imports all
that a kernel needs, so that its thread imports nothing. A data loader may fork a worker at any
time, and a worker that is forked during another thread's import waits for that import for ever.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import logging
import secrets
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

import tqdm.auto  # noqa: F401 - it takes a process with ipykernel for a notebook, and chooses once
from ipykernel import iostream, kernelapp
from ipykernel.displayhook import ZMQDisplayHook
from ipykernel.iostream import IOPubThread, OutStream
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from ipykernel.zmqshell import ZMQInteractiveShell
from IPython.core import history, interactiveshell
from IPython.core.magics import script
from traitlets.config import Config

from det_jupyter.contract.host.connection_files import write_connection_file
from det_jupyter.contract.host.own_threads import frame_of, start_own

_SOON_S = 0.5
Namespace = Callable[[], Mapping[str, Any]]


def _import_without_debugpy() -> None:
    """Import ipykernel without debugpy, which a rank cannot use.

    [m] debugpy doubles the start time of a kernel, and prints into the rank's output.
    """
    if "debugpy" not in sys.modules:
        sys.modules["debugpy"] = None  # type: ignore[assignment]  # the import system's "no"
        importlib.import_module("ipykernel.debugger")
        del sys.modules["debugpy"]


_import_without_debugpy()
for _late in ("IPython.core.completerlib", "IPython.core.oinspect", "tornado.platform.asyncio"):
    importlib.import_module(_late)


class _NoExits:
    """Replaces `atexit` for the kernel: the exit of the process must not wait for its thread."""

    register = unregister = staticmethod(lambda *arguments: None)


for _module in (history, interactiveshell, iostream, kernelapp, script):
    vars(_module)["atexit"] = _NoExits

_RUN_CODE = ZMQInteractiveShell.run_code.__code__  # the frame that runs a cell


class _GuestConfig(Config):
    def __contains__(self, key: object) -> bool:
        """Return False for the configuration section by which libraries detect a notebook."""
        return key != "IPKernelApp" and super().__contains__(key)


class _GuestShell(ZMQInteractiveShell):
    def init_sys_modules(self) -> None:
        """Do not replace `__main__`: the trial's classes are pickled by that name."""

    def init_environment(self) -> None:
        """Set no variables of the process: setenv moves the block that another thread may read.

        The C library does not protect getenv, which torch calls in each batch_norm: one rank of
        3,400 crashed as its kernel started ([m]).
        """

    def init_virtualenv(self) -> None:
        """Do not change `sys.path` by VIRTUAL_ENV."""

    def ask_exit(self) -> None:
        """End the console in which `exit` or `quit` was typed, and not the kernel's loop."""
        self.keepkernel_on_exit = True  # type: ignore[assignment]  # None in ipykernel, or a bool
        super().ask_exit()  # type: ignore[no-untyped-call]


class _GuestKernel(IPythonKernel):
    shell_class = _GuestShell

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)  # type: ignore[no-untyped-call]
        self._thread = threading.current_thread()  # where cells run
        self.namespace: Namespace = dict

    @property
    def banner(self) -> str:  # type: ignore[override]  # shown by consoles
        """The text that a console shows: the rank, and the variables of the trial."""
        names = self.namespace()
        mine = ", ".join(sorted(name for name in names if not name.startswith("_")))
        return (
            f"Rank {names.get('rank')} of {names.get('world_size')}. It trains on while you look; "
            "restarting or closing\nthis console changes nothing in it. det_stack() says where it "
            f"is.\nNames, as they are when a cell begins: {mine}\n"
        )

    async def shutdown_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Reply without shutting down."""
        content = {"status": "ok", "restart": parent["content"].get("restart", False)}
        assert self.session is not None
        self.session.send(stream, "shutdown_reply", content, parent, ident=ident)

    async def interrupt_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Interrupt the cell, if one runs. SIGINT would reach the trainer and its workers.

        Called in the thread of the control channel, while the cell runs in the kernel's thread.
        """
        _interrupt_cell(self._thread)
        assert self.session is not None
        self.session.send(stream, "interrupt_reply", {"status": "ok"}, parent, ident=ident)


def _interrupt_cell(thread: threading.Thread) -> None:
    """Raise KeyboardInterrupt in the thread if it runs a cell; else it would end the kernel."""
    frame = frame_of(thread)
    while frame is not None and frame.f_code is not _RUN_CODE:
        frame = frame.f_back
    if frame is not None:
        assert thread.ident is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt)
        )


class _GuestIOPubThread(IOPubThread):
    """Sends the output of cells, but not the output of processes that cells fork.

    For the latter ipykernel opens a TCP port. It prints any data that other users of the computer
    send to this port into the rank's output, as a "Bad pipe message".
    """

    def _setup_pipe_in(self) -> None:
        """Open no port."""

    def _really_send(self, msg: Any, *args: Any, **kwargs: Any) -> None:
        if self._is_master_process():  # type: ignore[no-untyped-call]
            super()._really_send(msg, *args, **kwargs)  # type: ignore[no-untyped-call]


class _StreamByThread:
    """A text stream that forwards to `theirs` in one thread, and to `ours` in all others.

    Attributes are set there too: IPython replaces `write` while it runs a cell.
    """

    _ours: TextIO
    _theirs: Any
    _thread_id: int

    def __init__(self, ours: TextIO, theirs: Any, thread_id: int) -> None:
        vars(self).update(_ours=ours, _theirs=theirs, _thread_id=thread_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._current(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._current(), name, value)

    def _current(self) -> Any:
        return self._theirs if threading.get_ident() == self._thread_id else self._ours


def _split_streams(make: Callable[[str], Any]) -> None:
    """Replace stdout and stderr of the calling thread by those that `make` returns by name."""
    thread_id = threading.get_ident()
    for name in ("stdout", "stderr"):
        ours = getattr(sys, name)
        setattr(sys, name, _StreamByThread(ours, make(name), thread_id))


class _GuestApp(IPKernelApp):
    kernel_class = _GuestKernel

    def init_iopub(self, *args: Any) -> None:
        """Start a `_GuestIOPubThread`. ipykernel has no setting for the class of this thread."""
        kernelapp.IOPubThread = _GuestIOPubThread  # type: ignore[attr-defined]  # imported there
        super().init_iopub(*args)  # type: ignore[no-untyped-call]

    def init_io(self) -> None:
        """Capture the output of this thread. The file descriptors stay the rank's output."""
        _split_streams(
            lambda name: OutStream(self.session, self.iopub_thread, name, watchfd=False)
        )
        self.displayhook = ZMQDisplayHook(self.session, self.iopub_socket)

    def _configure_logging(self) -> None:
        """Set the level of our own logger, and no more.

        traitlets calls `dictConfig`, which closes every handler of the process: a log file opened
        with mode "w" got no line any more. And it waits for handlers while it holds the lock of
        `logging`, so that a program that ended just then hung for ever.
        """
        logging.getLogger(type(self).__name__).setLevel(logging.ERROR)

    def _leave_alone(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the original changes the process, or is for the user's own sessions."""

    init_signal = _leave_alone  # only possible in the main thread
    init_poller = _leave_alone  # ends the process with its notebook server
    init_crash_handler = _leave_alone  # sys.excepthook
    init_pdb = _leave_alone
    init_path = _leave_alone  # sys.path
    init_gui_pylab = _leave_alone  # MPLBACKEND
    init_extensions = _leave_alone  # the user's extensions are made for notebooks
    init_code = _leave_alone  # the user's startup files
    load_config_file = _leave_alone
    log_connection_info = _leave_alone


def _serve(connection_file: Path, namespace: Namespace) -> None:
    """Run a kernel in this thread until the process ends."""
    app = _GuestApp.instance(connection_file=str(connection_file))
    app.config = _GuestConfig()
    app.config.HistoryManager.enabled = False  # cells do not go into the user's history
    excepthook = sys.excepthook
    app.initialize([])  # type: ignore[no-untyped-call]
    sys.excepthook = excepthook
    # Front ends offer widgets to every kernel; refusals would be errors in the rank's output.
    for name in ("Comm", "ipykernel.comm"):
        logging.getLogger(name).disabled = True
    shell = app.shell
    assert shell is not None

    def refresh() -> None:
        shell.user_ns.update(namespace())

    shell.events.register("pre_execute", refresh)
    refresh()
    kernel = app.kernel
    assert isinstance(kernel, _GuestKernel)
    kernel.namespace = namespace
    app.start()  # type: ignore[no-untyped-call]


class KernelServer:
    """The kernel of one rank.

    Args:
        connection_file: Written when the kernel starts.
        sockets: Prefix of the paths of the five IPC sockets, which have to be short.
    """

    def __init__(self, connection_file: Path, sockets: str, namespace: Namespace) -> None:
        self._connection_file = connection_file
        self._sockets = sockets
        self._namespace = namespace
        self._started = threading.Lock()  # taken by the first call of `start`, and never released

    def start_soon(self) -> None:
        start_own(threading.Timer(_SOON_S, self.start))

    def start(self) -> None:
        """Start, unless it has started. Any thread may call."""
        if self._started.acquire(blocking=False):
            start_own(threading.Thread(target=self._serve, name="kernel"))

    def _serve(self) -> None:
        asyncio.set_event_loop(asyncio.new_event_loop())
        try:
            write_connection_file(
                self._connection_file, prefix=self._sockets, key=secrets.token_hex(32)
            )
            _serve(self._connection_file, self._namespace)
        except Exception:  # the rank trains on without a kernel
            traceback.print_exc()
