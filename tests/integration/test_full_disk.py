"""Starting on a disk that is full says so, and where."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from det_jupyter.connection import ensure_master
from det_jupyter.contract.host import paths
from det_jupyter.errors import MasterUnreachable
from tests.integration.master_support import make_client, master_process
from tests.problems import sentences_of
from tests.processes import processes_of, wait_until


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return a small disk."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        yield folder
    finally:
        for process in processes_of(folder):  # an agent that has a full disk, too
            process.kill()
            process.wait()
        subprocess.run(["umount", str(folder)], check=True)


def fill(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    with suppress(OSError):
        while os.write(descriptor, bytes(4096)):
            pass
    os.close(descriptor)


def test_a_master_that_cannot_start_on_a_full_disk_says_which_folder_is_full(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(disk))
    folder = paths.log_dir().parent
    assert paths.find_full_folder() == ""
    fill(disk / "much")
    with pytest.raises(MasterUnreachable) as refusal:
        ensure_master()
    message = str(refusal.value)
    assert "\n" not in message
    assert f"nothing can be written in {folder} (No space left on device)" in message
    assert f"set {paths.HOME_VARIABLE} to a folder on another disk" in message


def test_a_request_that_a_full_disk_refuses_gets_a_sentence(disk: Path) -> None:
    with master_process(disk) as master, make_client(master.start()) as http:
        fill(disk / "much")
        answer = http.put(
            "/templates/team", json={"config": {"hyperparameters": {"text": "x" * 50_000}}}
        )
        assert (answer.status_code, answer.json()["error"]) == (507, "DetError")
        (problem,) = sentences_of(answer.json())
        assert f"nothing can be written in {disk / 'data'} (No space left on device)" in problem
        assert problem in http.get("/status").json()["problems"]
        os.unlink(disk / "much")
        wait_until(lambda: not http.get("/status").json()["problems"], "there is room again")
