"""Ranks share a page with the times at which they arrived, if they are on one computer."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy
import pytest

from det_jupyter.core.timings import arrivals
from det_jupyter.core.timings.arrivals import NO_NUMBER, RING, Arrivals
from det_jupyter.core.timings.intervals import UNKNOWN


class Gang:
    """Ranks that are threads, and exchange values."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.values: list[Any] = [None] * size
        self.barrier = threading.Barrier(size)
        self.found: list[Arrivals | None] = [None] * size

    def open(self) -> list[Arrivals | None]:
        """Open the page on all ranks; return theirs."""

        def run(rank: int) -> None:
            self.found[rank] = Arrivals.open(Member(self, rank))

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.found


class Member:
    """A rank of the gang."""

    def __init__(self, gang: Gang, rank: int) -> None:
        self._gang = gang
        self._rank = rank

    @property
    def size(self) -> int:
        return self._gang.size

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def is_chief(self) -> bool:
        return self._rank == 0

    def allgather(self, value: Any) -> list[Any]:
        self._gang.values[self._rank] = value
        self._gang.barrier.wait()
        found = list(self._gang.values)
        self._gang.barrier.wait()
        return found

    def broadcast(self, value: Any) -> Any:
        return self.allgather(value)[0]


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(arrivals, "_MEMORY", str(tmp_path))
    return tmp_path


def check_shared(pages: list[Arrivals | None], base: int) -> None:
    """Check that each page has the times of all ranks."""
    exchanges = numpy.array([0, 1, RING - 1, NO_NUMBER])
    for number in (0, 1, RING - 1):
        for rank, page in enumerate(pages):
            assert page is not None
            page.write(number, base + 1000 * number + (rank * 7) % 5)
    last = max((rank * 7) % 5 for rank in range(len(pages)))
    for page in pages:
        assert page is not None
        *known, unknown = page.last(exchanges).tolist()
        assert known == [base + 1000 * number + last for number in (0, 1, RING - 1)]
        assert unknown == UNKNOWN


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_of_one_computer_share_a_page_that_is_no_file_any_more(
    memory: Path, size: int
) -> None:
    pages = Gang(size).open()
    assert list(memory.iterdir()) == []
    check_shared(pages, perf_counter_ns())


def test_a_rank_that_is_alone_needs_no_page(memory: Path) -> None:
    assert Gang(1).open() == [None]


def test_ranks_of_several_computers_share_nothing(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(["a", "b"])
    monkeypatch.setattr(arrivals, "_machine", lambda: next(names))
    assert Gang(2).open() == [None, None]


def test_without_room_on_the_chief_there_is_no_page_on_any_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals, "_create", lambda size: "")
    assert Gang(2).open() == [None, None]


def test_if_one_rank_cannot_open_it_none_has_it(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, lock = [0], threading.Lock()
    open_file = os.open

    def refuse_second(path: Any, flags: int, *mode: int, **how: Any) -> int:
        with lock:
            opened[0] += "arrivals" in str(path) and not flags & os.O_CREAT
            if opened[0] == 2:
                opened[0] += 1
                raise PermissionError
        return open_file(path, flags, *mode, **how)

    monkeypatch.setattr(os, "open", refuse_second)
    assert Gang(2).open() == [None, None]
    assert list(memory.iterdir()) == []


def test_all_processes_of_a_computer_have_one_name_for_it() -> None:
    name = arrivals._machine()
    assert name
    assert name == arrivals._machine()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_that_do_not_meet_share_the_page_of_their_run(tmp_path: Path, size: int) -> None:
    path = tmp_path / "page"
    pages = []
    for rank in range(size):
        pages.append(Arrivals.of_run(path, rank, size))
        assert path.exists() is (rank < size - 1), "the last one unlinks it"
    check_shared(pages, perf_counter_ns())


def limited(call: Callable[[], Any]) -> Any:
    """Call a function while no file may grow."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        return call()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_run_without_room_for_a_page_has_none(tmp_path: Path) -> None:
    assert Arrivals.of_run(tmp_path / "gone" / "page", 0, 2) is None
    assert limited(lambda: Arrivals.of_run(tmp_path / "page", 0, 2)) is None
