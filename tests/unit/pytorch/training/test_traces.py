"""Profiles of a running trial: how many batches are recorded, and which traces are kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from det_jupyter.contract.messages import Profile, ProfileOrder
from det_jupyter.contract.run.journal import TraceSaved
from det_jupyter.pytorch.training import traces
from det_jupyter.pytorch.training.traces import Tracer


def record(folder: Path, batches: int, *, order_id: int = 1, **profile: Any) -> TraceSaved:
    """Record a profile while `batches` are trained, and return how it ended."""
    records: list[TraceSaved] = []
    order = ProfileOrder(id=order_id, profile=Profile(**profile))
    tracer = Tracer(order, folder, 0, 10, records.append)
    tracer.start(has_own_profiler=False)
    for _ in range(batches):
        torch.ones(8).sum()
        tracer.step()
    tracer.close()
    (ended,) = records
    return ended


def test_a_profile_has_the_batches_that_were_ordered(tmp_path: Path) -> None:
    ended = record(tmp_path, 8, steps=3)
    assert (ended.first, ended.steps, ended.error, ended.note) == (13, 3, "", "")
    path = Path(ended.path)
    assert path.name == "profile-1-rank-0-batches-13-15.json.gz"
    assert path.stat().st_size == ended.size_bytes
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_that_ends_early_keeps_the_batches_that_were_recorded(tmp_path: Path) -> None:
    ended = record(tmp_path, 5, steps=9)
    assert (ended.first, ended.steps) == (13, 2)
    assert ended.note == "the run ended before 9 batches were recorded"


def test_fewer_batches_are_recorded_if_more_would_exceed_the_limit(tmp_path: Path) -> None:
    one_batch = record(tmp_path, 3, steps=1).size_bytes
    ended = record(tmp_path, 400, steps=200, max_bytes=max(1 << 16, 3 * one_batch))
    assert 1 <= ended.steps < 200
    assert "would exceed the limit" in ended.note


def test_the_oldest_traces_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MAX_FILES", 2)
    for order_id in (1, 2, 3):
        path = record(tmp_path, 4, order_id=order_id, steps=1).path
        os.utime(path, (order_id, order_id))  # the last one is the newest, whatever the clock
    assert sorted(file.name.split("-rank")[0] for file in tmp_path.iterdir()) == [
        "profile-2",
        "profile-3",
    ]
