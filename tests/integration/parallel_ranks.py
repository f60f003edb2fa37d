"""Ranks and fork servers, forked for speed from a process that has loaded torch (tests/forks.py).

    run = RankRunner(torch_source())
    run(function, 2, *args)    [what it returned on rank 0, on rank 1]: real ranks over gloo

The function is one of a test module's own and gets the rank's DistributedContext first.
test_zygote.py has fork servers as a user has them.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from det_jupyter.rank import zygote
from tests.forks import ForkSource, wait_for_all


class RankRunner:
    """Runs functions on ranks; the first failure of any is raised with its traceback."""

    def __init__(self, source: ForkSource) -> None:
        self._source = source

    def __call__(self, function: Callable[..., Any], ranks: int, *args: Any) -> list[Any]:
        name = (function.__module__, function.__qualname__)
        with tempfile.TemporaryDirectory() as folder:
            forks = [
                self._source.start(f"{__name__}:run_rank", folder, name, rank, ranks, args)
                for rank in range(ranks)
            ]
            wait_for_all(forks)
            answers = [_answer(Path(folder, f"answer-{rank}"), rank) for rank in range(ranks)]
        failures = [text for is_good, text in answers if not is_good]
        assert not failures, "\n".join(failures)
        return [value for _, value in answers]


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


def run_rank(
    folder: str, name: tuple[str, str], rank: int, ranks: int, args: tuple[Any, ...]
) -> NoReturn:
    """Be a rank that calls a function; write what it returns, or its traceback."""
    import torch
    import torch.distributed as dist

    from det_jupyter.core import DistributedContext

    # A warning fails a rank's test too, but for the one that pyproject.toml ignores.
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "Guards may run slower")
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
        function = getattr(importlib.import_module(name[0]), name[1])
        answer = (True, function(context, *args))
    except BaseException:
        answer = (False, f"rank {rank}: {traceback.format_exc()}")
    with open(f"{folder}/answer-{rank}.part", "wb") as file:
        pickle.dump(answer, file)
    os.rename(f"{folder}/answer-{rank}.part", f"{folder}/answer-{rank}")
    os._exit(0 if answer[0] else 1)  # [m] torch takes 0.05 s CPU to unregister its operators


def _answer(file: Path, rank: int) -> tuple[bool, Any]:
    try:
        answer: tuple[bool, Any] = pickle.loads(file.read_bytes())
    except FileNotFoundError:
        return False, f"rank {rank}: ended without an answer"
    return answer
