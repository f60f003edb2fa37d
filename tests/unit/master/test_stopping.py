"""`det master stop --everything` names processes that do not end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.locks import take_lock
from det_jupyter.contract.host.processes import ProcessIdentity, birth_of
from det_jupyter.contract.host.tensorboards import Board, make_board_folder, save
from det_jupyter.errors import DetError
from det_jupyter.master import stopping


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use an empty home, in which no process can be ended."""
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.setattr(ProcessIdentity, "end", lambda process, timeout_s: False)


def test_nothing_runs_in_a_new_home() -> None:
    assert stopping.end_everything() == []


def test_a_board_without_files_that_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    process = ProcessIdentity.of(os.getpid())
    monkeypatch.setattr(stopping, "boards_of", lambda data: [process])
    with pytest.raises(DetError, match=rf"TensorBoard \(pid {os.getpid()}\).*repeat this command"):
        stopping.end_everything()


def test_an_agent_that_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    held = take_lock(paths.agent_lock(), timeout_s=0)
    assert held is not None
    monkeypatch.setattr(stopping, "_find_master_for_agent", lambda: False)
    with pytest.raises(DetError, match=rf"the agent \(pid {os.getpid()}\)"):
        stopping.end_everything()
    os.close(held)


def test_all_that_survives_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    number, pid = make_board_folder(), os.getpid()
    birth = birth_of(pid) or ""
    save(Board(id=number, pid=pid, birth=birth, url="", experiments=[], trials=[], logdir="",
               started_at=0.0))  # fmt: skip
    monkeypatch.setattr(stopping, "kill_processes_below", lambda runs: ([1], [2, 3]))
    with pytest.raises(DetError) as refusal:
        stopping.end_everything()
    for named in ("(pid 2)", "(pid 3)", f"TensorBoard {number} (pid {pid})"):
        assert named in str(refusal.value)
    assert "(pid 1)" not in str(refusal.value)
