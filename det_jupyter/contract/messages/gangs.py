"""Registration of agents, their files, and the commands to them. Reports: reports.py."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
)

from det_jupyter.contract.messages.checks import CheckConnections
from det_jupyter.contract.messages.device_faults import DeviceFault
from det_jupyter.contract.messages.gang_links import GangLink
from det_jupyter.contract.messages.gang_specs import GangPlan
from det_jupyter.contract.messages.rank_kernels import OpenTunnel
from det_jupyter.contract.messages.rank_orders import Order
from det_jupyter.contract.messages.resources import DeviceProcess
from det_jupyter.contract.messages.views import SlotView
from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import (
    MAX_COUNT,
    Count,
    PrintableText,
    Timestamp,
)
from det_jupyter.contract.values.lengths import Length


class StartGang(Wire):
    """Start the ranks of the plan that are on the agents of this process, or none of them."""

    kind: Literal["start_gang"] = "start_gang"
    plan: GangPlan
    link: GangLink | None = None  # None: all ranks are on agents of this process


class SignalGang(Wire):
    """Raise a signal on the control page; kill the gang if it still runs `timeout_s` later."""

    kind: Literal["signal_gang"] = "signal_gang"
    allocation_id: str
    signal: Literal["preempt"]
    timeout_s: float


class ExtendGang(Wire):
    """Set a farther target for the ranks. Repeatable; a nearer one changes nothing."""

    kind: Literal["extend_gang"] = "extend_gang"
    allocation_id: str
    target: Length  # in the unit of the plan's target
    target_is_last: bool


class PassOrders(Wire):
    """Pass orders to the ranks. Repeatable: they carry out each order once."""

    kind: Literal["pass_orders"] = "pass_orders"
    allocation_id: str
    orders: list[Order]


class KillGang(Wire):
    """Kill all ranks now, or soon."""

    kind: Literal["kill_gang"] = "kill_gang"
    allocation_id: str
    # Ranks elsewhere were killed or lost: first let these save the last step.
    lets_save: bool = False
    gives_up_uploads: bool = False  # a user has killed it: its slots must soon be free


class CloseRun(Wire):
    """The master has stored all of this run, its exit included: delete its folder and sockets."""

    kind: Literal["close_run"] = "close_run"
    allocation_id: str


class TakeSamples(Wire):
    """Sample this agent's machine for `for_s` seconds, even if it runs no gang."""

    kind: Literal["take_samples"] = "take_samples"
    for_s: Annotated[float, Field(gt=0, le=60)]


class Leave(Wire):
    """Exit, after killing the gangs that still run."""

    kind: Literal["leave"] = "leave"


class WantSlots(Wire):
    """Show the agents of other masters on this computer which gangs wait for its slots."""

    kind: Literal["want_slots"] = "want_slots"
    sizes: list[Annotated[int, Field(ge=1)]]  # number of slots of each, the first one first
    slot_ids: list[int]  # slots that they may take


RunCommand = (
    StartGang | SignalGang | ExtendGang | PassOrders | KillGang | CloseRun | TakeSamples | Leave
)
AgentCommand = Annotated[
    RunCommand | OpenTunnel | CheckConnections | WantSlots, Field(discriminator="kind")
]


class RunReport(Wire):
    """A run of the agent that the master has not closed."""

    allocation_id: str
    alive: bool


def _have_own_ids(slots: list[SlotView]) -> list[SlotView]:
    ids = {slot.id for slot in slots}
    if len(ids) < len(slots) or any(not 0 <= slot_id <= MAX_COUNT for slot_id in ids):
        raise ValueError("expected slots with numbers of their own, from 0 on")
    return slots


class RegisterAgent(Wire):
    """An agent's first message, and its first one after each reconnection.

    `session` is new for each agent process. By it the master distinguishes a reconnection from a
    new process, whose predecessor's ranks were killed with it.
    """

    protocol: int
    version: str
    session: str
    hostname: str
    pid: int
    birth: PrintableText = ""  # start of its process (host/processes.py)
    slots: Annotated[list[SlotView], AfterValidator(_have_own_ids)]
    runs: list[RunReport]
    devices: dict[int, list[DeviceProcess]] = {}  # processes that are not ours, by slot id
    lost: dict[int, DeviceFault] = {}  # devices that do not work, by slot id
    is_shared: bool = False  # as in DevicesSeen
    problems: list[str] = []  # sentences on problems with the agent's settings
    # Of an agent on another computer: its environment, and how far its clock is ahead of the
    # master's.
    versions: dict[str, PrintableText] = {}  # versions of python and torch
    # Its computer's address for other agents; "": the one that the master sees.
    address: PrintableText = ""
    port: Annotated[int, Field(ge=0, le=65535)] = 0  # where it accepts other agents; 0: nowhere
    clock_ahead_s: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    booted_at: Annotated[float, Field(allow_inf_nan=False)] | None = None  # as in AgentReports


class AgentCredentials(Wire):
    """Credentials with which an agent on another computer connects; it reads them from stdin."""

    agent: str  # its name
    # URL of the master's listener for such agents. Over http the token could be read on the way.
    url: Annotated[str, Field(pattern="^https://")]
    certificate: str  # PEM: the one certificate that the agent trusts
    token: str = Field(repr=False)


class RemoteStart(Wire):
    """What an agent on another computer needs to start a gang."""

    storage: str | None  # location of the experiment's checkpoints; None: the agent uploads them
    probe: str = ""  # a file that the master has just made there; the agent removes it
    # Checkpoints that the run may start from, in the master's own folder: sizes of files.
    checkpoints: dict[str, dict[str, int]] = {}


class ClockReading(Wire):
    """The time on the master's clock."""

    at: Timestamp


class StoredFiles(Wire):
    """An agent's files of a checkpoint, by their paths in it, with sizes in bytes."""

    files: dict[str, Count]
    share: Count = 0  # index of the agent among those with files of it
    num_shares: Annotated[int, Field(ge=1, le=MAX_COUNT)] = 1  # agents with files of it


class StoredCheckpoint(Wire):
    """Where the master has stored a checkpoint."""

    path: str  # "": files of other agents are missing
    silent_s: float = 0.0  # how long no file of it has arrived


class StoredFile(Wire):
    """Where the master has stored a file of a trial."""

    path: str


class AddAgent(Wire):
    """A request for the credentials of an agent on another computer; they replace earlier ones."""

    address: str = ""  # this computer's address for the agent; "": found by the default route


class OtherVersion(Wire):
    """The fields that are read from the registration of an agent of another version."""

    model_config = ConfigDict(extra="ignore")

    protocol: int
    version: str
    pid: int
    birth: str = ""
    hostname: str = ""


class Offsets(Wire):
    """Number of bytes of each stream that the master has: allocation id -> stream -> bytes.

    Streams are named `journal-<rank>` and `output-<rank>`.
    """

    offsets: dict[str, dict[str, int]]
