"""Ends what runs in a home: its master alone, or everything, also where the master is dead.

    in good order    the master kills what runs, stores how it ended, and dismisses the agent; an
                     agent whose master was killed gets a new master for that
    by hand          what is still there: agent, feeders, processes of runs

Processes are identified as in host/processes.py (decision 17): the holders of our locks, and
those that belong to the folder of runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from pydantic import ValidationError

from det_jupyter.connection.autostart import announced_master, ensure_master
from det_jupyter.connection.session import Session, must_be_awake
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.locks import holder_of, is_locked, remove_lock
from det_jupyter.contract.host.run_processes import kill_processes_below, pids_below
from det_jupyter.contract.host.rundir import RunDir, runs_root
from det_jupyter.contract.host.tensorboards import running_boards
from det_jupyter.contract.messages import GangPlan, MasterInfo
from det_jupyter.engine import ENGINES
from det_jupyter.errors import DetError, MasterUnreachable

_COMING_S = 20.0  # how long a master may take to come up or to leave
_END_S = 30.0
_LINK_S = 5.0  # how long an agent takes to find a new master: its pauses are 1 s at most
_PATIENCE_S = 10.0  # for an agent that ends its ranks
_LOCK_S = 1.0  # others hold a lock for an instant, to see whether it is held
_POLL_S = 0.02
_MOST_MASTERS = 5  # others may start one while we end everything


def end_master(*, everything: bool = False) -> MasterInfo | None:
    """End the master, of whatever version it is; return which one that was, if any.

    Raises:
        DetError: It does not end, or cannot be asked to.
    """
    info = _coming_master()
    if info is None:
        return None
    try:
        with closing(Session(info)) as session:
            session.post("/master/stop", {"everything": everything})
    except MasterUnreachable:
        if _lives(info):  # else it has left meanwhile
            raise
    deadline = time.monotonic() + _END_S
    while _lives(info):
        if time.monotonic() > deadline:
            raise DetError(f"The master (pid {info.pid}) was asked to stop and still runs.")
        time.sleep(_POLL_S)
    return info


def end_everything() -> list[str]:
    """End all that runs in this home; return what that was, in words.

    Raises:
        DetError: Something does not end.
    """
    ended = []
    for _ in range(_MOST_MASTERS):
        if end_master(everything=True):
            ended.append("the master")
        elif _find_master_for_agent():
            end_master(everything=True)
            ended.append("an agent without a master")
        ended += _end_by_hand()
        if not is_locked(paths.master_lock()) and not _is_agent_running():
            return list(dict.fromkeys(ended))
    raise DetError(
        "other programs start the master again while it is ended: end what uses it (notebooks, "
        "Jupyter Servers, scripts), and repeat this command"
    )


def _coming_master() -> MasterInfo | None:
    """Return where the master is; waits for one that is starting or leaving just now."""
    deadline = time.monotonic() + _COMING_S
    while (info := announced_master()) is None and is_locked(paths.master_lock()):
        if time.monotonic() > deadline:
            raise DetError(
                f"a master holds {paths.master_lock()} and does not serve; see its log: "
                f"{paths.log_dir() / 'master.log'}"
            )
        time.sleep(_POLL_S)
    return info


def _lives(info: MasterInfo) -> bool:
    """Return whether this master lives, whichever serves by now."""
    if not info.birth:  # of a version that wrote something else there
        return is_locked(paths.master_lock())
    return info.process.is_alive


def _find_master_for_agent() -> bool:
    """Start a master for an agent that has none, so that trials end in good order.

    Return whether it has found that master: else it must be ended by hand.
    """
    agent = holder_of(paths.agent_lock())
    if not _is_agent_running() or (agent is not None and agent.is_frozen):
        return False
    try:
        info = ensure_master()
        must_be_awake(info)
        with closing(Session(info)) as session:
            deadline = time.monotonic() + _LINK_S
            while time.monotonic() < deadline and _is_agent_running():
                if any(agent["connected"] for agent in session.get("/agents")):
                    break
                time.sleep(_POLL_S)
    except DetError:  # the disk is full, say, or the database is of another version
        return False
    return True


def _is_agent_running() -> bool:
    return any(make().is_running() for make in ENGINES.values())


def _end_by_hand() -> list[str]:
    """End agent, ranks, TensorBoards and feeders; return which of them there were.

    Raises:
        DetError: Some of them do not end.
    """
    ended: list[str] = []
    left: list[str] = []
    for make in ENGINES.values():
        its_ended, its_left = make().end_all(_PATIENCE_S)
        ended += its_ended
        left += its_left
    if not left:  # else the agent would be killed as one of those that have its pages in memory
        killed, survivors = kill_processes_below(runs_root(paths.data_dir()))
        ended += ["ranks without an agent"] * bool(killed)
        left += [f"a process of a run (pid {pid})" for pid in survivors]
    for board in running_boards():
        (ended if board.end() else left).append(f"TensorBoard {board.id} (pid {board.pid})")
    for lock in paths.feeder_locks():
        feeder = holder_of(lock)
        what = "what feeds pages of JupyterLab"
        if feeder is not None:
            what = f"{what} (pid {feeder.pid})"
            feeder.end(_PATIENCE_S)
        if not remove_lock(lock, timeout_s=_LOCK_S):
            left.append(what if feeder else f"{what} (it holds {lock})")
        elif feeder is not None:
            ended.append(what)
    if left:
        raise DetError(
            f"not everything has ended; still running: {', '.join(left)}. It was killed and does "
            "not end, as processes do that wait for a drive; see to it (`ps -o pid,stat,args -p "
            "PID`), then repeat this command"
        )
    return ended


def lonely_agent() -> tuple[int, list[GangPlan]] | None:
    """Return pid and gangs of an agent, for when no master runs; None if there is no agent.

    The pid is 0 if the agent is of an older version, which does not say it.
    """
    if not _is_agent_running():
        return None
    agent = holder_of(paths.agent_lock())
    return 0 if agent is None else agent.pid, list(_running_gangs(runs_root(paths.data_dir())))


def lonely_processes() -> list[int]:
    """Return the pids of runs' processes for when no agent runs: of an agent that was killed."""
    return [] if _is_agent_running() else pids_below(runs_root(paths.data_dir()))


def _running_gangs(root: Path) -> Iterator[GangPlan]:
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        run = RunDir(folder)
        if not run.exit.exists() and not run.closed.exists():
            with suppress(OSError, ValidationError):  # it is removed now, or of another version
                yield GangPlan.model_validate_json(run.plan.read_bytes())
