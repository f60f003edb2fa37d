"""Messages between master and agents."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from det_jupyter.contract.messages.gang_specs import GangPlan
from det_jupyter.contract.messages.rank_orders import Order
from det_jupyter.contract.messages.resources import DeviceProcess
from det_jupyter.contract.messages.views import SlotView
from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import (
    MAX_COUNT,
    Count,
    ExitCode,
    PrintableText,
    ProcessId,
    Rank,
    Timestamp,
)
from det_jupyter.contract.values.lengths import Length


class StartGang(Wire):
    """Start all ranks of the plan, or none."""

    kind: Literal["start_gang"] = "start_gang"
    plan: GangPlan


class SignalGang(Wire):
    """Raise a word of the control page; kill the gang if it is still there `timeout_s` later."""

    kind: Literal["signal_gang"] = "signal_gang"
    allocation_id: str
    signal: Literal["preempt"]
    timeout_s: float


class ExtendGang(Wire):
    """Let the ranks train on to a farther target. Repeatable; a nearer one changes nothing."""

    kind: Literal["extend_gang"] = "extend_gang"
    allocation_id: str
    target: Length  # in the unit of the plan's
    target_is_last: bool


class PassOrders(Wire):
    """Pass orders to the ranks. Repeatable: they take each order once."""

    kind: Literal["pass_orders"] = "pass_orders"
    allocation_id: str
    orders: list[Order]


class KillGang(Wire):
    """End all ranks now."""

    kind: Literal["kill_gang"] = "kill_gang"
    allocation_id: str


class CloseRun(Wire):
    """The master has everything of this run, its exit included: drop it, remove its sockets."""

    kind: Literal["close_run"] = "close_run"
    allocation_id: str


class TakeSamples(Wire):
    """Sample this agent's machine for so long from now on, though it may have no gang."""

    kind: Literal["take_samples"] = "take_samples"
    for_s: Annotated[float, Field(gt=0, le=60)]


class Leave(Wire):
    """End the agent (and whatever it still runs)."""

    kind: Literal["leave"] = "leave"


AgentCommand = Annotated[
    StartGang | SignalGang | ExtendGang | PassOrders | KillGang | CloseRun | TakeSamples | Leave,
    Field(discriminator="kind"),
]


class RunReport(Wire):
    """A run that the agent knows of and the master has not closed."""

    allocation_id: str
    alive: bool


def _numbered(slots: list[SlotView]) -> list[SlotView]:
    ids = {slot.id for slot in slots}
    if len(ids) < len(slots) or any(not 0 <= slot_id <= MAX_COUNT for slot_id in ids):
        raise ValueError("expected slots with numbers of their own, from 0 on")
    return slots


class RegisterAgent(Wire):
    """An agent's first message, and its first one after each reconnection.

    `session` is new for each agent process, so the master can tell a reconnection from a
    successor whose ranks all died with their agent.
    """

    protocol: int
    version: str
    session: str
    hostname: str
    pid: int
    birth: PrintableText = ""  # of its process (host/processes.py)
    slots: Annotated[list[SlotView], AfterValidator(_numbered)]
    runs: list[RunReport]
    devices: dict[int, list[DeviceProcess]] = {}  # processes that are not ours, by slot id
    problems: list[str] = []  # with what it was told to offer, for people


class OtherVersion(Wire):
    """What can be read of a registration by an agent of another version."""

    model_config = ConfigDict(extra="ignore")

    protocol: int
    version: str
    pid: int
    birth: str = ""
    hostname: str = ""


class Offsets(Wire):
    """How many bytes of each file the master has: allocation id -> stream -> bytes.

    Streams are named `journal-<rank>` and `output-<rank>`.
    """

    offsets: dict[str, dict[str, int]]


class Chunk(Wire):
    """Complete lines of a rank's file: its bytes `offset` to `offset + size_bytes`.

    The next chunk begins at `offset + size_bytes`. That is not always the length of `text`: a
    rank may print what is not UTF-8 (each such byte arrives as U+FFFD), and its last line may lack
    the line end that `text` has.
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
    connection_file: str
    output_file: str


class GangStarted(Wire):
    """All ranks of the gang exist as processes."""

    kind: Literal["gang_started"] = "gang_started"
    allocation_id: str
    at: Timestamp
    ranks: list[RankProcess]
    note: PrintableText = ""


class CrashOutput(Wire):
    """What a rank that died without a record had printed before: of a crash, where it was."""

    error: PrintableText = ""  # why, in a line, where the output says so; or ""
    # The innermost frame of the user's code: `Cell In[5], line 12, in train_batch`.
    where: PrintableText = ""
    traceback: PrintableText = ""  # the stack of the crash, or the last lines of the output


class GangExited(Wire):
    """The gang is gone: every rank's process has ended (or none could be started).

    The agent sends it after the last chunk of every stream, again and again until CloseRun.
    """

    kind: Literal["gang_exited"] = "gang_exited"
    allocation_id: str
    at: Timestamp
    # By rank; negative is minus the signal; None when unknown.
    exit_codes: dict[Rank, ExitCode | None]
    first_failed: Rank | None = None  # the rank whose failure ended the gang
    # The rank that ended first, well or not, while the others lived.
    first_ended: Rank | None = None
    batch: Count | None = None  # index of the batch that this one had begun
    last_words: CrashOutput | None = None  # what this one had printed
    # The agent ended it on the master's order (or at the preemption deadline).
    killed: bool = False
    lost: bool = False  # the ranks died with their agent or fork server: not the trial's fault
    error: PrintableText = ""  # why it could not be started at all
    error_is_final: bool = True  # trying again cannot help: something has to be changed first
    no_room: bool = False  # a disk was full: not the trial's fault


class DevicesSeen(Wire):
    """Processes that are not ours on this agent's devices, by slot id; sent when changed."""

    kind: Literal["devices_seen"] = "devices_seen"
    at: Timestamp
    processes: dict[int, list[DeviceProcess]]


class SystemSample(Wire):
    """What an agent measured at one moment, by source and name (measures.py).

    Sources: `host`; `gpu:UUID` and `mig:UUID`; `rank:ALLOCATION:RANK`, and `workers:...` for the
    processes that this rank's data loaders have started, together.
    """

    at: Timestamp
    values: dict[str, dict[str, float]]


class SystemSampled(Wire):
    """Samples of an agent's machine, oldest first; a report that is lost is not repeated."""

    kind: Literal["system_sampled"] = "system_sampled"
    samples: list[SystemSample]
    # Why a name of a source has no values, where that was found since the last report.
    missing: dict[str, dict[str, PrintableText]] = {}


class Unreadable(Wire):
    """Takes the place of a report that cannot be read: its content, and why."""

    kind: Literal["unreadable"] = "unreadable"
    content: Any
    problem: str


def _read(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """Replace an unreadable report, so that the others of its batch are read."""
    try:
        return read(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return Unreadable(content=value, problem=f"{where or 'kind'}: {first['msg']}")


AgentReport = Annotated[
    Chunk | GangStarted | GangExited | DevicesSeen | SystemSampled | Unreadable,
    Field(discriminator="kind"),
]


class AgentReports(Wire):
    """A batch of reports, applied in order."""

    session: str
    reports: list[Annotated[AgentReport, WrapValidator(_read)]]
