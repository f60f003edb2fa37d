"""Functions run on real ranks over gloo: forked, for speed, from one process that has torch.

    run = RankRunner()
    run(function, 2, *args)    [what it returned on rank 0, on rank 1]

The function is one of a test module's own and gets the rank's DistributedContext first.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

TIMEOUT_S = 90.0


class RankRunner:
    """Runs functions on ranks; the first failure of any is raised with its traceback."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def __call__(self, function: Callable[..., Any], ranks: int, *args: Any) -> list[Any]:
        request = (function.__module__, function.__qualname__, ranks, args)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump(request, self._process.stdin)
        self._process.stdin.flush()
        answers = pickle.load(self._process.stdout)
        failures = [text for is_good, text in answers if not is_good]
        assert not failures, "\n".join(failures)
        return [value for _, value in answers]


@contextmanager
def rank_runner() -> Iterator[RankRunner]:
    """Run the process that forks ranks; it ends at the end."""
    argv = [sys.executable, "-W", "error", "-m", __name__]  # a warning fails a rank's test too
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield RankRunner(process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        pickle.dump(None, process.stdin)  # a process forked by a test may have the pipe open, too
        process.stdin.close()
        process.wait(60)  # on a busy computer it may still import torch
        process.stdout.close()


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    # torch loads _dynamo with the first optimizer: [m] 2 s in each rank of each test.
    for module in ("torch.distributed.fsdp", "torch._dynamo", "det_jupyter.pytorch.parallel"):
        importlib.import_module(module)
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:
            return
        if request is None:
            return
        pickle.dump(_run_ranks(*request), answers)
        answers.flush()


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
        pid, status = os.waitpid(-1, os.WNOHANG)
        left.discard(pid)
        if (pid and status) or time.monotonic() > deadline:
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


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "wb") as answers:
        _serve(sys.stdin.buffer, answers)
