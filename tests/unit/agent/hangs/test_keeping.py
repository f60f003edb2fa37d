"""Files about gangs that hang: how many are kept."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.agent.hangs import keeping
from det_jupyter.contract.host import paths


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
    assert [path.name for path in kept.iterdir()] == ["recorder-0.json"]
    left = {path.name for path in (tmp_path / "hangs").iterdir()}
    assert left == {"2.1.1", *(f"1.1.{number}" for number in range(3, 22))}
