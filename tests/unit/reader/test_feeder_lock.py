"""By its lock, a feeder is found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from det_jupyter.contract.host import locks, paths
from det_jupyter.reader.__main__ import _hold_lock


def test_a_feeder_is_found_also_if_another_looks_at_its_lock_just_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    paths.feeder_lock(1).touch()  # of one that was killed
    lock = paths.feeder_lock(os.getpid())
    looking = locks.take_lock(lock, timeout_s=0)
    assert looking is not None
    monkeypatch.setattr("time.sleep", lambda seconds: os.close(looking))
    _hold_lock()
    assert paths.feeder_locks() == [lock]
    holder = locks.holder_of(lock)
    assert holder is not None
    assert holder.pid == os.getpid()
