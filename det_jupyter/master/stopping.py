"""Stops the master of a home, or all processes of the home, also if no master is running.

    orderly    the master kills running trials, stores how they ended, and ends the agent; if an
               agent has no master, one is started for this
    forced     the remaining agent, TensorBoards and processes of runs are terminated and killed

Processes are identified as in host/processes.py (decision 17): those that hold a lock of the home,
those that belong to its folder of runs, and our programs whose working folder is the home's data
folder. If the files of a home were removed, only the last ones are found.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from pydantic import ValidationError

from det_jupyter.connection import (
    Session,
    announced_master,
    ensure_master,
    holder_of_lock,
    must_be_awake,
    waiting_for,
)
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.locks import holder_of, is_locked
from det_jupyter.contract.host.run_processes import (
    boards_of,
    kill_processes_below,
    pids_below,
    programs_of,
)
from det_jupyter.contract.host.rundir import RunDir, runs_root
from det_jupyter.contract.host.tensorboards import running_boards
from det_jupyter.contract.messages import GangPlan, MasterInfo
from det_jupyter.engine import ENGINES
from det_jupyter.errors import DetError, MasterUnreachable

_CONNECT_S = 5.0  # how long an agent takes to connect: it retries at least once a second
_AGENT_S = 10.0  # how long an agent may take to end its ranks
_POLL_S = 0.02
_MOST_MASTERS = 5  # most masters that are stopped: other programs may start one meanwhile


def end_master(*, everything: bool = False) -> MasterInfo | None:
    """Stop the master, of any version; return the content of its file, None if none runs.

    Args:
        everything: Also kill running trials, and end the agents.

    Raises:
        DetError: The master does not exit, or does not respond.
    """
    info = _wait_for_master()
    if info is None:
        return None
    try:
        with closing(Session(info)) as session:
            session.post("/master/stop", {"everything": everything})
    except MasterUnreachable:
        if _is_running(info):  # else the master has exited meanwhile
            raise
    with waiting_for("the det_jupyter master, which is ending") as still:
        while _is_running(info):
            still(info.pid)
    return info


def end_everything() -> list[str]:
    """End all processes of this home; return a description of each kind that was ended.

    Raises:
        DetError: A process does not end.
    """
    ended = []
    for _ in range(_MOST_MASTERS):
        if end_master(everything=True):
            ended.append("the master")
        elif _find_master_for_agent():
            end_master(everything=True)
            ended.append("an agent without a master")
        ended += _force_end()
        is_over = not is_locked(paths.master_lock()) and not _is_agent_running()
        if is_over and not programs_of(paths.data_dir()):
            return list(dict.fromkeys(ended))
    raise DetError(
        "other programs start the master again while it is ended: end what uses it (notebooks, "
        "Jupyter Servers, scripts), and repeat this command"
    )


def _wait_for_master() -> MasterInfo | None:
    """Return the running master, or None; wait for one that is starting or exiting."""
    with waiting_for("the det_jupyter master, which is starting or ending") as still:
        while (info := announced_master()) is None and is_locked(paths.master_lock()):
            still(holder_of_lock())
    return info


def _is_running(info: MasterInfo) -> bool:
    """Return whether this master's process runs, even if another master serves by now."""
    if not info.birth:  # the file of a version without this field
        return is_locked(paths.master_lock())
    return info.process.is_alive


def _find_master_for_agent() -> bool:
    """Start a master for an agent without one, so that the agent's trials are ended in order.

    Returns:
        Whether this master can end the agent; False also if no agent runs.
    """
    agent = holder_of(paths.agent_lock())
    if not _is_agent_running() or (agent is not None and agent.is_frozen):
        return False
    try:
        info = ensure_master()
        must_be_awake(info)
        with closing(Session(info)) as session:
            deadline = time.monotonic() + _CONNECT_S
            while time.monotonic() < deadline and _is_agent_running():
                if any(agent["connected"] for agent in session.get("/status")["agents"]):
                    break
                time.sleep(_POLL_S)
    except DetError:  # a full disk or a database of another version, for example
        return False
    return True


def _is_agent_running() -> bool:
    return any(make().is_running() for make in ENGINES.values())


def _force_end() -> list[str]:
    """Terminate or kill agent, ranks and TensorBoards; return descriptions of those that ran.

    Raises:
        DetError: A process does not end.
    """
    ended: list[str] = []
    left: list[str] = []
    for make in ENGINES.values():
        its_ended, its_left = make().end_all(_AGENT_S)
        ended += its_ended
        left += its_left
    for name, process in programs_of(paths.data_dir()):  # programs that hold no lock
        if name != "fork server" or process.is_alive:  # a fork server ends with its agent
            (ended if process.end(_AGENT_S) else left).append(f"the {name} (pid {process.pid})")
    # An agent that still runs maps files of runs, and would be killed as a process of a run.
    if not left:
        killed, survivors = kill_processes_below(runs_root(paths.data_dir()))
        ended += ["ranks without an agent"] * bool(killed)
        left += [f"a process of a run (pid {pid})" for pid in survivors]
    for board in running_boards():
        (ended if board.end() else left).append(f"TensorBoard {board.id} (pid {board.pid})")
    for process in boards_of(paths.data_dir()):  # TensorBoards whose files were removed
        (ended if process.end(_AGENT_S) else left).append(f"TensorBoard (pid {process.pid})")
    if left:
        raise DetError(
            f"not everything has ended; still running: {', '.join(left)}. It was killed and does "
            "not end, as processes do that wait for a drive; see to it (`ps -o pid,stat,args -p "
            "PID`), then repeat this command"
        )
    return ended


def find_agent_without_master() -> tuple[int, list[GangPlan]] | None:
    """Return pid and gangs of the agent, None if none runs. Call it when no master runs.

    The pid is 0 if the agent's version does not write it into the lock.
    """
    if not _is_agent_running():
        return None
    agent = holder_of(paths.agent_lock())
    return 0 if agent is None else agent.pid, list(_running_gangs(runs_root(paths.data_dir())))


def find_processes_without_agent() -> list[int]:
    """Return the pids of processes of runs whose agent has ended; [] while an agent runs."""
    if _is_agent_running():
        return []
    programs = (process.pid for _, process in programs_of(paths.data_dir()))
    return sorted({*programs, *pids_below(runs_root(paths.data_dir()))})


def _running_gangs(root: Path) -> Iterator[GangPlan]:
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        run = RunDir(folder)
        if not run.exit.exists() and not run.closed.exists():
            with suppress(OSError, ValidationError):  # being deleted, or of another version
                yield GangPlan.model_validate_json(run.plan.read_bytes())
