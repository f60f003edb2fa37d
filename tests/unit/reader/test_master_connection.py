"""What the feeder says of the master, and when it starts one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.processes import birth_of
from det_jupyter.contract.messages import PROTOCOL, MasterInfo
from det_jupyter.errors import MasterUnreachable
from det_jupyter.reader import master_connection as masters
from det_jupyter.reader.master_connection import MasterConnection


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    return tmp_path


def announce(**changes: object) -> None:
    fields = {
        "url": "http://127.0.0.1:9", "pid": os.getpid(), "birth": birth_of(os.getpid()),
        "started_at": 1.0, "version": "0.0.9", "protocol": PROTOCOL, "python": "p",
        "data_dir": "d",
    }  # fmt: skip
    info = MasterInfo.model_validate({**fields, **changes})
    paths.master_file().parent.mkdir(parents=True, exist_ok=True)
    paths.write_private(paths.master_file(), info.model_dump_json())


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the starts, each of which fails."""
    seen: list[str] = []

    def ensure() -> MasterInfo:
        seen.append("start")
        raise MasterUnreachable("the master did not start (exit status 1)")

    monkeypatch.setattr(masters, "ensure_master", ensure)
    return seen


def test_a_master_that_is_not_there_is_not_started(starts: list[str]) -> None:
    connection = MasterConnection(may_start=False)
    assert connection.check().state == "stopped"
    assert connection.check().problem == ""
    with pytest.raises(MasterUnreachable, match="start it"):
        connection.client()
    assert starts == []


def test_one_that_may_be_started_is_tried_once_and_the_problem_is_said(starts: list[str]) -> None:
    connection = MasterConnection(may_start=True)
    assert connection.check().state == "starting"
    assert connection._starting is not None
    connection._starting.join()
    said = connection.check()
    assert (said.state, said.problem) == ("stopped", "the master did not start (exit status 1)")
    assert starts == ["start"]


def test_a_running_master_is_said_with_its_version() -> None:
    announce()
    said = MasterConnection(may_start=False).check()
    assert said.model_dump() == {
        "state": "running",
        "version": "0.0.9",
        "problem": "",
        "command": "",
    }


def test_another_version_is_said_with_the_command_that_replaces_it() -> None:
    announce(protocol=PROTOCOL + 1)
    said = MasterConnection(may_start=True).check()
    assert said.state == "mismatch"
    assert said.command.endswith("-m det_jupyter.master restart")
    assert said.command in said.problem


def test_one_that_was_killed_is_started_again_and_one_that_was_stopped_is_not(
    starts: list[str],
) -> None:
    announce()
    connection = MasterConnection(may_start=False)
    assert connection.check().state == "running"
    announce(pid=2**22 - 7, birth="gone")
    assert connection.check().state == "starting"
    other = MasterConnection(may_start=False)
    announce()
    assert other.check().state == "running"
    paths.master_file().unlink()
    assert other.check().state == "stopped"
    assert starts == ["start"]


def test_a_folder_that_cannot_be_read_is_said(home: Path) -> None:
    paths.master_file().parent.mkdir(parents=True, exist_ok=True)
    paths.master_file().mkdir()
    said = MasterConnection(may_start=True).check()
    assert said.state == "stopped"
    assert said.problem.startswith("the master cannot be found: ")


def test_documents_wait_for_a_master_of_our_version_and_for_a_folder() -> None:
    announce(protocol=PROTOCOL + 1)
    connection = MasterConnection(may_start=False)
    with pytest.raises(MasterUnreachable, match=f"protocol {PROTOCOL + 1}"):
        connection.client()
    paths.master_file().unlink()
    paths.master_file().mkdir()
    with pytest.raises(MasterUnreachable):
        connection.client()
    paths.master_file().rmdir()
    announce()
    connection.client().session.close()
