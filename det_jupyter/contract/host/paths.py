"""The paths of our files. Folders have mode 0700, files 0600.

    runtime_dir()   master.json agent.sockets consoles/              may be deleted at a reboot
    data_dir()      master.lock agent.lock det.sqlite3 blobs/ runs/ checkpoints/ logs/ *.yaml

Lock files are in the same folder as what they protect: no second master can open the database.
`DET_JUPYTER_HOME` moves both folders; tests set it to run beside the user's own master.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from det_jupyter.contract.host.disk_space import why_no_room
from det_jupyter.contract.host.ownership import make_private, open_own
from det_jupyter.contract.host.regular_files import open_regular
from det_jupyter.errors import DetError

HOME_VARIABLE = "DET_JUPYTER_HOME"
ALERTS_FILE = "alerts.yaml"
TRACKERS_FILE = "trackers.yaml"


def _private(folder: Path) -> Path:
    if not folder.is_absolute():
        raise DetError(
            f"the folder {folder} would be another one for each of our programs; "
            f"set {HOME_VARIABLE} to an absolute path"
        )
    try:
        make_private(folder, f"set {HOME_VARIABLE} to a folder of your own (~/det_jupyter, say)")
    except OSError as error:
        raise DetError(
            f"cannot use the folder {folder} ({error.strerror}); "
            f"set {HOME_VARIABLE} to a folder that you can write"
        ) from None
    return folder


def runtime_dir() -> Path:
    """Return the folder of the files by which our programs find each other."""
    return _private(_folder("runtime"))


def data_dir() -> Path:
    """Return the folder of permanent files: database, blobs, runs, checkpoints."""
    return _private(_folder("data"))


def _folder(kind: Literal["data", "runtime"]) -> Path:
    """Return the path of a folder: below DET_JUPYTER_HOME if it is set, else below Jupyter's."""
    try:
        if home := os.environ.get(HOME_VARIABLE):
            return Path(home).expanduser() / kind
        from jupyter_core.paths import jupyter_data_dir, jupyter_runtime_dir

        jupyters = jupyter_data_dir() if kind == "data" else jupyter_runtime_dir()
    except RuntimeError:
        raise DetError(
            f"user {os.geteuid()} has no home folder: HOME is not set, and the system's list of "
            f"users does not have one; set {HOME_VARIABLE} to the absolute path of a folder of "
            "your own"
        ) from None
    return Path(jupyters) / "det_jupyter"


def log_dir() -> Path:
    """Return the folder of the logs of master, agent, reader and zygotes."""
    return _private(data_dir() / "logs")


def master_output() -> Path:
    """Return the file with what the master prints, which is not its log."""
    return log_dir() / "master.out"


def agent_log() -> Path:
    """Return the file with the agent's log and what it prints."""
    return log_dir() / "agent.log"


def reader_log() -> Path:
    """Return the file with the reader's log and what it prints."""
    return log_dir() / "reader.log"


def master_file() -> Path:
    """Return the 0600 file that holds the master's address and token."""
    return runtime_dir() / "master.json"


def consoles_dir() -> Path:
    """Return the folder of the connection files that the master makes for remote ranks."""
    return _private(runtime_dir() / "consoles")


def console_file(allocation_id: str, rank: int) -> Path:
    """Return the connection file on this computer of a rank on another one.

    It exists while the rank's kernel can be reached.
    """
    return consoles_dir() / f"{allocation_id}-rank-{rank}.json"


def master_lock() -> Path:
    """Return the lock file of the user's master, of which there is only one."""
    return data_dir() / "master.lock"


def agent_lock() -> Path:
    """Return the lock file of this computer's agent, of which there is only one."""
    return data_dir() / "agent.lock"


def agent_sockets() -> Path:
    """Return the file with the path of the folder of the agent's sockets."""
    return runtime_dir() / "agent.sockets"


def pools_file() -> Path:
    """Return the file in which the user defines resource pools."""
    return data_dir() / "pools.yaml"


def alerts_file() -> Path:
    """Return the file in which the user lists the destinations of all experiments' alerts."""
    return data_dir() / ALERTS_FILE


def trackers_file() -> Path:
    """Return the file in which the user names the trackers of all experiments."""
    return data_dir() / TRACKERS_FILE


def find_full_folder() -> str:
    """Return an error message if one of our folders is on a full disk; "" if none is."""
    for folder in (data_dir, log_dir, runtime_dir):
        if why := why_no_room(folder()):
            return (
                f"nothing can be written in {folder()} ({why}); make room there, or set "
                f"{HOME_VARIABLE} to a folder on another disk"
            )
    return ""


def private_opener(path: str, flags: int) -> int:
    """Open a file of the user, with mode 0600 if it is new. Use as `open(..., opener=...)`."""
    return open_own(path, flags)


def read_private(path: Path) -> str:
    """Return the text of a file of the user.

    Raises:
        DetError: The file is a link, or belongs to another user.
        OSError: The file cannot be read, does not exist, or is no regular file.
    """
    with open_regular(path, private_opener) as file:
        return file.read().decode("utf-8", "replace")


def write_private(path: Path, content: str | bytes) -> None:
    """Write a 0600 file atomically: a reader sees the old content or the new one."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.unlink(missing_ok=True)  # left by a killed process that had our pid
    descriptor = open_own(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    os.replace(scratch, path)


def find_missing_folder(folder: str) -> str | None:
    """Return an error message if the folder that ranks are to run in is missing, else None."""
    if os.path.isdir(folder):
        return None
    return (
        f"the notebook's folder, {folder}, is not there (moved, deleted, or on a disk that is not "
        "mounted), and the ranks run in it; put it back and try again, or submit the cell anew "
        "from where the notebook is now"
    )
