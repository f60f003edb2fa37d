"""Ranks and fork servers, forked for speed from a process that has loaded torch (tests/forks.py).

    run = RankRunner(torch_source())
    run(function, 2, *args)    [what it returned on rank 0, on rank 1]: real ranks over gloo

The function is one of a test module's own and gets the rank's DistributedContext first.
With the fixture `shared_ranks`, the calls of a module run in the same ranks.
test_zygote.py has fork servers as a user has them.
"""

from __future__ import annotations

import importlib
import os
import pickle
import select
import socket
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, NoReturn

from det_jupyter.rank import zygote
from tests.forks import Fork, ForkSource, wait_for_all


class RankRunner:
    """Runs each function on ranks of its own; the failures of all are raised with tracebacks."""

    def __init__(self, source: ForkSource) -> None:
        self._source = source

    def __call__(self, function: Callable[..., Any], ranks: int, *args: Any) -> list[Any]:
        with closing(Ranks(self._source, ranks)) as group:
            return group(function, *args)


class SharedRanks(RankRunner):
    """Runs functions on the same ranks, as long as none fails: a group for each number of ranks.

    To start a rank takes 0.1 s CPU, and to train its first sharded batch 0.2 s ([m]).
    """

    def __init__(self, source: ForkSource) -> None:
        super().__init__(source)
        self._groups: dict[int, Ranks] = {}

    def __call__(self, function: Callable[..., Any], ranks: int, *args: Any) -> list[Any]:
        group = self._groups.pop(ranks, None) or Ranks(self._source, ranks)
        with ExitStack() as on_failure:
            on_failure.callback(group.close)
            answers = group(function, *args)
            on_failure.pop_all()
        self._groups[ranks] = group
        return answers

    def close(self) -> None:
        """End the ranks."""
        for group in self._groups.values():
            group.close()


class Ranks:
    """A group of ranks, which run one function after another until one fails."""

    def __init__(self, source: ForkSource, size: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._links: list[socket.socket] = []
        self._forks: list[Fork] = []
        for rank in range(size):
            ours, theirs = socket.socketpair()
            with theirs:
                args = (self._folder.name, rank, size)
                fork = source.start(f"{__name__}:run_rank", *args, descriptors=[theirs.fileno()])
            self._links.append(ours)
            self._forks.append(fork)

    def __call__(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        request = pickle.dumps(((function.__module__, function.__qualname__), args))
        try:
            for link in self._links:
                link.sendall(len(request).to_bytes(8) + request)
            working = set(self._links)
            while working:
                for link in select.select(working, [], [])[0]:
                    working.discard(link)
                    if not link.recv(1):
                        wait_for_all(self._forks)  # one has failed
                        working.clear()
        except BaseException:  # such as a test's timer
            for fork in self._forks:
                fork.kill()
            raise
        files = [Path(self._folder.name, f"answer-{rank}") for rank in range(len(self._links))]
        answers = [_answer(file, rank) for rank, file in enumerate(files)]
        failures = [text for is_good, text in answers if not is_good]
        assert not failures, "\n".join(failures)
        return [value for _, value in answers]

    def close(self) -> None:
        """End the ranks: they wait for a function, or one of them has failed."""
        for link in self._links:
            # A process that a test has forked may have the socket open, so closing is not enough.
            with suppress(OSError):  # the rank may have ended
                link.shutdown(socket.SHUT_RDWR)
            link.close()
        wait_for_all(self._forks)
        self._folder.cleanup()


def become_zygote(
    connection_fd: int, lifeline_fd: int, target: str = "det_jupyter.rank.rank:run_rank"
) -> int:
    """Be the process that an agent starts."""
    os.set_inheritable(lifeline_fd, True)
    if not target.startswith("tests."):
        del sys.path[0]  # -P
    for module in [module for module in sys.modules if module.split(".")[0] == "tests"]:
        del sys.modules[module]
    sys.modules["__main__"] = zygote
    sys.argv[1:] = ["--socket", str(connection_fd), "--target", target]
    return zygote.main()


def run_rank(descriptor: int, folder: str, rank: int, ranks: int) -> NoReturn:
    """Be a rank that calls functions; write what each returns, or the traceback of a failure."""
    import torch

    # A warning fails a rank's test too, but for the one that pyproject.toml ignores.
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "Guards may run slower")
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    os.environ.update({name: str(value) for name, value in place.items()})  # as a launcher does
    torch.set_num_threads(1)
    context, is_good = None, True
    with socket.socket(fileno=descriptor) as link, link.makefile("rb") as requests:
        while is_good and (length := requests.read(8)):
            name, args = pickle.loads(requests.read(int.from_bytes(length)))
            try:
                context = context or _join(folder, rank, ranks)
                function = getattr(importlib.import_module(name[0]), name[1])
                answer = (True, function(context, *args))
            except BaseException:
                answer = (False, f"rank {rank}: {traceback.format_exc()}")
            with open(f"{folder}/answer-{rank}.part", "wb") as file:
                pickle.dump(answer, file)
            os.rename(f"{folder}/answer-{rank}.part", f"{folder}/answer-{rank}")
            if is_good := answer[0]:
                link.send(b".")
    os._exit(0 if is_good else 1)  # [m] torch takes 0.05 s CPU to unregister its operators


def _join(folder: str, rank: int, ranks: int) -> Any:
    import torch.distributed as dist

    from det_jupyter.core import DistributedContext

    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks
    )
    return DistributedContext(
        rank=rank,
        size=ranks,
        local_rank=rank,
        local_size=ranks,
        cross_rank=0,
        cross_size=1,
        secret=folder.encode(),
    )


def _answer(file: Path, rank: int) -> tuple[bool, Any]:
    try:
        answer: tuple[bool, Any] = pickle.loads(file.read_bytes())
        file.unlink()
    except FileNotFoundError:
        return False, f"rank {rank}: ended without an answer"
    return answer
