"""Reports of agents to the master: files of ranks, starts and ends of gangs, devices, samples."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from det_jupyter.contract.messages.device_faults import DeviceFault
from det_jupyter.contract.messages.disks import DiskReading, RoomWait
from det_jupyter.contract.messages.gang_links import Cut
from det_jupyter.contract.messages.leaving import RankProgress
from det_jupyter.contract.messages.resources import DeviceProcess
from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import (
    Count,
    ExitCode,
    PrintableText,
    ProcessId,
    Rank,
    Timestamp,
)
from det_jupyter.contract.values.text import size


class Chunk(Wire):
    """Complete lines of a rank's file: its bytes `offset` to `offset + size_bytes`.

    The next chunk begins at `offset + size_bytes`. `text` may have another length than
    `size_bytes`: bytes that are not UTF-8 are replaced by U+FFFD, and a line end is added to a
    last line without one.
    """

    kind: Literal["chunk"] = "chunk"
    allocation_id: str
    stream: str
    offset: Count
    size_bytes: Count
    text: str


class RankProcess(Wire):
    """A rank process that was started."""

    rank: Rank
    pid: ProcessId
    birth: PrintableText = ""  # host/processes.py
    host: PrintableText = ""  # name of its computer
    is_remote: bool = False  # set by the master: on an agent of another computer
    connection_file: str  # for a remote rank, the master makes it on its own computer
    output_file: str  # on the computer of the rank


class GangStarted(Wire):
    """The gang's ranks on the agents of one process exist as processes."""

    kind: Literal["gang_started"] = "gang_started"
    allocation_id: str
    at: Timestamp
    ranks: list[RankProcess]
    note: PrintableText = ""
    # If the gang is on several computers: the interfaces over which the ranks here reach the
    # others, such as "eth0".
    interface: PrintableText = ""


class RanksSeen(Wire):
    """What the ranks on one process's agents are doing after their gang was asked to leave.

    Sent when it has changed, and to each new master; not after every batch.
    """

    kind: Literal["ranks_seen"] = "ranks_seen"
    allocation_id: str
    at: Timestamp
    places: dict[Rank, RankProgress]
    checked_at: Timestamp | None = None  # see control_page.py
    saving_since: Timestamp | None = None


class CrashOutput(Wire):
    """The output of a rank that exited without a RankFailure or RunEnded, such as a crash."""

    error: PrintableText = ""  # the error in one line, if the output contains it
    # The innermost frame of the user's code: `Cell In[5], line 12, in train_batch`.
    where: PrintableText = ""
    traceback: PrintableText = ""  # the stack of the crash, or the last lines of the output


class MemoryHolder(Wire):
    """What held memory when it ran out, such as `rank 1`."""

    name: PrintableText
    num_bytes: Count


class MemoryShortage(Wire):
    """The kernel has killed a process because memory had run out, and what held the memory."""

    limit_bytes: Count = 0  # of the control group, or the computer's memory; 0: not known
    is_of_group: bool = False  # the limit is that of a control group: a container, a job
    holders: list[MemoryHolder] = []  # the killed process first, if it is known; then by size
    # Pids that the kernel's log names; empty: the kernel's counters show it.
    pids: list[ProcessId] = []

    def __str__(self) -> str:
        whose = "its control group (container or job)" if self.is_of_group else "the computer"
        limit = f", {size(self.limit_bytes)}," if self.limit_bytes else ""
        held = ", ".join(f"{holder.name} {size(holder.num_bytes)}" for holder in self.holders)
        return f"the memory of {whose}{limit} ran out{f': {held}' if held else ''}"


class Loss(StrEnum):
    """Why ranks were lost. None of these reasons is a failure of their trial."""

    UNKNOWN = ""  # in ends that older versions have stored
    AGENT = "agent"  # its process has died
    FORK_SERVER = "fork server"  # it has died
    SILENCE = "silence"  # their agent has sent no more requests to the master
    LEAVING = "leaving"  # their agent was ordered to exit: by a user, a cluster, the master
    MASTER = (
        "master"  # it was away, or their agent was suspended, for so long that they were ended
    )
    CUT = "cut"  # their computer did not reach that of other ranks
    TAKEN = "taken"  # another master of their computer has taken the slots in the same moment


class GangExited(Wire):
    """The gang's rank processes on the agents of one process have exited, or could not be started.

    The agent sends it after the last chunk of every stream, again and again until CloseRun.
    """

    kind: Literal["gang_exited"] = "gang_exited"
    allocation_id: str
    at: Timestamp
    # By rank; negative is minus the signal; None when unknown.
    exit_codes: dict[Rank, ExitCode | None]
    first_failed: Rank | None = None  # the rank whose failure ended the gang
    # The rank that exited first, whatever its exit code, while the others ran.
    first_ended: Rank | None = None
    ended_at: Timestamp | None = None  # when this rank exited, if it failed
    batch: Count | None = None  # index of the last batch that this rank had begun
    last_words: CrashOutput | None = None  # the end of this rank's output
    memory: MemoryShortage | None = None  # the kernel has killed a process for want of memory
    had_memory: bool = False  # the kernel has killed none: a SIGKILL had another sender
    # By rank: the error of its GPU that best explains a crash.
    faults: dict[Rank, DeviceFault] = {}
    # Killed by the agent, on the master's command or at the deadline of a preemption.
    killed: bool = False
    lost: bool = False  # not the trial's fault: `loss` has the reason
    loss: Loss = Loss.UNKNOWN
    error: PrintableText = ""  # why it could not be started at all
    error_is_final: bool = True  # trying again cannot help: something has to be changed first
    no_room: bool = False  # a disk was full: not the trial's fault
    full_folder: PrintableText = ""  # a folder on that disk; "": unknown
    # A checkpoint could not be uploaded: what the ranks reported after it does not count.
    not_saved: bool = False
    cut: Cut | None = None  # it is lost because of this


class DevicesSeen(Wire):
    """Why devices of this agent cannot be given to trials, by slot id; sent when it changes."""

    kind: Literal["devices_seen"] = "devices_seen"
    at: Timestamp
    processes: dict[int, list[DeviceProcess]]  # of others
    lost: dict[int, DeviceFault] = {}
    is_shared: bool = False  # other masters use this computer's slots, too


class RoomReported(Wire):
    """Whether the ranks of a run wait for room on a disk; sent when that changes."""

    kind: Literal["room_reported"] = "room_reported"
    allocation_id: str
    at: Timestamp
    wait: RoomWait | None


class DisksSeen(Wire):
    """The disks of an agent on another computer; sent every few seconds, and not stored."""

    kind: Literal["disks_seen"] = "disks_seen"
    at: Timestamp
    disks: list[DiskReading]


class SystemSample(Wire):
    """Values that an agent measured at one time, by source and name (measures.py).

    Sources: `host`; `gpu:UUID` and `mig:UUID`; `rank:ALLOCATION:RANK`, and `workers:...` for the
    sum over the worker processes of this rank's data loaders.
    """

    at: Timestamp
    values: dict[str, dict[str, float]]


class SystemSampled(Wire):
    """Samples of an agent's machine, oldest first; not sent again if the report is lost."""

    kind: Literal["system_sampled"] = "system_sampled"
    samples: list[SystemSample]
    # Why a source has no values of a name, if that was found since the last report.
    missing: dict[str, dict[str, PrintableText]] = {}


class Unreadable(Wire):
    """Replaces a report that cannot be parsed: its content, and the error."""

    kind: Literal["unreadable"] = "unreadable"
    content: Any
    problem: str


def _parse_or_wrap(value: Any, parse: ValidatorFunctionWrapHandler) -> Any:
    """Parse a report, or return an Unreadable: one bad report does not fail the whole batch."""
    try:
        return parse(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return Unreadable(content=value, problem=f"{where or 'kind'}: {first['msg']}")


AgentReport = Annotated[
    Chunk
    | GangStarted
    | RanksSeen
    | GangExited
    | DevicesSeen
    | RoomReported
    | DisksSeen
    | SystemSampled
    | Unreadable,
    Field(discriminator="kind"),
]


class AgentReports(Wire):
    """A batch of reports, applied in order."""

    session: str
    # When the agent's computer booted, by its clock; None: the clock could not be read in time.
    booted_at: Annotated[float, Field(allow_inf_nan=False)] | None = None
    reports: list[Annotated[AgentReport, WrapValidator(_parse_or_wrap)]]
