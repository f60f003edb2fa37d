"""Files that are the user's alone, and locks of which there is one holder."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.locks import holder_of, take_lock
from det_jupyter.contract.host.processes import ProcessIdentity


def test_lock_has_one_holder_until_it_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = take_lock(path, timeout_s=0)
    assert held is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert take_lock(path, timeout_s=0) is None
    assert take_lock(path, timeout_s=3600, should_give_up=lambda: True) is None
    os.close(held)
    again = take_lock(path, timeout_s=0)
    assert again is not None
    os.close(again)


def test_lock_names_its_holder_while_it_is_held(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert holder_of(path) is None
    path.write_text("what an older version, or one that takes the lock just now, has there")
    held = take_lock(path, timeout_s=0)
    assert held is not None
    assert holder_of(path) == ProcessIdentity.of(os.getpid())
    path.write_text(f'{{"pid": {os.getpid()}, "birth": "of an earlier process"}}')
    assert holder_of(path) is None
    os.close(held)
    assert holder_of(path) is None


def test_lock_that_is_let_go_in_time_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = take_lock(path, timeout_s=0)
    assert held is not None
    looks = iter([False, False, True])

    def let_go_at_the_second_look() -> bool:
        if not next(looks):
            return False
        os.close(held)
        return False

    taken = take_lock(path, timeout_s=3600, should_give_up=let_go_at_the_second_look)
    assert taken is not None
    os.close(taken)


def test_lock_is_of_the_file_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    lock, removals = fcntl.flock, iter([path.unlink])

    def lock_after_a_removal(descriptor: int, operation: int) -> None:
        for remove in removals:
            remove()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock_after_a_removal)
    held = take_lock(path, timeout_s=0)
    assert held is not None
    assert os.path.samestat(os.fstat(held), path.stat())
    assert holder_of(path) is not None
    os.close(held)


def test_new_file_of_the_private_opener_is_the_user_s_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with open(tmp_path / "log", "w", opener=paths.private_opener):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600
