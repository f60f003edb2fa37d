"""Processes with torch, forked for speed from one that has loaded it, which takes 5 s of CPU.

    run = RankRunner(loader)
    run(function, 2, *args)    [what it returned on rank 0, on rank 1]: real ranks over gloo

The function is one of a test module's own and gets the rank's DistributedContext first. Fork
servers come from there too; test_zygote.py and all tests with an agent have those of a user.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from det_jupyter.worker import zygote

TIMEOUT_S = 90.0
# torch loads _dynamo with the first optimizer: [m] 2 s in each rank of each test.
LOADED = ("torch.distributed.fsdp", "torch._dynamo", "det_jupyter.pytorch.parallel")


class Loader:
    """The process that has loaded torch."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._answers = connection.makefile("rb")

    def ask(self, request: tuple[Any, ...], descriptors: list[int]) -> Any:
        """Return the answer of one of the functions below; it gets the descriptors first."""
        data = pickle.dumps(request)
        length = len(data).to_bytes(4)
        if descriptors:
            socket.send_fds(self._connection, [length], descriptors)
        else:
            self._connection.sendall(length)
        self._connection.sendall(data)
        return pickle.load(self._answers)

    @contextmanager
    def zygote(self, out: Path, connection: socket.socket, lifeline_fd: int) -> Iterator[int]:
        """Run a fork server, which has to end at the end; yield its number of the lifeline."""
        request = ("_run_zygote", str(out))
        pid, lifeline_fd = self.ask(request, [connection.fileno(), lifeline_fd])
        ended_fd = os.pidfd_open(pid)
        try:
            yield lifeline_fd
            assert select.select([ended_fd], [], [], 60)[0], "the zygote goes on"
        finally:
            os.close(ended_fd)


@contextmanager
def torch_loader() -> Iterator[Loader]:
    """Run the process that has loaded torch; it ends at the end."""
    ours, theirs = socket.socketpair()
    # A warning fails a rank's test too. With -m, det_stack would show our frames.
    start = f"from {__name__} import serve; serve({theirs.fileno()})"
    argv = [sys.executable, "-W", "error", "-c", start]
    with ours:
        with theirs:
            process = subprocess.Popen(argv, pass_fds=(theirs.fileno(),))
        try:
            yield Loader(ours)
        finally:
            ours.shutdown(socket.SHUT_RDWR)  # a process forked by a test may have it open, too
            process.wait(60)  # on a busy computer it may still import torch


class RankRunner:
    """Runs functions on ranks; the first failure of any is raised with its traceback."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __call__(self, function: Callable[..., Any], ranks: int, *args: Any) -> list[Any]:
        request = ("_run_ranks", function.__module__, function.__qualname__, ranks, args)
        answers = self._loader.ask(request, [])
        failures = [text for is_good, text in answers if not is_good]
        assert not failures, "\n".join(failures)
        return [value for _, value in answers]


def serve(connection_fd: int) -> None:
    """Load torch, and fork what is asked for until there is nothing more."""
    with zygote._environment(zygote._WHILE_PRELOADING):
        for module in (*zygote.NEEDED, *zygote.HELPFUL, "det_jupyter.worker.rank", *LOADED):
            importlib.import_module(module)
    gc.freeze()
    with socket.socket(fileno=connection_fd) as connection, connection.makefile("rwb") as stream:
        connection.set_inheritable(False)
        while True:
            length, descriptors, _, _ = socket.recv_fds(connection, 4, 2)
            if not length:
                return
            name, *arguments = pickle.loads(stream.read(int.from_bytes(length)))
            pickle.dump(globals()[name](*descriptors, *arguments), stream)
            stream.flush()
            for descriptor in descriptors:
                os.close(descriptor)


def _run_zygote(connection_fd: int, lifeline_fd: int, out: str) -> tuple[int, int]:
    if (pid := os.fork()) == 0:
        os.set_inheritable(lifeline_fd, True)
        _become_zygote(connection_fd, out)
    return pid, lifeline_fd


def _become_zygote(connection_fd: int, out: str) -> NoReturn:
    """Be the process that an agent starts."""
    printed = os.open(out, os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(printed, stream)
    warnings.filters.remove(("error", None, Warning, None, 0))  # type: ignore[attr-defined]  # -W
    del sys.path[0]  # -P
    for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
        del sys.modules[name]
    sys.modules["__main__"] = zygote
    sys.argv[1:] = ["--socket", str(connection_fd), "--target", "det_jupyter.worker.rank:run_rank"]
    os._exit(zygote.main())


def _run_ranks(module: str, name: str, ranks: int, args: tuple[Any, ...]) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        pids = []
        for rank in range(ranks):
            if (pid := os.fork()) == 0:
                _run_rank(folder, module, name, rank, ranks, args)
            pids.append(pid)
        _wait(pids)
        return [_answer(f"{folder}/answer-{rank}", rank) for rank in range(ranks)]


def _run_rank(
    folder: str, module: str, name: str, rank: int, ranks: int, args: tuple[Any, ...]
) -> None:
    import torch
    import torch.distributed as dist

    from det_jupyter.core import DistributedContext

    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    os.environ.update({name: str(value) for name, value in place.items()})  # as a launcher does
    try:
        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks
        )
        context = DistributedContext(
            rank=rank,
            size=ranks,
            local_rank=rank,
            local_size=ranks,
            cross_rank=0,
            cross_size=1,
            secret=folder.encode(),
        )
        function = getattr(importlib.import_module(module), name)
        answer = (True, function(context, *args))
    except BaseException:
        answer = (False, f"rank {rank}: {traceback.format_exc()}")
    with open(f"{folder}/answer-{rank}.part", "wb") as file:
        torch.save(answer, file)
    os.rename(f"{folder}/answer-{rank}.part", f"{folder}/answer-{rank}")
    os._exit(0 if answer[0] else 1)


def _wait(pids: list[int]) -> None:
    """Wait for all; when one fails or time is up, end the others, which may wait for it."""
    deadline = time.monotonic() + TIMEOUT_S
    left = set(pids)
    while left:
        pid, status = os.waitpid(-1, os.WNOHANG)  # zygotes too
        is_failed = pid in left and status != 0
        left.discard(pid)
        if is_failed or time.monotonic() > deadline:
            for other in left:
                os.kill(other, signal.SIGKILL)
            for other in left:
                os.waitpid(other, 0)
            return
        time.sleep(0.005 if not pid else 0)


def _answer(path: str, rank: int) -> tuple[bool, Any]:
    import torch

    try:
        answer: tuple[bool, Any] = torch.load(path, weights_only=False)
    except FileNotFoundError:
        return False, f"rank {rank}: ended without an answer"
    return answer
