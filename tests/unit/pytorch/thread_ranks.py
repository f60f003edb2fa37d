"""Ranks as threads of one process: collectives without process groups, for many small tests."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import torch

from det_jupyter.core import DistributedContext

T = TypeVar("T")


class _Meeting:
    """Where the ranks exchange: values are pickled, as between processes."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=600)
        self.values: list[bytes] = [b""] * size
        self.count = 0

    def exchange(self, rank: int, value: Any) -> list[Any]:
        self.values[rank] = pickle.dumps(value)
        self.barrier.wait()
        everyone = list(self.values)
        if rank == 0:
            self.count += 1
        self.barrier.wait()
        return [pickle.loads(item) for item in everyone]


class ThreadRank(DistributedContext):
    """One of several ranks that are threads. `collectives` counts what they have exchanged."""

    def __init__(self, rank: int, size: int, meeting: _Meeting) -> None:
        super().__init__()
        self.rank = self.local_rank = rank
        self.size = self.local_size = size
        self._meeting = meeting

    @property
    def collectives(self) -> int:
        return self._meeting.count

    def gather(self, value: T) -> list[T] | None:
        everyone = self._meeting.exchange(self.rank, value)
        return everyone if self.is_chief else None

    def allgather(self, value: T) -> list[T]:
        return self._meeting.exchange(self.rank, value)

    def broadcast(self, value: T) -> T:
        found: T = self._meeting.exchange(self.rank, value)[0]
        return found

    def allgather_local(self, value: T) -> list[T]:
        return self.allgather(value)

    def broadcast_local(self, value: T) -> T:
        return self.broadcast(value)

    def reduce_(self, tensor: torch.Tensor, operation: Literal["sum", "max"]) -> torch.Tensor:
        stacked = torch.stack(self._meeting.exchange(self.rank, tensor))
        tensor.copy_(stacked.sum(dim=0) if operation == "sum" else stacked.amax(dim=0))
        return tensor


def run_ranks(size: int, body: Callable[[ThreadRank], T]) -> list[T | Exception]:
    """Run the body on every rank and return what each returned or raised."""
    meeting = _Meeting(size)
    outcomes: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            outcomes[rank] = body(ThreadRank(rank, size, meeting))
        except Exception as error:
            outcomes[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        someone_failed = any(isinstance(outcome, Exception) for outcome in outcomes)
        for thread in threads:
            thread.join(0.3 if someone_failed else 0.01)
        if someone_failed:
            meeting.barrier.abort()  # who waits now, waits for a rank that has failed
    return outcomes


def results(size: int, body: Callable[[ThreadRank], T]) -> list[T]:
    """Run the body on every rank and return what each returned; what one raised is raised."""
    found: list[T] = []
    for outcome in run_ranks(size, body):
        if isinstance(outcome, Exception):
            raise outcome
        found.append(outcome)
    return found
