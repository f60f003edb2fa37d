"""The reader's starter: a process from which readers are forked in milliseconds.

    start of the master    the starter is forked, before the master has other threads or a database
    first request          the starter imports the modules of a reader that the master lacks
    request                a reader is forked; the starter sends its pid, and later its exit status
    starter was killed     the next request starts another one, as a new Python: only a process
                           with one thread can be forked safely (`rank/fork_safety.py`), and the
                           master has threads by then
    end of the master      the starter is killed, together with its readers

So a reader has the version of its master, and handles events as the master does. The starter keeps
none of the master's files open, above all not its lock.
"""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn, Protocol

from det_jupyter import _version
from det_jupyter._version import __version__
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.pdeathsig import kill_with_parent
from det_jupyter.contract.host.processes import rename_own
from det_jupyter.errors import DetError

Target = Callable[[str, socket.socket, socket.socket], None]

_RESTART = f"{sys.executable} -m det_jupyter.master restart"
_REMEDY = f"`{_RESTART}` replaces the master, and what trains goes on"
_MOST_TOKEN = 4096  # bytes
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ChildProcess(Protocol):
    """A child of this process: a fork, or a `Popen`."""

    def kill(self) -> None:
        """Send SIGKILL."""

    def wait(self) -> int:
        """Wait until it has ended."""


class ReaderStarter:
    """Requests readers from the starter; used in the master.

    Args:
        target: What a reader runs, as MODULE:FUNCTION.
        connection: A socket connected to the starter.
        process: The starter.
    """

    def __init__(self, target: str, connection: socket.socket, process: ChildProcess) -> None:
        self._target = target
        self._connection = connection
        self._process = process

    def start(self, token: str, listener: socket.socket, log: int) -> socket.socket:
        """Request a reader.

        Args:
            token: The token that its clients have to send.
            listener: The socket that its clients connect to.
            log: The descriptor of its log file.

        Returns:
            A socket that the reader reads. On it the starter sends a line with the reader's pid
                and, when the reader has ended, a line with its exit status (as of `subprocess`).
                If no reader could be forked, the socket is closed without a pid.

        Raises:
            DetError: The starter has ended, and no other can be started.
        """
        ours, theirs = socket.socketpair()
        request = [token.encode()], [listener.fileno(), theirs.fileno(), log]
        try:
            try:
                socket.send_fds(self._connection, *request)
            except OSError:
                self._replace(log)
                socket.send_fds(self._connection, *request)
        except BaseException:  # an interrupt too: the socket is closed
            ours.close()
            raise
        finally:
            theirs.close()
        return ours

    def kill(self) -> None:
        """Kill the starter, and its readers with it; the next request starts another."""
        self._process.kill()
        self._connection.close()

    def end(self) -> None:
        """Kill the starter, and wait until it has ended."""
        self.kill()
        self._process.wait()

    def _replace(self, log: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            numbers = map(str, (theirs.fileno(), os.getpid()))
            try:
                process = subprocess.Popen(
                    [sys.executable, "-m", __name__, *numbers, self._target, __version__],
                    stdin=subprocess.DEVNULL,
                    stderr=log,
                    pass_fds=[theirs.fileno()],
                )
            except OSError as error:
                ours.close()
                raise DetError(
                    f"the reader's starter was killed, and no other can be started ({error}); "
                    f"{_REMEDY}"
                ) from error
        self.kill()
        # In a thread: while it waits for a drive, it does not end.
        threading.Thread(target=self._process.wait, name="det-starter-end", daemon=True).start()
        self._connection, self._process = ours, process


class _Fork:
    """A fork of this process, as a ChildProcess."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> int:
        return os.waitpid(self._pid, 0)[1]


@contextmanager
def reader_starter(target: str) -> Iterator[ReaderStarter]:
    """Fork a starter, which is killed at the end of the block.

    Args:
        target: The function that a reader runs, as MODULE:FUNCTION.
    """
    ours, theirs = socket.socketpair()
    gc.freeze()  # a garbage collection would write to the pages that both processes share
    parent = os.getpid()
    if (pid := os.fork()) == 0:
        _become(lambda: _be_starter(theirs, target, parent))
    theirs.close()
    starter = ReaderStarter(target, ours, _Fork(pid))
    try:
        yield starter
    finally:
        starter.end()


def _become(run: Callable[[], None]) -> NoReturn:
    """Run a program in a forked process, and exit, so that it does not continue as a copy."""
    status = 1
    try:
        run()
        status = 0
    except BaseException:  # no exception may leave the forked process
        with suppress(BaseException):  # the disk is full
            traceback.print_exc()
    finally:
        os._exit(status)  # does not join threads, which may take seconds


def _be_starter(connection: socket.socket, target: str, parent: int) -> None:
    kill_with_parent(parent)
    _close_all_but([connection.fileno()])
    rename_own("det_jupyter.starter")
    serve(connection, target, __version__)


def _close_all_but(kept: Collection[int]) -> None:
    for name in os.listdir("/dev/fd"):
        if (descriptor := int(name)) > 2 and descriptor not in kept:
            with suppress(OSError):  # the descriptor of the listing itself
                os.close(descriptor)


def serve(connection: socket.socket, target: str, version: str) -> None:
    """Fork a reader at each request until the other end of the connection is closed.

    Args:
        connection: A socket connected to the master.
        target: What a reader runs, as MODULE:FUNCTION.
        version: The master's version of det_jupyter.
    """
    for number in _END_SIGNALS:  # of a terminal, for example; the master ends it by SIGKILL
        signal.signal(number, signal.SIG_IGN)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # only to wake `select`
    readers: dict[int, socket.socket] = {}
    while True:
        readable, _, _ = select.select([connection.fileno(), woken], [], [])
        if woken in readable:
            os.read(woken, 4096)
        if connection.fileno() in readable:
            token, descriptors, _, _ = socket.recv_fds(connection, _MOST_TOKEN, 3)
            if not token:
                return
            listener, link = (socket.socket(fileno=number) for number in descriptors[:2])
            try:
                pid = _fork_reader(target, version, token.decode(), listener, link, descriptors[2])
            except OSError as error:
                link.close()
                with suppress(OSError):  # the disk is full
                    os.write(descriptors[2], f"no reader could be forked: {error}\n".encode())
            else:
                readers[pid] = link
                _write(link, pid)
            os.close(descriptors[2])
            listener.close()
        for pid in [*readers]:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with readers.pop(pid) as link:
                    _write(link, os.waitstatus_to_exitcode(status))


def _write(link: socket.socket, number: int) -> None:
    with suppress(OSError):  # the master does not wait for this reader any more
        link.sendall(f"{number}\n".encode())


def _fork_reader(
    target: str, version: str, token: str, listener: socket.socket, link: socket.socket, log: int
) -> int:
    with suppress(Exception):  # a reader will fail too, and its log will contain the reason
        _load(target, version)
    starter = os.getpid()

    def be_reader() -> None:
        kill_with_parent(starter)
        os.setsid()
        signal.set_wakeup_fd(-1)
        # Not SIGINT: Ctrl-C in a terminal must not end a reader.
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        for output in (1, 2):
            os.dup2(log, output)
        _close_all_but([listener.fileno(), link.fileno()])
        rename_own("det_jupyter.reader")
        os.chdir(paths.data_dir())
        _load(target, version)(token, listener, link)

    pid = os.fork()
    if pid == 0:
        _become(be_reader)
    return pid


def _load(target: str, version: str) -> Target:
    """Import the reader's function; its version must be `version`, the version of the master.

    Raises:
        DetError: Another version was installed since the master started.
    """
    module, _, function = target.partition(":")
    if module not in sys.modules:
        installed = runpy.run_path(_version.__file__)["__version__"]
        if installed != version:
            raise DetError(
                f"the running master is det_jupyter {version}, and {installed} was installed "
                f"since; {_REMEDY}"
            )
        # A collection would scan all modules, and write to the pages shared with the master.
        gc.disable()
        try:
            importlib.import_module(module)
        finally:
            gc.freeze()
            gc.enable()
    loaded: Target = getattr(sys.modules[module], function)
    return loaded


def main() -> None:
    """Be a starter that replaces one which was killed."""
    descriptor, parent, target, version = sys.argv[1:]
    kill_with_parent(int(parent))
    rename_own("det_jupyter.starter")
    serve(socket.socket(fileno=int(descriptor)), target, version)


if __name__ == "__main__":
    main()
