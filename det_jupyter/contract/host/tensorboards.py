"""Registry of the TensorBoards that run in the background: a folder for each.

`det tensorboard` starts, lists and ends them; `det master stop --everything` ends all of them.
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
from det_jupyter.contract.host.processes import ProcessIdentity

_EXIT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A TensorBoard that `det tensorboard` started.

    Args:
        id: Its number, which is also the name of its folder.
        pid, birth, host: The process that writes the event files and has started TensorBoard.
        url: Address of its page.
        experiments, trials: Ids of what it shows.
        logdir: Folder of the event files.
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
    def process(self) -> ProcessIdentity:
        """The process that `pid`, `birth` and `host` identify."""
        return ProcessIdentity(self.pid, self.birth, self.host)

    def end(self) -> bool:
        """Terminate the process and delete the folder; return whether the process has exited."""
        if not self.process.end(_EXIT_TIMEOUT_S):
            return False
        shutil.rmtree(board_folder(self.id), ignore_errors=True)
        return True


def _root() -> Path:
    return paths.data_dir() / "tensorboards"


def board_folder(number: int) -> Path:
    """Return the folder of a TensorBoard."""
    return _root() / str(number)


def board_log(number: int) -> Path:
    """Return the file with the output of a TensorBoard and of its event file writer."""
    return board_folder(number) / "log"


def make_board_folder() -> int:
    """Make the folder of a new TensorBoard and return its number."""
    _root().mkdir(mode=0o700, exist_ok=True)
    number = max(map(int, filter(str.isdecimal, os.listdir(_root()))), default=0)
    while True:
        number += 1
        with suppress(FileExistsError):  # another process has just taken this number
            board_folder(number).mkdir(mode=0o700)
            return number


def save(board: Board) -> None:
    """Write `board.json` into the folder of a TensorBoard."""
    paths.write_private(board_folder(board.id) / "board.json", json.dumps(asdict(board)))


def running_boards() -> Iterator[Board]:
    """Yield the TensorBoards that run, oldest first; delete the folders of those that exited."""
    found = [path for path in _root().glob("*/board.json") if path.parent.name.isdecimal()]
    for path in sorted(found, key=lambda path: int(path.parent.name)):
        with suppress(OSError, ValueError, TypeError):  # deleted meanwhile, or damaged
            board = Board(**json.loads(path.read_text(encoding="utf-8")))
            if board.process.is_alive or not board.process.is_here:
                yield board
            else:
                shutil.rmtree(path.parent, ignore_errors=True)
