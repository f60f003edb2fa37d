"""Finding the user's master, and starting it when there is none.

The first program that needs it starts it. The master makes sure that there is only one (it holds a
lock), so starting two at once is harmless: the second leaves and both starters find the first.
"""

from __future__ import annotations

import sys
import time

from pydantic import ValidationError

from det_jupyter._version import __version__
from det_jupyter.connection.session import Session
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.daemons import spawn_master
from det_jupyter.contract.host.locks import holder_of, is_locked
from det_jupyter.contract.messages import PROTOCOL, MasterInfo
from det_jupyter.errors import MasterUnreachable, ProtocolMismatch

_POLL_S = 0.02


def find_master() -> MasterInfo | None:
    """Return where the running master is, or None when there is none.

    Raises:
        ProtocolMismatch: One runs, of a version that we cannot talk to.
    """
    info = announced_master()
    if info is not None and info.protocol != PROTOCOL:
        command = f"{sys.executable} -m det_jupyter.master stop"
        raise ProtocolMismatch(
            f"the running master (process {info.pid}) is det_jupyter {info.version} (protocol "
            f"{info.protocol}), this is {__version__} (protocol {PROTOCOL}); stop it: "
            f"{command} (what trains goes on until it ends)",
            command=command,
        )
    return info


def announced_master() -> MasterInfo | None:
    """Return where the running master is, of whatever version it is; None when there is none.

    Raises:
        ProtocolMismatch: One runs, and its file cannot be read.
        MasterUnreachable: It runs on another computer.
    """
    try:
        text = paths.read_private(paths.master_file())
    except FileNotFoundError:
        return None
    try:
        info = MasterInfo.model_validate_json(text)
    except ValidationError:
        if not is_locked(paths.master_lock()):
            return None
        raise ProtocolMismatch(
            f"{paths.master_file()} was written by another version of det_jupyter than this one "
            f"({__version__}); end the process that it names, and try again"
        ) from None
    return info if _is_alive(info) else None


def _is_elsewhere() -> bool:
    holder = holder_of(paths.master_lock())
    return holder is not None and not holder.is_here


def _is_alive(info: MasterInfo) -> bool:
    """Return whether the process lives; its birth shows whether the pid was reused.

    Raises:
        MasterUnreachable: It runs on another computer.
    """
    if not info.birth:  # of a version that wrote something else there
        return is_locked(paths.master_lock())
    if not info.process.is_here and _is_elsewhere():
        raise MasterUnreachable(
            f"the det_jupyter master runs on {info.host} (process {info.pid}) and cannot be "
            f"reached from here; {paths.data_dir()} is on a drive that both computers have: set "
            f"{paths.HOME_VARIABLE} to a folder of this computer's own"
        )
    return info.process.is_alive


def ensure_master(timeout_s: float = 30.0) -> MasterInfo:
    """Return the running master, started now if need be.

    Raises:
        MasterUnreachable: It did not come up; the message ends with the last lines of its log.
    """
    if info := find_master():
        return info
    try:
        process = spawn_master()
    except OSError as error:
        raise MasterUnreachable(
            f"the det_jupyter master cannot be started: {paths.find_full_folder() or error}"
        ) from None
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if info := find_master():
            return info
        if process.poll() not in (None, 0):  # 0: another master was there first
            break
        time.sleep(_POLL_S)
    if full := paths.find_full_folder():  # then its log is empty
        raise MasterUnreachable(f"the det_jupyter master did not start: {full}")
    raise MasterUnreachable(
        f"the det_jupyter master did not start (exit status {process.poll()}).\n{_log_tail()}"
    )


def _log_tail(num_lines: int = 15) -> str:
    log = paths.master_output()
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return "\n".join([f"Last lines of {log}:", *lines[-num_lines:]])


def connect() -> Session:
    """Return a session with the user's master, which is started whenever there is none."""
    return Session(ensure_master(), locate=ensure_master)


def require_master(line: str, *, may_revive: bool = False) -> MasterInfo:
    """Return where the running master is.

    Args:
        line: What the reader types to start one, for the error.
        may_revive: Start it anew if it was killed; not if it was stopped.

    Raises:
        MasterUnreachable: None runs.
    """
    if info := find_master():
        return info
    if may_revive and paths.master_file().exists():  # one that is stopped takes its file away
        return ensure_master()
    raise MasterUnreachable(f"no det_jupyter master runs; `{line}` starts one")
