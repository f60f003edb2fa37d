"""IPython's kernel with everything taken out that would reach into the process it is a guest of.

Importing this module imports all that a kernel needs, so that its thread imports nothing: a data
loader may fork a worker at any time, and a worker that was forked in the middle of another
thread's import waits for that import for ever. Knows nothing of ranks.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ipykernel import kernelapp
from ipykernel.displayhook import ZMQDisplayHook
from ipykernel.iostream import IOPubThread, OutStream
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from ipykernel.zmqshell import ZMQInteractiveShell

from det_jupyter.worker.streams import split_streams


def _import_without_debugpy() -> None:
    """Let ipykernel find no debugpy, which every rank would import and none can use.

    [m] It doubles the time that a kernel takes to start, and it prints into the rank's output.
    """
    if "debugpy" not in sys.modules:
        sys.modules["debugpy"] = None  # type: ignore[assignment]  # the import system's "no"
        importlib.import_module("ipykernel.debugger")
        del sys.modules["debugpy"]


_import_without_debugpy()
for _late in ("IPython.core.completerlib", "IPython.core.oinspect", "tornado.platform.asyncio"):
    importlib.import_module(_late)


_RUN_CODE = ZMQInteractiveShell.run_code.__code__  # below it on the stack there is a cell


class _GuestShell(ZMQInteractiveShell):
    def init_sys_modules(self) -> None:
        """Leave `__main__` to the trainer, whose classes are pickled by that name."""


class _GuestKernel(IPythonKernel):
    shell_class = _GuestShell

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)  # type: ignore[no-untyped-call]
        self._thread = threading.get_ident()  # where cells run

    async def shutdown_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Let the client go, and stay."""
        content = {"status": "ok", "restart": parent["content"].get("restart", False)}
        assert self.session is not None
        self.session.send(stream, "shutdown_reply", content, parent, ident=ident)

    async def interrupt_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Interrupt the cell, if one runs. Not by SIGINT: that is the trainer's, and its workers'.

        Called in the control channel's thread, while the kernel's is busy with the cell.
        """
        _interrupt_cell(self._thread)
        assert self.session is not None
        self.session.send(stream, "interrupt_reply", {"status": "ok"}, parent, ident=ident)


def _interrupt_cell(thread: int) -> None:
    """Raise KeyboardInterrupt in the code of a cell; between cells it would end the kernel."""
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_code is not _RUN_CODE:
        frame = frame.f_back
    if frame is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt)
        )


class _GuestIOPubThread(IOPubThread):
    """Sends what cells print, but not what processes that they fork print.

    For those ipykernel opens a TCP port. Whatever another user of the computer sends there is
    received, of any size, and printed into the rank's output as a "Bad pipe message".
    """

    def _setup_pipe_in(self) -> None:
        """Open no port."""

    def _really_send(self, msg: Any, *args: Any, **kwargs: Any) -> None:
        if self._is_master_process():  # type: ignore[no-untyped-call]
            super()._really_send(msg, *args, **kwargs)  # type: ignore[no-untyped-call]


class _GuestApp(IPKernelApp):
    kernel_class = _GuestKernel

    def init_iopub(self, *args: Any) -> None:
        """Start the thread of ours; ipykernel has no other place to say which."""
        kernelapp.IOPubThread = _GuestIOPubThread  # type: ignore[attr-defined]  # imported there
        super().init_iopub(*args)  # type: ignore[no-untyped-call]

    def init_io(self) -> None:
        """Capture what this thread prints; not the descriptors, which are the rank's output."""
        split_streams(lambda name: OutStream(self.session, self.iopub_thread, name, watchfd=False))
        self.displayhook = ZMQDisplayHook(self.session, self.iopub_socket)

    def _leave_alone(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: this belongs to the process, or to the user's own sessions."""

    init_signal = _leave_alone  # handlers can only be set in the main thread
    init_poller = _leave_alone  # would end the process with the notebook server it descends from
    init_crash_handler = _leave_alone  # sys.excepthook
    init_pdb = _leave_alone
    init_path = _leave_alone  # sys.path
    init_gui_pylab = _leave_alone  # MPLBACKEND
    init_extensions = _leave_alone  # the user's, made for notebooks
    init_code = _leave_alone  # the user's startup files
    load_config_file = _leave_alone
    log_connection_info = _leave_alone


def serve(connection_file: Path, namespace: Callable[[], Mapping[str, Any]]) -> None:
    """Run a kernel in this thread, for ever."""
    app = _GuestApp.instance(connection_file=str(connection_file), log_level=40)
    app.config.HistoryManager.enabled = False  # not into the user's history
    excepthook = sys.excepthook
    app.initialize([])  # type: ignore[no-untyped-call]
    sys.excepthook = excepthook
    shell = app.shell
    assert shell is not None

    def refresh() -> None:
        shell.user_ns.update(namespace())

    shell.events.register("pre_execute", refresh)
    refresh()
    app.start()  # type: ignore[no-untyped-call]
