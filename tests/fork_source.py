"""The process from which tests fork others: it has loaded slow modules (tests/forks.py)."""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from io import BufferedRWPair
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import psutil

from det_jupyter.contract.host.pdeathsig import kill_with_parent

REPOSITORY = str(Path(__file__).parents[1])
COMPAT = os.path.join(REPOSITORY, "compat")  # has `determined`, which no source has imported
COMMAND_LINE, ENVIRONMENT = 45, 47  # numbers of the fields of /proc/PID/stat, after the name


def main() -> None:
    """Load modules, then fork on request until the other end of the socket is closed."""
    sys.path[0] = REPOSITORY
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # OpenBLAS starts threads when it is loaded
    # Ctrl-C ends the tests, which then close the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    for name in sys.argv[2:]:
        import_module(name)
    gc.freeze()
    gc.enable()
    assert psutil.Process().num_threads() == 1, "of several threads, a fork has one"
    serve(int(sys.argv[1]))


def serve(descriptor: int) -> None:
    """Fork on request until the other end of this socket is closed; a fork may serve as well."""
    with (
        socket.socket(fileno=descriptor) as connection,
        connection.makefile("rwb") as stream,
    ):
        connection.set_inheritable(False)
        answer(stream, os.getpid())
        carry_out(connection, stream)


def carry_out(connection: socket.socket, stream: BufferedRWPair) -> None:
    """Carry out requests one after the other; forked processes are killed with this process."""
    parent = os.getpid()
    while True:
        length, descriptors, _, _ = socket.recv_fds(connection, 4, 2)
        if not length:
            break
        request = pickle.loads(stream.read(int.from_bytes(length)))
        if isinstance(request, dict):
            if (pid := os.fork()) == 0:
                kill_with_parent(parent)
                stream.close()
                connection.close()
                become(descriptors, **request)
            answer(stream, (pid, descriptors))
        else:
            pid, status = os.waitpid(request, os.WNOHANG)
            answer(stream, os.waitstatus_to_exitcode(status) if pid else None)
        for descriptor in descriptors:
            os.close(descriptor)


def answer(stream: BufferedRWPair, value: Any) -> None:
    """Send a value as the answer."""
    pickle.dump(value, stream)
    stream.flush()


def become(
    descriptors: list[int],
    target: str,
    args: bytes,
    argv: Sequence[str],
    folder: str,
    environment: dict[str, str],
    outputs: Sequence[str],
) -> NoReturn:
    """Turn a forked process into one like a fresh Python process, in a session of its own.

    Args:
        descriptors: Open files, which are its first arguments.
        target: The function to call, `module:name`; a number that it returns is the exit status.
        args: Further arguments, pickled, so that only this process imports their modules.
        argv: The command line.
        folder: The working directory.
        environment: All of its environment variables.
        outputs: Files for stdout and stderr; empty: the parent's.
    """
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    theirs, ours = environment.get("PYTHONPATH"), os.environ.get("PYTHONPATH")
    if theirs == with_compat(ours):
        sys.path.insert(1, COMPAT)
    else:
        assert theirs == ours, "what is imported already was found elsewhere"
    os.environ.clear()  # so the memory below is not used any more
    os.environ.update(environment)
    show(ENVIRONMENT, [f"{name}={value}" for name, value in environment.items()])
    os.chdir(folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND  # append, as both may be one file
    for number, file in enumerate(outputs, 1):
        os.dup2(opened := os.open(file, flags), number)
        os.close(opened)
    sys.argv = list(argv)
    sys.modules["__main__"] = ModuleType("__main__")
    if not target.startswith("tests."):
        del sys.path[0]
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # otherwise numpy would draw the same numbers in all forks
    module, _, name = target.partition(":")
    run_and_exit(lambda: getattr(import_module(module), name)(*descriptors, *pickle.loads(args)))


def with_compat(python_path: str | None) -> str:
    """Return a PYTHONPATH with the folder of `determined` before these folders."""
    return os.pathsep.join(filter(None, [COMPAT, python_path]))


def show(area: int, words: Sequence[str]) -> None:
    """Write words to where the kernel has the command line or environment. Linux only."""
    if sys.platform != "linux":
        return
    text = b"".join(os.fsencode(word) + b"\0" for word in words)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[area]), int(fields[area + 1])
    assert len(text) <= end - begin, "the source has too little room"
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(begin)
        memory.write(text.ljust(end - begin, b"\0"))


def run_and_exit(function: Callable[[], Any]) -> NoReturn:
    """Call a function and end as Python does; a number that it returns is the exit status."""
    status: Any = 1
    try:
        status = function() or 0
    except SystemExit as error:
        status = 0 if error.code is None else error.code
        if not isinstance(status, int):
            print(status, file=sys.stderr)
            status = 1
    except BaseException:
        traceback.print_exc()
    # End as Python does, but do not free the modules ([m] 0.5 s CPU).
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
