"""Starts TensorBoards, and finds those that run, for `det tensorboard` and the view.

Each is a process of `det tensorboard start --foreground`, which writes the event files, keeps them
current and runs TensorBoard.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from det_jupyter.client.imports.event_files import check_installed
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.ports import free_port
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.host.rundir import without_run
from det_jupyter.contract.host.tensorboards import (
    Board,
    board_folder,
    board_log,
    make_board_folder,
    running_boards,
    save,
)
from det_jupyter.errors import DetError

_START_S = 120.0  # includes writing the event files, which takes long for large experiments
_POLL_S = 0.1
_NUM_LOG_LINES = 10  # in error messages
_starting: dict[int, threading.Lock] = {}  # by experiment


def board_of(experiment_id: int) -> Board:
    """Return the running TensorBoard of an experiment; start one if none runs.

    It ends with this process.

    Raises:
        DetError: The package tensorboard is not installed, or it does not serve.
    """
    check_installed()
    with _starting.setdefault(experiment_id, threading.Lock()):
        for board in running_boards():
            if board.experiments == [experiment_id] and board.process.is_here:
                return board
        return start_board([experiment_id], [], parent=os.getpid())


def start_board(
    experiments: Sequence[int],
    trials: Sequence[int],
    *,
    logdir: str | None = None,
    port: int | None = None,
    parent: int | None = None,
) -> Board:
    """Start a TensorBoard in the background; return once it serves.

    Args:
        experiments, trials: Ids of what it shows; one of them is empty.
        logdir: Where its files go; by default a folder that is removed with it.
        port: Port of its page; by default a free one.
        parent: Id of this process, if the TensorBoard ends with it; else it runs until it is
            killed.

    Raises:
        DetError: It has exited, or does not serve in time; with the end of its log.
    """
    number = make_board_folder()
    files = str(Path(logdir or board_folder(number) / "events").expanduser().resolve())
    port = port or free_port()
    shown = [*map(str, experiments)] if experiments else ["--trial-ids", *map(str, trials)]
    command = [sys.executable, "-m", "det_jupyter", "tensorboard", "start", *shown]
    command += ["--foreground", "--logdir", files, "--port", str(port)]
    command += [] if parent is None else ["--parent", str(parent)]
    with open(board_log(number), "wb", opener=paths.private_opener) as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd=paths.data_dir(),  # by which it is found when its folder was removed
            env=without_run(os.environ),
        )
    board = Board(
        id=number,
        **asdict(ProcessIdentity.of(process.pid)),
        url=f"http://localhost:{port}/",
        experiments=list(experiments),
        trials=list(trials),
        logdir=files,
        started_at=time.time(),
    )
    save(board)
    try:
        _await_serving(process, board)
    except BaseException:  # an interrupt too: no process may be left
        process.poll()  # reaps it: else `end` would wait for a zombie
        board.end()
        raise
    return board


def _await_serving(process: subprocess.Popen[bytes], board: Board) -> None:
    """Wait until TensorBoard answers HTTP requests.

    Raises:
        DetError: The process has exited, or does not answer in time; with the end of its log.
    """
    deadline = time.monotonic() + _START_S
    without_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        with suppress(OSError), without_proxy.open(board.url, timeout=5):
            return
        if process.poll() is not None:
            problem = f"TensorBoard ended with exit code {process.returncode}"
        elif time.monotonic() > deadline:
            problem = f"TensorBoard does not serve at {board.url} after {_START_S:.0f} s"
        else:
            time.sleep(_POLL_S)
            continue
        with open(board_log(board.id), encoding="utf-8", errors="replace") as file:
            last = "".join(deque(file, maxlen=_NUM_LOG_LINES))
        raise DetError(f"{problem}; it printed at last:\n{last.rstrip()}")
