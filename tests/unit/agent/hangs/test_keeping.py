"""Files about gangs that hang: how many are kept."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.agent.hangs import keeping
from det_jupyter.contract.host import paths
from tests.processes import wait_until


def test_the_newest_folders_of_files_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "data_dir", lambda: tmp_path)
    monkeypatch.setattr(keeping, "spy", lambda pid: "")
    for number in range(22):
        folder = tmp_path / "hangs" / f"1.1.{number}"
        folder.mkdir(parents=True)
        os.utime(folder, (number, number))
    files = SimpleNamespace(
        stacks=lambda rank: tmp_path / "none", recorder=lambda rank: tmp_path / "recorder"
    )
    run: Any = SimpleNamespace(id="2.1.1", dir=files)
    (tmp_path / "recorder").write_text("{}")
    kept = keeping.keep_files(run, {0: 7})
    assert kept is not None
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    assert [path.name for path in kept.iterdir()] == ["recorder-0.json"]
    assert keeping.keep_files(run, {0: 7}) == kept  # it hangs again
    left = {path.name for path in (tmp_path / "hangs").iterdir()}
    assert left == {"2.1.1", *(f"1.1.{number}" for number in range(3, 22))}


def test_a_folder_that_cannot_be_written_is_told_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(paths, "data_dir", lambda: tmp_path)
    monkeypatch.setattr(keeping, "spy", lambda pid: pytest.fail("there is no place for it"))
    (tmp_path / "hangs").write_text("in the way")
    run: Any = SimpleNamespace(id="1.1.1")
    assert keeping.keep_files(run, {0: 7}) is None
    said = f"allocation=1.1.1: {tmp_path / 'hangs' / '1.1.1'} cannot be written: "
    assert [record.getMessage().startswith(said) for record in caplog.records] == [True]


def test_py_spy_does_not_delay_the_watch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """py-spy may take 5 s for each rank, and all gangs are sampled by one task."""
    may_read = threading.Event()

    def slow_stacks(pid: int) -> str:
        may_read.wait(600)
        return f"stack of {pid}".ljust(30_000)

    monkeypatch.setattr(keeping, "spy", slow_stacks)
    monkeypatch.setattr(paths, "data_dir", lambda: tmp_path)
    stacks = tmp_path / "stacks"
    stacks.write_text("line 3")
    folder = SimpleNamespace(stacks=lambda rank: stacks, recorder=lambda rank: tmp_path / "none")
    run: Any = SimpleNamespace(id="1.1.1", dir=folder)
    kept = keeping.keep_files(run, {0: 7, 1: 8})
    assert kept is not None
    assert sorted(path.name for path in kept.iterdir()) == ["stacks-0.txt", "stacks-1.txt"]
    (thread,) = [each for each in threading.enumerate() if each.name == "py-spy"]
    assert thread.daemon  # it holds up no exit of the agent
    may_read.set()
    wait_until(lambda: (kept / "py-spy-1.txt").exists(), "it is kept")
    assert (kept / "py-spy-0.txt").read_text() == "stack of 7".ljust(20_000)
