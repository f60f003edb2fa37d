"""Threads: what another executes can be looked at, whatever is collected and ends meanwhile."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from det_jupyter.contract.host.own_threads import frame_of


@pytest.fixture
def collections() -> Iterator[list[str]]:
    """Note each garbage collection, of which every few objects cause one."""
    noted: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        noted.append(phase)

    thresholds = gc.get_threshold()
    gc.callbacks.append(note)
    gc.set_threshold(1)
    yield noted
    gc.set_threshold(*thresholds)
    gc.callbacks.remove(note)


def deep(depth: int, entered: threading.Event, leave: threading.Event) -> None:
    if depth:
        deep(depth - 1, entered, leave)
    else:
        entered.set()
        leave.wait()


def test_nothing_is_collected_while_python_lists_its_threads(
    collections: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = sys._current_frames
    during: list[int] = []

    def watched() -> Any:
        before = len(collections)
        found = frames()
        during.append(len(collections) - before)
        return found

    monkeypatch.setattr(sys, "_current_frames", watched)
    entered, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=deep, args=(50, entered, leave))
    thread.start()
    entered.wait()
    frame = frame_of(thread)
    leave.set()
    thread.join()
    assert during == [0]
    assert frame is not None
    assert gc.isenabled()


def test_a_process_that_collects_nothing_still_does_not() -> None:
    gc.disable()
    try:
        frame = frame_of(threading.current_thread())
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert frame is not None
    assert frame.f_code.co_name == "frame_of"


def test_a_thread_that_has_ended_has_no_frame() -> None:
    thread = threading.Thread(target=lambda: None)
    assert frame_of(thread) is None  # it has not begun
    thread.start()
    thread.join()
    assert frame_of(thread) is None
