"""A TensorBoard is started in the background, and returned once it serves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.client.handles import boards
from det_jupyter.client.handles.boards import start_board
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.ports import free_port
from det_jupyter.contract.host.tensorboards import running_boards
from det_jupyter.errors import DetError

SERVES = """
from http.server import HTTPServer, SimpleHTTPRequestHandler
import sys
HTTPServer(("localhost", int(sys.argv[1])), SimpleHTTPRequestHandler).serve_forever()
"""
FAILS = "import sys; print('\\n'.join(map(str, range(12)))); print('no room', end=''); sys.exit(3)"
HANGS = "import time; time.sleep(600)"


class Started:
    """Starts another program in place of TensorBoard, and remembers what was to be started."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.commands: list[list[str]] = []
        self.environments: list[dict[str, str]] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self._start = subprocess.Popen

    def __call__(self, command: list[str], *, env: dict[str, str], **how: Any) -> Any:
        self.commands.append(command[1:])
        self.environments.append(env)
        port = command[command.index("--port") + 1]
        process = self._start([sys.executable, "-c", self.code, port], env=env, **how)
        self.processes.append(process)
        return process


@pytest.fixture
def starting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[[str], Started]]:
    made: list[Started] = []

    def start(code: str) -> Started:
        made.append(Started(code))
        monkeypatch.setattr(subprocess, "Popen", made[-1])
        return made[-1]

    monkeypatch.setattr(paths, "data_dir", lambda: tmp_path)
    yield start
    for process in made[-1].processes if made else ():
        process.kill()
        process.wait()


def test_it_serves_what_was_asked_for_until_it_is_ended(
    starting: Callable[[str], Started], tmp_path: Path
) -> None:
    started = starting(SERVES)
    board = start_board([3, 4], [], parent=7)
    [command] = started.commands
    port = board.url.removeprefix("http://localhost:").removesuffix("/")
    assert command == [
        "-m", "det_jupyter", "tensorboard", "start", "3", "4", "--foreground", "--logdir",
        str(tmp_path / "tensorboards/1/events"), "--port", port, "--parent", "7",
    ]  # fmt: skip
    assert (board.experiments, board.trials) == ([3, 4], [])
    assert list(running_boards()) == [board]
    [process] = started.processes
    assert os.getsid(process.pid) == process.pid, "an interrupt here does not reach it"
    process.kill()
    process.wait()
    assert list(running_boards()) == []


def test_trials_a_folder_and_a_port_can_be_given(
    starting: Callable[[str], Started], tmp_path: Path
) -> None:
    started, port = starting(SERVES), free_port()
    board = start_board([], [5], logdir=str(tmp_path / "mine"), port=port)
    assert started.commands[0][3:] == [
        "start", "--trial-ids", "5", "--foreground", "--logdir", str(tmp_path / "mine"),
        "--port", str(port),
    ]  # fmt: skip
    assert (board.url, board.trials) == (f"http://localhost:{port}/", [5])


def test_one_that_ends_at_once_is_told_with_its_last_lines(
    starting: Callable[[str], Started],
) -> None:
    starting(FAILS)
    with pytest.raises(DetError) as caught:
        start_board([3], [])
    lines = [*map(str, range(3, 12)), "no room"]
    assert str(caught.value) == "\n".join(
        ["TensorBoard ended with exit code 3; it printed at last:", *lines]
    )
    assert list(running_boards()) == []


def test_one_that_does_not_serve_in_time_is_ended(
    starting: Callable[[str], Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boards, "_START_S", 0.2)
    started = starting(HANGS)
    with pytest.raises(DetError, match=r"does not serve at http://localhost:\d+/ after 0 s"):
        start_board([3], [])
    [process] = started.processes
    assert process.wait() != 0
    assert list(running_boards()) == []
