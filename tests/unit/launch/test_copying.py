"""Streams of workers that are copied: what appears when, and that nothing is left open."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from det_jupyter.launch import copies as module
from det_jupyter.launch.copies import Copies, Tail

PREFIX = b"[rank=1] "


class Stream:
    """A stream of a worker, which is copied into a pipe."""

    def __init__(self, copies: Copies, tail: Tail) -> None:
        source, self._write_end = os.pipe()
        self._copied, self._target = os.pipe()
        os.set_blocking(self._copied, False)
        copies.add(os.fdopen(source, "rb", buffering=0), self._target, PREFIX, tail)

    def print(self, data: bytes) -> None:
        """Write as the worker does."""
        os.write(self._write_end, data)

    def end(self) -> None:
        """Close the worker's end."""
        os.close(self._write_end)
        self._write_end = -1

    def stop_reading(self) -> None:
        """Let nobody read the copy any more."""
        os.close(self._copied)
        self._copied = -1

    def read(self) -> bytes:
        """Return what was copied since the last call."""
        try:
            return os.read(self._copied, 1 << 20)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        """Close all that is open."""
        for descriptor in (self._write_end, self._copied, self._target):
            if descriptor >= 0:
                os.close(descriptor)


def num_open() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def copies() -> Iterator[Copies]:
    num = num_open()
    copies = Copies()
    yield copies
    copies.close()
    assert num_open() == num, "a descriptor is left open"


@pytest.fixture
def stream(copies: Copies) -> Iterator[Stream]:
    num = num_open()
    stream = Stream(copies, Tail())
    yield stream
    stream.close()
    copies.copy(wait_s=0)  # it has ended, so its source is closed
    assert num_open() == num, "a descriptor is left open"


def test_lines_are_copied_as_they_are_printed(copies: Copies, stream: Stream) -> None:
    assert not copies.copy(wait_s=0)
    stream.print(b"one\ntw")
    assert copies.copy(wait_s=0)
    assert stream.read() == b"[rank=1] one\n"
    assert not copies.copy(wait_s=0)
    stream.print(b"o\n")
    assert copies.copy(wait_s=0)
    assert stream.read() == b"[rank=1] two\n"


def test_a_line_that_does_not_end_is_shown_after_a_pause(
    copies: Copies, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stream.print(b"name? ")
    copies.copy(wait_s=0)
    now[0] = 101.0
    copies.copy(wait_s=0)
    assert stream.read() == b""
    now[0] = 101.1
    assert not copies.copy(wait_s=0)
    assert stream.read() == b"[rank=1] name? "
    now[0] = 110.0
    copies.copy(wait_s=0)
    assert stream.read() == b""


def test_a_wait_ends_when_it_is_woken_or_a_process_ends(copies: Copies) -> None:
    for _ in range(70_000):  # more than the pipe holds
        copies.wake()
    assert not copies.copy()
    while copies._selector.select(0):
        copies.copy(wait_s=0)
    waiting = threading.Thread(target=copies.copy, args=(60.0,))
    waiting.start()
    copies.wake()
    waiting.join()
    pid = os.posix_spawn("/bin/true", ["true"], {})
    copies.wake_at_end_of(pid)
    assert not copies.copy(wait_s=60.0)
    os.waitpid(pid, 0)
    assert copies._selector.select(0) == []  # it is told once


def test_where_the_end_of_a_process_cannot_be_waited_for_it_is_looked_for_often(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", fail)
    copies.wake_at_end_of(os.getpid())
    waited: list[float | None] = []

    def select(wait_s: float | None) -> list[object]:
        waited.append(wait_s)
        return []

    monkeypatch.setattr(copies._selector, "select", select)
    copies.copy()
    assert waited == [0.05]


def test_a_worker_whose_output_nobody_reads_gets_the_error_itself(
    copies: Copies, stream: Stream
) -> None:
    stream.print(b"one\ntw")
    stream.stop_reading()
    copies.copy(wait_s=0)
    with pytest.raises(BrokenPipeError):
        stream.print(b"o\n")


def test_the_rest_is_copied_at_the_end() -> None:
    copies = Copies()
    streams = [Stream(copies, Tail()) for _ in range(2)]
    for stream in streams:
        stream.print(b"x" * 40_000 + b"\nend")
        stream.end()
    copies.close()
    for stream in streams:
        assert stream.read() == PREFIX + b"x" * 40_000 + b"\n" + PREFIX + b"end"
        stream.close()


def test_a_process_that_holds_a_pipe_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_DRAIN_S", 0.0)
    copies = Copies()
    stream = Stream(copies, tail := Tail())
    stream.print(b"last words")
    copies.copy(wait_s=0)
    copies.close()
    assert stream.read() == b"[rank=1] last words"
    assert tail.lines() == ["last words"]
    stream.close()
