"""`det tensorboard`: shows metrics of experiments and trials in TensorBoard.

det tensorboard start 7      runs the second line in the background; returns when it serves
... start 7 --foreground     writes event files, keeps them current, and runs TensorBoard
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from det_jupyter.client.handles.boards import start_board
from det_jupyter.client.imports.event_files import EventFiles, check_installed, write_event_files
from det_jupyter.contract.host.pdeathsig import kill_with_parent
from det_jupyter.contract.host.tensorboards import Board, running_boards
from det_jupyter.contract.values.text import date
from det_jupyter.errors import DetError, NotFound, UsageError
from det_jupyter.front.verbs.experiment_list import numbers_of
from det_jupyter.front.verbs.grammar import Call
from det_jupyter.front.verbs.listings import Listing, render

_POLL_S = 1.0


def start(call: Call) -> str | int:
    """Start TensorBoard for experiments or trials, in the background or until Ctrl-C."""
    given = call.options
    if bool(given.ids) == bool(given.trial_ids):
        raise UsageError(f"{given.words}: give numbers of experiments, or --trial-ids N N")
    check_installed()
    experiments = numbers_of(call) if given.ids else []
    trials = list(given.trial_ids or ())
    for number in experiments:
        call.client.experiment(number)  # raises NotFound
    for number in trials:
        call.client.trial(number)
    if given.no_serve or given.foreground:
        return _serve(call, experiments, trials)
    return _start_in_background(given, experiments, trials)


def _serve(call: Call, experiments: list[int], trials: list[int]) -> str | int:
    """Write event files; serve them, and keep them current, until Ctrl-C or SIGTERM."""
    given = call.options
    root = Path(given.logdir or "tensorboard").expanduser().resolve()
    with _sigterm_as_ctrl_c():
        followed = list(_write_files(call, root, experiments, trials))
        try:
            if given.no_serve:
                return f"Wrote {root}; `tensorboard --logdir {root}` shows it."
            port = [] if given.port is None else ["--port", str(given.port)]
            command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(root), *port]
            parent = os.getpid()
            process = subprocess.Popen(command, preexec_fn=lambda: kill_with_parent(parent))
            try:
                return wait_for(process, given.parent)
            finally:
                process.terminate()
        finally:
            for files in followed:
                files.stop()


def wait_for(process: subprocess.Popen[bytes], parent: int | None) -> int:
    """Return the exit code of TensorBoard; 0 if the process `parent` exits before."""
    while parent is None or os.getppid() == parent:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(None if parent is None else _POLL_S)
    return 0


def _write_files(
    call: Call, root: Path, experiments: list[int], trials: list[int]
) -> Iterator[EventFiles]:
    for number in experiments:
        yield write_event_files(call.client, number, None, root / f"experiment-{number}")
    by_experiment: dict[int, list[int]] = {}
    for number in trials:
        by_experiment.setdefault(call.client.trial(number).experiment_id, []).append(number)
    for experiment, chosen in by_experiment.items():
        yield write_event_files(call.client, experiment, chosen, root / f"experiment-{experiment}")


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Make SIGTERM raise KeyboardInterrupt in the block."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _start_in_background(given: Any, experiments: list[int], trials: list[int]) -> str:
    board = start_board(experiments, trials, logdir=given.logdir, port=given.port)
    if given.detach:
        return str(board.id)
    if not given.no_browser:
        _open_in_browser(board.url)
    number = board.id
    return (
        f"TensorBoard is running at: {board.url}\n"
        f"`det tensorboard open {number}` shows it again, `det tensorboard kill {number}` ends it."
    )


def _open_in_browser(url: str) -> None:
    """Open a page in a graphical browser; do nothing where only a terminal is available."""
    has_windows = sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    if has_windows:
        webbrowser.open(url)


def list_all(call: Call) -> str:
    """Return a row for each TensorBoard that runs."""
    rows = [
        (
            board.id,
            ", ".join(map(str, board.experiments)) or None,
            ", ".join(map(str, board.trials)) or None,
            board.url,
            date(board.started_at),
            board.logdir,
        )
        for board in running_boards()
    ]
    header = ("ID", "Experiments", "Trials", "URL", "Started", "Folder")
    return render(Listing(header=header, rows=rows, if_empty="No TensorBoard runs."), call.options)


def open_one(call: Call) -> str:
    """Show a TensorBoard in a browser."""
    board = _find(call.options.number)
    _open_in_browser(board.url)
    return f"TensorBoard is running at: {board.url}"


def kill(call: Call) -> str:
    """End TensorBoards; remove the event files of those whose folder we made."""
    given = call.options
    lines = []
    for number in given.numbers:
        try:
            board = _find(number)
        except NotFound:
            if not given.force:
                raise
            continue
        if not board.end():
            raise DetError(f"TensorBoard {number} (pid {board.pid}) does not end")
        lines.append(f"TensorBoard {number} has ended.")
    return "\n".join(lines)


def _find(number: int) -> Board:
    found = {board.id: board for board in running_boards()}
    if number not in found:
        existing = ", ".join(map(str, found)) or "none"
        raise NotFound(f"there is no TensorBoard {number}; there are: {existing}")
    return found[number]
