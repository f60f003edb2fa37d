"""TensorBoards that run in the background: a file for each, which names its process.

`det tensorboard` starts, lists and ends them; `det master stop --everything` ends all of a home.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.processes import Process

_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A TensorBoard.

    Args:
        id: Its number.
        pid, birth, host: The process that writes the event files and has started TensorBoard.
        url: Where it serves.
        experiments, trials: What it shows.
        logdir: Where the event files are.
        started_at: UTC epoch seconds.
    """

    id: int
    pid: int
    birth: str
    host: str = ""
    url: str
    experiments: list[int]
    trials: list[int]
    logdir: str
    started_at: float

    @property
    def process(self) -> Process:
        """See `pid`."""
        return Process(self.pid, self.birth, self.host)

    def end(self) -> bool:
        """End it and forget it; return whether it has ended."""
        if not self.process.end(_PATIENCE_S):
            return False
        shutil.rmtree(folder_of(self.id), ignore_errors=True)
        return True


def _root() -> Path:
    return paths.data_dir() / "tensorboards"


def folder_of(number: int) -> Path:
    """Return the folder of a TensorBoard."""
    return _root() / str(number)


def log_of(number: int) -> Path:
    """Return what a TensorBoard and the process that writes its files have printed."""
    return folder_of(number) / "log"


def new_folder() -> int:
    """Make a folder for a TensorBoard, and return its number."""
    _root().mkdir(mode=0o700, exist_ok=True)
    number = max(map(int, filter(str.isdecimal, os.listdir(_root()))), default=0)
    while True:
        number += 1
        with suppress(FileExistsError):  # another one starts at the same time
            folder_of(number).mkdir(mode=0o700)
            return number


def keep(board: Board) -> None:
    """Write the file of a TensorBoard."""
    paths.write_private(folder_of(board.id) / "board.json", json.dumps(asdict(board)))


def boards() -> Iterator[Board]:
    """Yield those that run, oldest first; forgets those that have ended."""
    found = [path for path in _root().glob("*/board.json") if path.parent.name.isdecimal()]
    for path in sorted(found, key=lambda path: int(path.parent.name)):
        with suppress(OSError, ValueError, TypeError):  # it is removed now, or damaged
            board = Board(**json.loads(path.read_text(encoding="utf-8")))
            if board.process.is_alive or not board.process.is_here:
                yield board
            else:
                shutil.rmtree(path.parent, ignore_errors=True)
