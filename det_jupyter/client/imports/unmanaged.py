"""`take_in`: the master gets the files of runs that were started by hand without it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from det_jupyter.contract.host.paths import data_dir
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.messages import StartUnmanaged
from det_jupyter.contract.run.unmanaged import FOLLOWER, Announcement, request_file
from det_jupyter.errors import ConfigError, Conflict


class TakenIn(NamedTuple):
    """A run, and the experiment that has it.

    `problem`: why the master has not all of it. Without an experiment it has nothing.
    """

    folder: Path
    experiment_id: int | None
    problem: str


def take_in(given: str) -> list[TakenIn]:
    """Send the run of a folder, or the runs of the folders in it, each by itself; repeatable.

    Raises:
        ConfigError: There is no run.
        Conflict: A run is not over. Nothing was sent.
    """
    root = Path(given).expanduser().resolve()
    found = [root] if request_file(root).is_file() else sorted(
        each for each in root.glob("*") if request_file(each).is_file()
    )  # fmt: skip
    if not found:
        raise ConfigError(
            f"{given}: expected the folder of a run that core.init(name=...) has written offline, "
            f"or one with such folders, as {data_dir() / 'offline'}; there is no request.json"
        )
    requests = {folder: _read(folder) for folder in found}
    if running := [_process(each) for each in requests.values() if _process(each).is_alive]:
        raise Conflict(
            f"{given}: process {running[0].pid} still writes there; try again when it has ended"
        )
    return [_send(folder) for folder in sorted(found, key=lambda each: requests[each].started_at)]


def _read(folder: Path) -> StartUnmanaged:
    path = request_file(folder)
    try:
        return StartUnmanaged.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        what = "damaged, or of another version of det_jupyter"
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or what}") from None


def _process(request: StartUnmanaged) -> ProcessIdentity:
    chief = request.ranks[0]
    return ProcessIdentity(chief.pid, chief.birth, chief.host)


def _send(folder: Path) -> TakenIn:
    command: Sequence[str] = [sys.executable, "-m", FOLLOWER, str(folder)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=data_dir()
    )
    try:
        announced = Announcement.model_validate_json(done.stdout)
    except ValidationError:
        last = done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        return TakenIn(folder, None, f"it could not be sent: {last}")
    return TakenIn(folder, announced.experiment_id or None, announced.text)
