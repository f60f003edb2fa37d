"""A run: the folder of one allocation, and its reports that the master has not confirmed.

If the gang is on several computers, the run here has only the ranks on this process's agents.

A run begins with StartGang, or is found in the data folder after an agent process was killed.
CloseRun ends it. Processes of gangs are handled by gang.py and runner.py.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Container, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from det_jupyter.agent.runs.file_chunks import Stream, streams_of
from det_jupyter.agent.starting.rank_processes import end_survivors
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.host.rundir import RunDir, run_dir, runs_root
from det_jupyter.contract.host.socket_folders import is_own_folder, keep_socket_folder
from det_jupyter.contract.messages import (
    GangExited,
    GangLink,
    GangPlan,
    GangStarted,
    Loss,
    PassOrders,
    RankProcess,
    RanksSeen,
    RoomReported,
    RoomWait,
)
from det_jupyter.contract.run import control_page
from det_jupyter.contract.run.evidence_page import create_evidence_page
from det_jupyter.contract.trial.captured import cell_labels, cell_sources
from det_jupyter.contract.values.lengths import Length
from det_jupyter.contract.values.variables import (
    variable_lines,
    variables_in,
    without_values,
)
from det_jupyter.errors import NotFound

logger = logging.getLogger(__name__)

_RANKS = TypeAdapter(list[int])


@dataclass(slots=True, kw_only=True)
class AgentRun:
    """The run of one allocation."""

    plan: GangPlan
    dir: RunDir
    ranks: Sequence[int] = ()  # the ranks on agents of this process; (): all
    link: GangLink | None = field(default=None, repr=False)  # of a gang on several computers
    # Folder of the ranks' IPC sockets; None if the ranks exited with an earlier agent process.
    sockets: Path | None
    remote_agent: str = ""  # the agent, if the master is on another computer
    # On a remote agent: values of the variables that the configuration only names.
    environment: dict[str, str] | None = field(default=None, repr=False)
    # Network interfaces over which the ranks of a gang on several computers reach the others.
    interfaces: Sequence[str] = ()
    streams: list[Stream] = field(init=False)  # the files to send, journals first
    started: GangStarted | None = None  # report of the start, until the master confirms it
    # Report of what its ranks are doing, once they were asked to leave.
    seen: RanksSeen | None = None
    is_seen_sent: bool = False
    # Report of the end, which is sent again until the master closes the run.
    exited: GangExited | None = None
    room: RoomReported | None = None  # report of whether its ranks wait for room on a disk
    is_room_sent: bool = True
    upload_wait: RoomWait | None = None  # why an upload is repeated without an end; None: none is
    is_killed: bool = False  # a user has killed it: its checkpoints need not be stored
    # Monotonic time when the present master last confirmed `exited`.
    exit_sent_at: float | None = None

    def __post_init__(self) -> None:
        self.ranks = self.ranks or range(self.world_size)
        self.streams = streams_of(self.dir, self.id, self.ranks)

    @property
    def id(self) -> str:
        """The allocation's id."""
        return self.plan.allocation_id

    @property
    def world_size(self) -> int:
        """Number of ranks of the gang, on all computers."""
        return len(self.plan.slots)

    @property
    def process_ranks(self) -> list[int]:
        """The ranks here that a process is started for."""
        return [rank for rank in self.plan.process_ranks() if rank in self.ranks]

    @property
    def is_alive(self) -> bool:
        """Whether the gang has not ended; its ranks run or are being started."""
        return self.exited is None

    def prepare(self) -> None:
        """Create the folder with the control page and the plan, and the folder of the sockets.

        Raises:
            OSError: They cannot be created, for example because the disk is full.
        """
        assert self.sockets is not None
        if self.dir.path.exists():
            # From a master whose database is gone; otherwise this agent would have adopted the
            # run. The old journal must not become a part of the new one.
            logger.warning("allocation=%s: an older run of this name is removed", self.id)
            _remove(self.dir)
        self.dir.path.mkdir(mode=0o700, parents=True)
        if not is_own_folder(self.sockets.parent):  # removed with other temporary files
            self.sockets = keep_socket_folder(paths.agent_sockets()) / self.sockets.name
        self.sockets.mkdir(mode=0o700)
        control_page.create_page(self.dir.control)
        create_evidence_page(self.dir.evidence, self.world_size)
        if len(self.ranks) < self.world_size:
            paths.write_private(self.dir.part, _RANKS.dump_json(list(self.ranks)).decode())
        self._write_plan()

    def set_plan(self, plan: GangPlan) -> None:
        """Replace the plan, also in its file."""
        self.plan = plan
        self._write_plan()

    def _write_plan(self) -> None:
        """Write the plan to its file; on a remote agent without the values of variables.

        Programs that a rank starts read the file; they inherit the variables of the rank.
        """
        plan = self.plan
        if self.remote_agent:
            plan = plan.model_copy(update={"config": without_values(plan.config)})
        paths.write_private(self.dir.plan, plan.model_dump_json())

    def variables(self) -> dict[str, str]:
        """Return the environment variables that the user gives the ranks here.

        Variables that the configuration only names are included on a remote agent. Elsewhere they
        are left out: their values are in a blob, which the ranks read.
        """
        lines = variable_lines(self.plan.config, self.plan.slots[self.ranks[0]].kind)
        return variables_in(lines, self.environment or {})

    def note_started(self, *, at: float, pids: Mapping[int, int], note: str) -> None:
        """Set the report of the start.

        Args:
            pids: Pids by rank.
            note: How the ranks were started.
        """
        self.started = GangStarted(
            allocation_id=self.id,
            at=at,
            ranks=[
                RankProcess(
                    rank=rank,
                    **asdict(ProcessIdentity.of(pid)),
                    connection_file=str(self.dir.connection_file(rank)),
                    output_file=str(self.dir.output(rank)),
                )
                for rank, pid in pids.items()
            ],
            note=note,
            interface=",".join(self.interfaces),
        )

    def note_exited(self, exited: GangExited) -> None:
        """Set the report of the end, and write it to a file for the next agent process."""
        self.exited = exited
        try:
            paths.write_private(self.dir.exit, exited.model_dump_json())
        except OSError as error:  # only needed if this process is killed
            logger.warning(
                "allocation=%s: %s cannot be written: %s", self.id, self.dir.exit, error
            )

    def labels(self) -> Mapping[str, str]:
        """Return the labels of the captured cells, by file name; {} if they cannot be read."""
        try:
            return cell_labels(self.plan.capsule, BlobStore.of(paths.data_dir()))
        except (NotFound, ValueError):  # without labels, frames show file names
            return {}

    def cells(self) -> Mapping[str, str]:
        """Return the source of the captured cells, by file name; {} if it cannot be read."""
        if not self.plan.capsule.sources:
            return {}
        try:
            return cell_sources(self.plan.capsule, BlobStore.of(paths.data_dir()))
        except (NotFound, ValueError):
            return {}

    def open_page(self) -> closing[control_page.ControlPage]:
        """Return the control page, which is closed at the end of a `with` block.

        Raises:
            OSError: There is none any more.
            ValueError: It is damaged.
        """
        return closing(control_page.ControlPage(self.dir.control))

    @property
    def waits_for_room(self) -> bool:
        """Whether its ranks wait for room on a disk, or for uploads."""
        wait = self.room.wait if self.room is not None else None
        return wait is not None and (wait.writing != "uploads" or wait.holds)

    def note_room(self, now: float) -> bool:
        """Set the report of whether the ranks wait for room; return whether it has changed."""
        try:
            with self.open_page() as page:
                found = page.wait_for_room() if self.is_alive else None
        except (OSError, ValueError):  # user code may have removed the folder
            return False
        wait = self.upload_wait
        if wait is not None and wait.writing == "uploads" and not self.is_alive:
            wait = wait.model_copy(update={"is_over": True})
        if found is not None and found.writing == "uploads":
            wait = wait or RoomWait(writing="uploads", folder=self.plan.bucket, since=found.since)
            wait = wait.model_copy(update={"holds": True})
        elif found is not None:
            # For a checkpoint, the master replaces it by the storage's folder.
            folder = paths.data_dir()
            wait = RoomWait(
                writing=found.writing,
                folder=str(folder / "checkpoints" if found.writing == "checkpoint" else folder),
                since=found.since,
                needs_bytes=found.needs_bytes,
            )
        before = self.room.wait if self.room is not None else None
        if _without_time(before) == _without_time(wait):
            return False
        self.room, self.is_room_sent = (
            RoomReported(allocation_id=self.id, at=now, wait=wait),
            False,
        )
        return True

    def note_upload_wait(self, destination: str, reason: str, *, holds: bool = False) -> None:
        """Set why an upload waits.

        Args:
            destination: What does not take it: the location of a bucket, or MASTERS.
            reason: Why; "": its disk is full.
            holds: Whether the ranks wait as well.
        """
        since = self.upload_wait.since if self.upload_wait is not None else time.time()
        self.upload_wait = RoomWait(
            writing="uploads" if reason else "records",
            folder=destination,
            reason=reason,
            holds=holds,
            since=since,
        )

    def raise_signal(self, signal: control_page.Signal) -> None:
        """Write a signal for the chief into the control page."""
        with self.open_page() as page:
            page.raise_signal(signal)

    def extend(self, target: Length, *, is_last: bool) -> None:
        """Write a farther target into the control page."""
        with self.open_page() as page:
            page.extend(target.amount, is_last=is_last)

    def pass_orders(self, passed: PassOrders) -> None:
        """Write the file of orders, and announce it to the chief in the control page."""
        paths.write_private(self.dir.orders, passed.model_dump_json())
        with self.open_page() as page:
            page.announce_orders(max((order.id for order in passed.orders), default=0))

    def close(self) -> None:
        """Remove the sockets and files: the master has stored everything."""
        if self.sockets is not None:
            shutil.rmtree(self.sockets, ignore_errors=True)
        _remove(self.dir)  # last, because runs are found by their folders


def _without_time(wait: RoomWait | None) -> RoomWait | None:
    return None if wait is None else wait.model_copy(update={"since": 0.0, "needs_bytes": 0})


def _remove(folder: RunDir) -> None:
    """Remove the folder of a run.

    Its file `closed` is written first, so that a folder that was removed in part is recognised.
    """
    try:
        folder.closed.touch(mode=0o600)
        try:
            shutil.rmtree(folder.path)
        except PermissionError:  # ranks may have left read-only folders in their copy
            _make_writable(folder.work)
            shutil.rmtree(folder.path)
    except FileNotFoundError:
        return  # another process has removed it
    except OSError as error:  # deleting the experiment, or the next start, removes it
        logger.warning("%s cannot be removed: %s", folder.path, error)


def _make_writable(root: Path) -> None:
    root.chmod(0o700)
    for path, folders, _ in os.walk(root):  # top-down: readable before it is listed
        for name in folders:
            if not os.path.islink(each := os.path.join(path, name)):
                os.chmod(each, 0o700)


def new_run(
    plan: GangPlan,
    link: GangLink | None = None,
    *,
    agents: Container[str] = (),
    sockets: Path,
    remote_agent: str = "",
) -> AgentRun:
    """Return a new run of this plan; writes nothing (see `AgentRun.prepare`).

    Args:
        plan: The plan.
        link: The links of a gang on several computers.
        agents: The agents of this process, for a gang on several computers.
        sockets: Short path of a folder for IPC sockets, which does not exist yet.
        remote_agent: The agent, if the master is on another computer.
    """
    folder = run_dir(paths.data_dir(), plan.allocation_id)
    ranks = plan.ranks_on(agents) if link is not None else ()
    return AgentRun(
        plan=plan, dir=folder, ranks=ranks, link=link, sockets=sockets, remote_agent=remote_agent
    )


def adopt_runs(*, now: float) -> list[AgentRun]:
    """Return the runs that an earlier agent process left open, and remove folders of closed runs.

    Ranks that still run are ended; a run whose end was not recorded is reported as lost at `now`.
    """
    root = runs_root(paths.data_dir())
    if not root.is_dir():
        return []
    adopted = []
    for folder in [RunDir(path) for path in sorted(root.iterdir())]:
        if folder.closed.exists():
            _remove(folder)
        elif (run := _adopt(folder, now)) is not None:
            adopted.append(run)
    return adopted


def _adopt(folder: RunDir, now: float) -> AgentRun | None:
    try:
        plan = GangPlan.model_validate_json(folder.plan.read_bytes())
        is_part = folder.part.exists()
        ranks = _RANKS.validate_json(folder.part.read_bytes()) if is_part else ()
    except FileNotFoundError:
        return None  # nothing was started; the master repeats its order
    except ValidationError:
        logger.warning("%s is of another version of det_jupyter: left alone", folder.plan)
        return None
    end_survivors(folder)
    run = AgentRun(plan=plan, dir=folder, ranks=ranks, sockets=None)
    with suppress(FileNotFoundError):
        run.exited = GangExited.model_validate_json(folder.exit.read_bytes())
    if run.exited is None:
        logger.warning("allocation=%s was lost with its agent", plan.allocation_id)
        codes: dict[int, int | None] = dict.fromkeys(run.process_ranks)
        run.note_exited(
            GangExited(
                allocation_id=plan.allocation_id,
                at=now,
                exit_codes=codes,
                lost=True,
                loss=Loss.AGENT,
            )
        )
    return run
