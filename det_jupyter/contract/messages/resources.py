"""Views of pools, slots and queues; reasons why trials wait, and remedies."""

from __future__ import annotations

from shlex import quote
from typing import Literal

from typing_extensions import TypedDict  # pydantic accepts no other before Python 3.12

from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.messages.device_faults import DeviceFault
from det_jupyter.contract.messages.disks import DiskStatus
from det_jupyter.contract.messages.status import State
from det_jupyter.contract.messages.views import SlotView
from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import Count, PrintableText, ProcessId, Timestamp
from det_jupyter.contract.values.reader import Reader
from det_jupyter.contract.values.text import short_time


class DeviceProcess(Wire):
    """A process that is not ours and uses a device, or another master's claim on it.

    `claim`: `held` by a trial of that master, whose agent has this pid; `next`: kept for the first
    of its trials that waits.
    """

    pid: ProcessId  # on the agent's computer
    command: PrintableText  # its command line, shortened; of a claim: what it is, in words
    user: PrintableText = ""  # its owner
    memory_bytes: Count = 0  # bytes of the device's memory
    kernel_id: str | None = None  # id of the kernel, if the process is a Jupyter kernel
    notebook: str | None = None  # path of that kernel's notebook, if known
    # Since when it has not used the device, UTC seconds; None: busy, or not known.
    idle_since: Timestamp | None = None
    claim: Literal["", "held", "next"] = ""
    since: Timestamp | None = None  # of a claim: since when it holds the slot, or waits


class SlotStatus(Wire):
    """A slot, and what holds it.

    `used`: by a gang. `leaving`: by a gang that was preempted. `occupied`: a process that is not
    ours uses the device, so no trial gets it. `lost`: the device does not work until it is reset.
    `disabled`: by a user.
    """

    slot: SlotView
    state: Literal["free", "used", "leaving", "occupied", "lost", "disabled"]
    is_draining: bool = False  # will be disabled as soon as the gang on it has ended
    allocation_id: str | None = None
    experiment_id: int | None = None
    experiment_name: str = ""
    trial_id: int | None = None
    rank: int | None = None
    priority: int | None = None
    since: float | None = None
    processes: list[DeviceProcess] = []
    lost: DeviceFault | None = None  # why the device does not work


class AgentStatus(Wire):
    """An agent and its slots."""

    id: str
    hostname: str
    pool: str
    connected: bool
    problem: str = ""  # why it is not connected, and what to do, in a sentence
    cluster: str = ""  # the cluster that its computer is a node of, if it is one
    node: str = ""  # the node, as the cluster identifies it
    pid: int = 0  # on its computer
    slots: list[SlotStatus]
    num_aux: int = 0  # trials without slots that run here
    is_remote: bool = False  # on another computer than the master
    address: str = ""  # of its computer, for other agents; "": unknown, or the master's
    versions: dict[str, str] = {}  # of Python and torch, if it is on another computer
    left_at: float | None = None  # since when it is not connected or exits, UTC seconds
    num_left_slots: int = 0  # slots that it had, if it has exited

    @property
    def used(self) -> dict[int, str]:
        """The allocations that hold its slots, by slot."""
        held = ((slot.slot.id, slot.allocation_id) for slot in self.slots)
        return {number: allocation for number, allocation in held if allocation is not None}

    @property
    def why_silent(self) -> str:
        """Why the agent's ranks cannot be reached; "" if it is connected."""
        if self.connected:
            return ""
        return f"agent {self.id} is not connected" + (f" ({self.problem})" if self.problem else "")

    def state(self, now: float) -> str:
        """Return whether the agent is connected, or since when not, as text: `left at 15:40`.

        Args:
            now: UTC seconds.
        """
        at = "" if self.left_at is None else short_time(self.left_at, now)
        if at and not self.slots:
            return f"left at {at}"
        if self.connected:
            return "connected"
        return f"not connected since {at}" if at else "not connected"


class PoolStatus(Wire):
    """A pool: its rules, its agents and how many wait."""

    name: str
    description: str = ""
    policy: Literal["priority", "fair_share", "round_robin"]
    preemption: bool
    default_priority: int = 42
    share_devices: bool = False
    agents: list[AgentStatus]
    lost: list[AgentStatus] = []  # agents on other computers that were lost, and may connect again
    num_slots: int  # slots that trials may get, held or free
    num_free: int
    num_waiting: int  # number of waiting trials


class HolderView(Wire):
    """An experiment that holds slots which a waiting trial could use."""

    experiment_id: int
    experiment_name: str
    trial_ids: list[int]
    slots: int
    priority: int
    since: float
    notebook: str | None = None
    is_leaving: bool = False


class Estimate(Wire):
    """An expected time with its bounds, UTC seconds."""

    at: float
    earliest: float
    latest: float | None = None  # None: not known
    basis: str  # what it is computed from, such as "by the progress of trial 3"


RemedyVerb = Literal[
    "wait",  # until one of `trials` or of the experiments ends, or `num_trials` of them on `agent`
    "pause",  # these experiments
    "pause_at_once",  # an experiment that pauses: its ranks are killed
    "activate",
    "kill",
    "kill_and_continue",
    "kill_and_submit",  # the experiment, and submit it again with `slots_per_trial`
    "set",  # `priority`, `max_slots` or `pool` of the experiment
    "move",  # the experiment ahead of experiment `ahead_of`
    "reset_devices",  # of `slot_ids` of the agent, by their `indexes` at `host`
    "enable_slots",  # `slot_ids` of the agent
    "end_processes",  # `pids` on the agent, at `host`: they are the user's own and do nothing
    "ask_for_devices",  # ask the users who run `pids` on the agent
    "add_agent",  # start or reconnect this agent, or any
]


class Remedy(Wire):
    """A change that would start the waiting trial, as data and as text."""

    verb: RemedyVerb
    target: list[int | str] = []  # the experiments that it changes by number, or an agent by name
    values: dict[str, int | str | list[int]] = {}  # arguments of the verb, by name
    text: str  # the remedy in words

    @property
    def id(self) -> str:
        """The remedy's id in requests of buttons: the verb, its targets and its values.

        >>> Remedy(verb="set", target=[7], values={"priority": 3}, text="let it go first").id
        'set 7 priority=3'
        """
        values = (f"{name}={value}" for name, value in self.values.items())
        return " ".join([self.verb, *map(str, self.target), *values])


class RemedyButton(TypedDict):
    """A remedy as pages show it.

    Args:
        id: The command that its button sends.
        command: The command to type; "" if there is none.
        button: The label of its button; "" if there is none.
    """

    id: str
    sentence: str
    command: str
    button: str


class Reason(Wire):
    """Why a trial does not run."""

    trial_id: int
    # What kind of reason it is.
    cause: Literal[
        "slots",  # too few are free
        "turn",  # others are ahead of it
        "max_slots",  # the experiment holds as many slots as it may
        "occupied",  # processes of others use the devices
        "lost",  # devices do not work until they are reset
        "disabled",  # a user has disabled slots
        "no_agent",  # no agent is connected
        "agent_gone",  # the agents that could run it are not connected
        "cut",  # the agents that could run it cannot reach each other
        "impossible",  # the pool cannot run it, whatever ends
        "starting",
        "room",  # a disk is full
        "resting",  # the trial waits until the search promotes it
        "paused",
        "leaving",
        "over",
        "running",
        "hangs",  # its ranks make no progress: see HangReport
    ]
    sentence: str  # the reason as text
    pool: str = ""  # the pool it waits in
    slots: int = 0  # number of slots it needs
    free: int = 0  # number of free slots of the pool that it may have
    total: int = 0  # number of slots of the pool that trials may get
    holders: list[HolderView] = []  # what holds the other slots, preemptible holders first
    # Processes of others on devices that it could use otherwise.
    processes: list[DeviceProcess] = []
    # Number of trials ahead of it in the queue; None if it is not queued.
    position: int | None = None
    ahead: list[int] = []  # the experiments ahead of it for whose slots it waits
    # What would start it (end it, if it is leaving), the least intrusive first.
    remedies: list[Remedy] = []
    expected: Estimate | None = None  # when it starts, if no user changes anything
    why_unknown: str = ""  # why there is no estimate


class RunEntry(Wire):
    """A trial that holds slots, or waits for them."""

    trial_id: int
    experiment_id: int
    experiment_name: str
    allocation_id: str
    agent_ids: list[str] = []  # of its ranks, each once; [] while it waits
    pool: str
    slots: int
    priority: int
    queued_at: float


class QueueEntry(RunEntry):
    """A trial that waits for slots."""

    weight: float
    position: int  # number of trials ahead of it in its pool
    reason: Reason


class JobEntry(Wire):
    """An experiment that has not ended, with its slots and its place in the queue."""

    experiment_id: int
    name: str
    state: State
    pool: str
    priority: int
    weight: float
    max_slots: int | None = None
    created_at: float
    slots_held: int
    slots_wanted: int  # slots held and waited for
    num_running: int
    num_waiting: int
    jobs_ahead: int | None = None  # waiting jobs that start first; None under fair share
    notebook: str | None = None


class ClusterView(Wire):
    """All pools and their queues; of a long queue, only its front."""

    pools: list[PoolStatus]
    holding: list[RunEntry] = []  # the trials that hold slots, or run without any
    queue: list[QueueEntry]  # in order, pool by pool
    num_waiting: int  # number of waiting trials, also of those that `queue` leaves out
    disks: list[DiskStatus] = []  # disks that are full, or will be soon
    at: float

    @property
    def runs(self) -> list[RunEntry]:
        """The trials that hold slots, and those that wait for them."""
        return [*self.holding, *self.queue]

    def reasons_of(self, experiment_id: int) -> dict[int, Reason]:
        """Return why trials of an experiment wait, by trial, the next to start first."""
        own = [entry for entry in self.queue if entry.experiment_id == experiment_id]
        own.sort(key=lambda entry: entry.position)
        return {entry.trial_id: entry.reason for entry in own}


def command_lines(remedy: Remedy, reader: Reader) -> list[str]:
    """Return the command lines that carry out a remedy, in the syntax of `reader`.

    Empty if no command does.

    >>> from det_jupyter.contract.values.reader import NOTEBOOK, SHELL
    >>> remedy = Remedy(verb="pause", target=[3, 4], text="pause experiments 3 and 4")
    >>> command_lines(remedy, NOTEBOOK)
    ['%det_experiment pause 3', '%det_experiment pause 4']
    >>> command_lines(Remedy(verb="end_processes", values={"pids": [72]}, text="end it"), SHELL)
    ['kill 72']
    >>> values = {"pids": [72], "host": "a computer elsewhere"}
    >>> command_lines(Remedy(verb="end_processes", values=values, text="end it"), SHELL)
    []
    """
    values, names = remedy.values, [quote(str(name)) for name in remedy.target]
    det, experiment = reader.det, reader.experiment
    match remedy.verb:
        case "pause" | "activate" | "kill":
            return [f"{experiment} {remedy.verb} {name}" for name in names]
        case "pause_at_once":
            return [f"{experiment} pause {name} --at-once" for name in names]
        case "set":
            options = " ".join(
                f"--{key.replace('_', '-')} {quote(str(value))}" for key, value in values.items()
            )
            return [f"{experiment} set {name} {options}" for name in names]
        case "move":
            return [f"{det} job move {name} --ahead-of {values['ahead_of']}" for name in names]
        case "kill_and_continue":
            return [f"{experiment} {verb} {name}" for name in names
                    for verb in ("kill", "continue")]  # fmt: skip
        case "kill_and_submit":
            kills = [f"{experiment} kill {name}" for name in names]
            return [*kills, f"resources: {{slots_per_trial: {values['slots_per_trial']}}}"]
        case "enable_slots":
            return [f"{det} slot enable {name} {_listed(values['slot_ids'])}" for name in names]
        case "reset_devices":
            indexes, host = values["indexes"], str(values.get("host", ""))
            assert isinstance(indexes, list)
            if not ProcessIdentity(1, "", host).is_here:
                return []
            numbers = ",".join(map(str, indexes))
            return [f"{reader.shell}sudo nvidia-smi --gpu-reset -i {numbers}"]
        case "end_processes":
            pids, host = values["pids"], str(values.get("host", ""))
            assert isinstance(pids, list)
            if not all(ProcessIdentity(pid, "", host).is_here for pid in pids):
                return []  # a pid here would be another process
            return [f"{reader.shell}kill {_listed(pids)}"]
        case "wait" | "ask_for_devices" | "add_agent":
            return []


def _listed(values: object) -> str:
    assert isinstance(values, list)
    return " ".join(map(str, values))
