"""Forks kernels for tests: a kernel that has to load torch and scikit-learn costs 6 s of CPU.

A kernel from here is a process of its own with its own folder, environment and session, in which
IPython is started as `ipykernel_launcher` does; what it would import first is loaded already.
Reads a line of JSON for each kernel: its arguments, folder and environment; answers with its pid.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import sys
import threading
from importlib import import_module
from socket import socket
from typing import NoReturn

import psutil

PRELOADED = (
    "ipykernel.kernelapp",
    "ipykernel.zmqshell",
    "torch",
    "torch._dynamo",  # the first optimizer imports it, and so does a trial that is loaded
    "sklearn.datasets",
)


def main() -> None:
    """Serve until the other end of the socket, which is our first argument, is closed."""
    del sys.path[0]  # the folder of this file, which a kernel does not have there
    # Forked from one thread: OpenBLAS and the jemalloc of pyarrow start others when loaded.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
    gc.disable()
    for name in PRELOADED:
        import_module(name)
    gc.freeze()
    gc.enable()
    assert psutil.Process().num_threads() == 1, "of several threads, a fork has one"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps kernels that have ended
    with socket(fileno=int(sys.argv[1])) as connection:
        connection.set_inheritable(False)
        connection.sendall(b"ready\n")
        requests = connection.makefile()
        while line := requests.readline():
            pid = os.fork()
            if pid == 0:
                requests.close()
                connection.close()
                become_kernel(**json.loads(line))
            connection.sendall(f"{pid}\n".encode())


def become_kernel(arguments: list[str], folder: str, environment: dict[str, str]) -> NoReturn:
    """Be a process as if it had been started afresh, and run a kernel."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    theirs, ours = environment.get("PYTHONPATH"), os.environ.get("PYTHONPATH")
    assert theirs == ours, "what is imported already was found elsewhere"
    os.environ.clear()
    os.environ.update(environment)
    os.environ["JPY_PARENT_PID"] = str(os.getppid())
    os.chdir(folder)
    sys.argv = arguments
    import numpy
    from ipykernel.kernelapp import launch_new_instance

    numpy.random.seed()  # else all kernels would draw the same
    # It ends with us. The default, JPY_PARENT_PID, was read when ipykernel was imported.
    launch_new_instance(parent_handle=os.getppid())
    # As Python ends, but for taking the modules apart ([m] 0.5 s CPU).
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    os._exit(0)


if __name__ == "__main__":
    main()
