"""Files that are the user's alone, and locks of which there is one holder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from det_jupyter.system import paths


def test_lock_has_one_holder_until_it_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = paths.take_lock(path, timeout_s=0)
    assert held is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert paths.take_lock(path, timeout_s=0) is None
    assert paths.take_lock(path, timeout_s=3600, is_hopeless=lambda: True) is None
    os.close(held)
    again = paths.take_lock(path, timeout_s=0)
    assert again is not None
    os.close(again)


def test_lock_that_is_let_go_in_time_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = paths.take_lock(path, timeout_s=0)
    assert held is not None
    looks = iter([False, False, True])

    def let_go_at_the_second_look() -> bool:
        if not next(looks):
            return False
        os.close(held)
        return False

    taken = paths.take_lock(path, timeout_s=3600, is_hopeless=let_go_at_the_second_look)
    assert taken is not None
    os.close(taken)


def test_new_file_of_the_private_opener_is_the_user_s_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with open(tmp_path / "log", "w", opener=paths.private_opener):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600
