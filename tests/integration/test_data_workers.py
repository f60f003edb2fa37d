"""Real loader workers: the same bits as without any, and none is left behind."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from itertools import islice
from types import FrameType
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from det_jupyter.pytorch.data import BatchStream, DataLoader
from det_jupyter.pytorch.data.workers import report_unsent_batches
from det_jupyter.pytorch.rng import seed_everything
from tests.processes import wait_until
from tests.unit.pytorch.data_support import (
    Counting,
    Rolling,
    Shuffling,
    jitter,
    numbers,
    taken,
    training,
    validation,
)

RECIPES: dict[str, dict[str, Any]] = {
    "draws": {"dataset": Rolling(), "batch_size": 4, "shuffle": True, "collate_fn": jitter},
    "tensors": {"dataset": numbers(22), "batch_size": 4, "shuffle": True},
    "stream": {"dataset": Shuffling(), "batch_size": 2, "collate_fn": jitter},
}


@pytest.fixture(autouse=True)
def no_worker_is_left() -> Iterator[None]:
    yield
    wait_until(lambda: not workers(), "all workers have ended")


def workers() -> list[psutil.Process]:
    """Return this process's loader workers; torch names them."""
    children = psutil.Process().children()
    return [child for child in children if child.name() == "pt_data_worker"]


def listed(pairs: Iterable[Any]) -> list[Any]:
    return [
        ((batch[0] if isinstance(batch, list) else batch).tolist(), share)
        for batch, share in pairs
    ]


def batches(stream: BatchStream, count: int) -> list[Any]:
    found = listed(islice(stream, count))
    stream.close()
    return found


@pytest.mark.parametrize("name", RECIPES)
def test_any_number_of_workers_gives_the_same_bits(name: str) -> None:
    def found(num_workers: int, rank: int, skip: int, **options: Any) -> list[Any]:
        recipe = DataLoader(**RECIPES[name], num_workers=num_workers, **options)
        seed_everything(num_workers)
        before = random.getstate(), torch.get_rng_state()
        got = batches(training(recipe, rank, 2, skip=skip), 9)
        assert random.getstate() == before[0]
        assert torch.equal(torch.get_rng_state(), before[1])
        return got

    first, second = found(0, 0, skip=0), found(0, 1, skip=0)
    assert found(1, 0, skip=0) == first
    assert found(2, 0, skip=4)[:5] == first[4:]
    assert found(2, 1, skip=0, prefetch_factor=1) == second


@pytest.mark.parametrize("name", RECIPES)
def test_workers_validate_all_there_is_as_often_as_asked(name: str) -> None:
    def found(num_workers: int, **options: Any) -> list[list[Any]]:
        recipe = DataLoader(**RECIPES[name], num_workers=num_workers, **options)
        stream = validation(recipe, 1, 3)
        rounds = [listed(stream) for _ in range(2)]
        stream.close()
        return rounds

    alone = found(0)
    assert alone[0] == alone[1]
    assert found(2) == alone
    assert found(2, persistent_workers=True) == alone


def test_persistent_workers_serve_one_validation_after_another() -> None:
    stream = validation(DataLoader(numbers(12), 2, num_workers=2, persistent_workers=True))
    whole = listed(stream)
    assert [records for records, _ in whole] == [[2 * i, 2 * i + 1] for i in range(6)]
    first = {worker.pid for worker in workers()}
    assert len(first) == 2
    assert listed(islice(stream, 2)) == whole[:2]  # left in the middle
    assert listed(stream) == whole
    assert {worker.pid for worker in workers()} == first
    stream.close()
    stream.close()
    assert workers() == []
    assert listed(stream) == whole  # with new ones
    stream.close()


def test_closing_ends_the_workers_though_a_traceback_refers_to_them() -> None:
    stream = training(DataLoader(numbers(12), 2, num_workers=2))
    iterator = iter(stream)
    next(iterator)
    assert len(workers()) == 2
    stream.close()
    assert workers() == []
    del iterator


class Failing(Dataset[int]):
    def __init__(self, how: str) -> None:
        self.how = how

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        if index == 5 and self.how == "raises":
            raise ZeroDivisionError("record 5 is broken")
        if index == 5 and self.how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        return index


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ("raises", ZeroDivisionError, "record 5 is broken"),
        ("dies", RuntimeError, r"^loader worker 0 of rank 0 \(pid \d+\) was killed by SIGKILL"),
    ],
)
def test_a_worker_that_fails_is_told_with_the_batch(how: str, error: Any, words: str) -> None:
    stream = training(DataLoader(Failing(how), 2, num_workers=1), 0, 2)
    with pytest.raises(error, match=words) as caught:
        taken(stream, 9)
    note = caught.value.__notes__[-1]
    assert note.startswith("This was while rank 0 loaded batch ")
    assert note.endswith(" of Failing in 1 worker.")


def lock_instead(records: list[int]) -> Any:
    return threading.Lock()


@pytest.mark.parametrize("make", [DataLoader, TorchDataLoader])
def test_a_batch_that_a_worker_cannot_send_is_an_error(make: Any) -> None:
    stream = training(make(Failing("never"), 2, num_workers=1, collate_fn=lock_instead))
    with pytest.raises(TypeError, match=r"cannot send its batch to the rank: .*cannot pickle"):
        taken(stream, 1)
    stream.close()


def test_other_queues_report_what_they_cannot_send_as_before(
    capfd: pytest.CaptureFixture[str],
) -> None:
    report_unsent_batches()
    queue = multiprocessing.get_context("fork").Queue()
    queue.put((0, threading.Lock()))
    queue.close()
    queue.join_thread()
    assert "TypeError: cannot pickle" in capfd.readouterr().err


class Looking(Counting):
    """Would shard by itself if it saw torch's worker info."""

    def __iter__(self) -> Iterator[int]:
        assert get_worker_info() is None
        yield from super().__iter__()
        assert get_worker_info() is None


def test_a_stream_does_not_see_that_it_is_read_in_a_worker() -> None:
    recipe = DataLoader(Looking(5), 2, num_workers=2)
    assert [records for records, _ in taken(training(recipe), 4)] == [[0, 1], [2, 3], [4], [0, 1]]


class Opened(Dataset[int]):
    handle = -1

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return self.handle


class OpenedStream(IterableDataset[int]):
    handle = -1

    def __iter__(self) -> Iterator[int]:
        yield self.handle


def open_in_worker(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.handle = 7  # type: ignore[attr-defined]  # the user's own dataset


@pytest.mark.parametrize("dataset", [Opened(), OpenedStream()])
def test_worker_init_fn_finds_the_users_dataset(dataset: Any) -> None:
    recipe = DataLoader(dataset, num_workers=1, worker_init_fn=open_in_worker)
    assert taken(training(recipe), 1)[0][0] == [7]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_torch_loader_with_workers_continues_where_it_was(persistent: bool) -> None:
    def records(skip: int, count: int) -> list[list[int]]:
        loader = TorchDataLoader(
            numbers(10), 3, shuffle=True, num_workers=1, persistent_workers=persistent
        )
        return [record for record, _ in taken(training(loader, skip=skip), count)]

    assert records(3, 4) == records(0, 7)[3:]


def test_a_torch_loaders_persistent_workers_serve_later_validations() -> None:
    loader = TorchDataLoader(numbers(6), 3, num_workers=1, persistent_workers=True)
    stream = validation(loader)
    pids = []
    for _ in range(2):
        assert [records for records, _ in listed(stream)] == [[0, 1, 2], [3, 4, 5]]
        pids.append([worker.pid for worker in workers()])
    assert pids[0] == pids[1]
    stream.close()
    assert workers() == []
    assert len(listed(stream)) == 2  # with new ones
    stream.close()


def end_at_a_lock(frame: FrameType, event: str, argument: object) -> None:
    if frame.f_code.co_qualname.startswith("SemLock."):
        os.kill(os.getpid(), signal.SIGKILL)


def read_watched(event: Any) -> None:
    sys.setprofile(end_at_a_lock)
    event.is_set()
    sys.setprofile(None)


def test_the_event_that_ends_workers_has_no_lock_that_a_killed_one_could_hold() -> None:
    """A rank that ends its workers would wait for it forever."""
    recipe = DataLoader(numbers(400), 4, num_workers=1)
    iterator: Any = iter(recipe.get_data_loader())
    event = iterator._workers_done_event
    reader = torch.multiprocessing.get_context("fork").Process(target=read_watched, args=(event,))
    reader.start()
    reader.join()
    assert reader.exitcode == 0
    assert not event.is_set()
    iterator._shutdown_workers()
    assert event.is_set()
