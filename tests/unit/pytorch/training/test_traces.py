"""Profiles of a running trial: how many batches are recorded, and which traces are kept."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
import torch

from det_jupyter.contract.messages import Profile, ProfileOrder
from det_jupyter.contract.run.journal import TraceSaved
from det_jupyter.pytorch.training import traces
from det_jupyter.pytorch.training.traces import Tracer

OPS = 9  # in a batch


def record(
    folder: Path, batches: int, *, order_id: int = 1, own: bool = False, **profile: Any
) -> TraceSaved:
    """Record a profile while `batches` are trained, and return how it ended."""
    records: list[TraceSaved] = []
    order = ProfileOrder(id=order_id, profile=Profile(**profile))
    tracer = Tracer(order, folder, 0, 10, records.append)
    tracer.start(has_own_profiler=own)
    for _ in range(batches):
        for _ in range(OPS):
            torch.ones(8).sum()
        tracer.step()
    tracer.close()
    assert tracer.is_over
    (ended,) = records
    return ended


def test_a_profile_has_the_batches_that_were_ordered(tmp_path: Path) -> None:
    ended = record(tmp_path, 8, steps=3)
    assert (ended.first, ended.steps, ended.error, ended.note) == (13, 3, "", "")
    path = Path(ended.path)
    assert path.name == "profile-1-rank-0-batches-13-15.json.gz"
    assert path.stat().st_size == ended.size_bytes
    assert list(tmp_path.iterdir()) == [path]
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    assert sum(each["name"] == "aten::ones" and "dur" in each for each in events) == 3 * OPS


def test_a_trace_is_told_with_the_batch_after_it_is_written(tmp_path: Path) -> None:
    records: list[TraceSaved] = []
    order = ProfileOrder(id=1, profile=Profile(steps=1))
    tracer = Tracer(order, tmp_path, 0, 0, records.append)
    tracer.start(has_own_profiler=False)
    while not (writing := [each for each in enumerate_threads() if each.name == "det-trace"]):
        tracer.step()
    writing[0].join()
    assert records == []
    tracer.step()
    assert [(ended.first, ended.steps) for ended in records] == [(1, 1)]


@pytest.mark.parametrize(
    ("batches", "options", "error"),
    [
        (8, {"own": True}, "the trial has a profiler of its own (context.set_profiler)"),
        (1, {"steps": 1}, "the run ended before a batch was recorded"),
        (2, {"steps": 2}, "the run ended before a batch was recorded"),
        (8, {"steps": 2, "max_bytes": 1024}, "the trace of one batch has about "),
        (8, {"steps": 1, "max_bytes": 1024}, "the trace of one batch has about "),
    ],
)
def test_a_profile_that_cannot_be_had_is_told_and_nothing_is_kept(
    tmp_path: Path, batches: int, options: dict[str, Any], error: str
) -> None:
    ended = record(tmp_path, batches, **options)
    assert ended.error.startswith(error)
    assert (ended.path, ended.size_bytes, ended.steps, ended.note) == ("", 0, 0, "")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_ends_no_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for steps in (1, 2):  # in the other thread, or in the training's for a sample
        ended = record(tmp_path / "file", 8, steps=steps)
        assert ended.error.startswith("FileExistsError: ")


def test_a_run_that_ends_early_keeps_the_batches_that_were_recorded(tmp_path: Path) -> None:
    ended = record(tmp_path, 5, steps=9)
    assert (ended.first, ended.steps) == (13, 2)
    assert ended.note == "the run ended before 9 batches were recorded"


def test_fewer_batches_are_recorded_if_more_would_exceed_the_limit(tmp_path: Path) -> None:
    one_batch = record(tmp_path, 3, steps=1).size_bytes
    ended = record(tmp_path, 400, steps=200, max_bytes=max(1 << 16, 3 * one_batch))
    assert 1 <= ended.steps < 200
    assert "would exceed the limit" in ended.note


def test_batches_that_grow_are_recorded_again_and_fewer(tmp_path: Path) -> None:
    records: list[TraceSaved] = []
    order = ProfileOrder(id=1, profile=Profile(steps=3, max_bytes=4096))
    tracer = Tracer(order, tmp_path, 0, 0, records.append)
    tracer.start(has_own_profiler=False)
    number = 0
    while not tracer.is_over:
        number += 1
        for _ in range(1 if number < 3 else 30):
            torch.ones(8)
        tracer.step()
    (ended,) = records
    assert ended.error == ""
    assert 1 <= ended.steps < 3
    assert ended.size_bytes <= 4096
    assert ended.note == "3 batches would exceed the limit of 4.1 kB"
    assert [str(path) for path in tmp_path.iterdir()] == [ended.path]


@pytest.mark.parametrize(
    ("limit", "most", "kept"),
    [
        ("MAX_FILES", 2, [2, 3]),
        ("MAX_KEPT_BYTES", 1, [3]),  # the newest, however large
        ("MAX_KEPT_BYTES", 1 << 20, [1, 2, 3]),
    ],
)
def test_the_oldest_traces_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, kept: list[int]
) -> None:
    monkeypatch.setattr(traces, limit, most)
    for order_id in (1, 2, 3):
        path = record(tmp_path, 4, order_id=order_id, steps=1).path
        os.utime(path, (order_id, order_id))  # the last one is the newest, whatever the clock
    names = sorted(file.name.split("-rank")[0] for file in tmp_path.iterdir())
    assert names == [f"profile-{number}" for number in kept]
