"""`master stop --everything` after the files of a home were removed while its programs run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from det_jupyter.client.handles import boards
from det_jupyter.client.handles.boards import start_board
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.run_processes import boards_of
from det_jupyter.contract.host.tensorboards import Board
from tests.integration.master_support import MasterProcess
from tests.processes import find, processes_of, wait_until, wait_until_gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@contextmanager
def running(*words: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Have a process with these words in its command line work in a folder."""
    with subprocess.Popen([*SLEEP, *words], cwd=folder) as process:
        try:
            yield process
        finally:
            process.kill()


def test_programs_of_a_removed_home_are_ended_and_no_others(tmp_path: Path) -> None:
    homes = [tmp_path / name for name in ("home", "home2", "home (deleted)")]
    folders = [home / "data" for home in homes]
    for folder in folders:
        folder.mkdir(parents=True)
    agent = ("-m", "det_jupyter.agent")
    with (
        running(*agent, folder=folders[0]) as ours,
        running("-m", "det_jupyter.rank.zygote", folder=folders[0]) as server,
        running(*agent, folder=folders[1]) as of_another_home,
        running(*agent, folder=folders[2]) as of_a_home_with_that_name,
        running("-m", "det_jupyter.agents", folder=folders[0]) as of_the_user,
    ):
        shutil.rmtree(homes[0])
        command = MasterProcess(homes[0])
        code, printed = command.run("status")
        assert (code, f"Processes run without a master (pid {ours.pid} and" in printed) == (
            3,
            True,
        )
        code, printed = command.run("stop", "--everything")
        assert (code, printed) == (
            0,
            f"Ended: the agent (pid {ours.pid}), the fork server (pid {server.pid}). "
            "Nothing runs now.\n",
        )
        assert (ours.wait(), server.wait()) == (-signal.SIGTERM, -signal.SIGTERM)
        spared = (of_another_home, of_a_home_with_that_name, of_the_user)
        assert [process.poll() for process in spared] == [None, None, None]
        assert command.run("stop", "--everything") == (0, "Nothing runs.\n")


BOARD = ("-m", "det_jupyter", "tensorboard", "start")


def test_boards_of_a_removed_home_are_ended_and_no_others(tmp_path: Path) -> None:
    homes = [tmp_path / name for name in ("home", "home2")]
    folders = [home / "data" for home in homes]
    for folder in folders:
        folder.mkdir(parents=True)
    with (
        running(*BOARD, "1", "--foreground", folder=folders[0]) as board,
        running(*BOARD, "1", "--foreground", folder=folders[1]) as of_another_home,
        running(*BOARD, "1", "--foreground", folder=tmp_path) as of_the_user,
        running("-m", "tensorboard.main", folder=folders[0]) as of_the_user_too,
    ):
        shutil.rmtree(homes[0])
        command = MasterProcess(homes[0])
        assert command.run("stop", "--everything") == (
            0,
            f"Ended: TensorBoard (pid {board.pid}). Nothing runs now.\n",
        )
        assert board.wait() == -signal.SIGTERM
        spared = (of_another_home, of_the_user, of_the_user_too)
        assert [process.poll() for process in spared] == [None, None, None]


def test_a_board_works_in_the_folder_by_which_it_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    data = paths.data_dir()
    begun = list[bool]()

    def look(process: subprocess.Popen[bytes], board: Board) -> None:
        begun.append([each.pid for each in boards_of(data)] == [process.pid])
        process.kill()
        process.wait()

    monkeypatch.setattr(boards, "_await_serving", look)
    start_board([1], [])
    assert begun == [True]


def test_agent_whose_master_was_killed_and_whose_data_were_removed_is_ended(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    command = MasterProcess(home)
    code, printed = command.run("start")
    assert code == 0
    pid = int(printed.split("pid ")[1].split(",")[0])
    wait_until(lambda: find(home, "det_jupyter.rank.zygote"), "the fork server runs")
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid)
    shutil.rmtree(home / "data")
    code, printed = command.run("stop", "--everything")
    assert (code, processes_of(home)) == (0, []), printed
    assert printed.startswith("Ended: the agent (pid "), printed
