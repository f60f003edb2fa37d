"""The plan of a gang, the specs of its ranks, and messages to and from a fork server.

The master makes a GangPlan. The agent adds what all ranks share (GangSpec) and each rank's place.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages.rank_orders import Order
from det_jupyter.contract.messages.requests import Capsule
from det_jupyter.contract.messages.views import SlotView
from det_jupyter.contract.messages.wire import Kept, Wire
from det_jupyter.contract.values.entrypoints import Command, Entrypoint, Program, parse_entrypoint
from det_jupyter.contract.values.lengths import Length
from det_jupyter.contract.values.measures import MAX_SAMPLING_INTERVAL_S, MIN_SAMPLING_INTERVAL_S


class CheckpointRef(Kept):
    """The checkpoint that a run starts from."""

    uuid: str
    path: str
    steps_completed: int


# Seconds between two samples of an agent's machine.
SamplingInterval = Annotated[
    float, Field(ge=MIN_SAMPLING_INTERVAL_S, le=MAX_SAMPLING_INTERVAL_S, allow_inf_nan=False)
]


class GangPlan(Wire):
    """Everything that an agent needs to start a gang. Idempotent by `allocation_id`."""

    allocation_id: str
    experiment_id: int
    trial_id: int
    run: int
    python: str
    cwd: str
    slots: list[SlotView]  # rank i gets slots[i]; one that is no slot of an agent has id -1
    agent_ids: list[str] = []  # rank i is on agent_ids[i]; the chief's agent carries all of them
    config: dict[str, Any]  # the effective configuration
    hparams: dict[str, Any]
    seed: int
    capsule: Capsule
    checkpoint: CheckpointRef | None = None
    warm_start: CheckpointRef | None = None  # another trial's: load its weights, begin at step 0
    best_metric: float | None = None  # best validation of the experiment so far
    target: Length  # the length to train to, counted from the trial's beginning
    # Whether the run ends there; else it waits for a farther target or for `preempt`.
    target_is_last: bool = True
    sampling_interval_s: SamplingInterval | None = 1.0  # None: no system samples
    orders: list[Order] = []  # changes of earlier runs, to be repeated, and new ones
    bucket: str = ""  # location of checkpoints that agents upload to a bucket; "": they do not

    @property
    def task_id(self) -> str:
        """The trial's id among all that the master schedules: `allocation_id` without the run."""
        return self.allocation_id.rpartition(".")[0] or self.allocation_id

    @property
    def homes(self) -> list[str]:
        """The agent of each rank, by rank; "" if the plan does not name agents."""
        return self.agent_ids or [""] * len(self.slots)

    def ranks_on(self, agents: Container[str]) -> list[int]:
        """Return the ranks on these agents; all ranks if the plan does not name agents."""
        return [rank for rank, home in enumerate(self.homes) if home in agents or not home]

    def slots_beside(self, rank: int) -> list[SlotView]:
        """Return the slots of all ranks on this rank's agent."""
        homes = self.homes
        return [slot for slot, home in zip(self.slots, homes, strict=True) if home == homes[rank]]

    @property
    def has_context(self) -> bool:
        """Whether the ranks work in a copy of a context directory."""
        return self.capsule.context is not None

    def workplace(self, folder: RunDir) -> Path:
        """Return the working directory of the ranks: the copy of the context, or the notebook's.

        Args:
            folder: The folder of the run.
        """
        return folder.work if self.has_context else Path(self.cwd)

    @property
    def entrypoint(self) -> Entrypoint:
        """The parsed entrypoint of the configuration, or of the capsule."""
        return parse_entrypoint(self.config.get("entrypoint") or self.capsule.entrypoint)

    @property
    def starting_point(self) -> CheckpointRef | None:
        """The checkpoint that a script begins with: the trial's own, else `warm_start`."""
        return self.checkpoint or self.warm_start

    @property
    def steps_completed(self) -> int:
        """Steps that the trial has completed before this run."""
        return self.checkpoint.steps_completed if self.checkpoint else 0

    @property
    def is_program(self) -> bool:
        """Whether the ranks are programs, whose exit codes decide how the run ended."""
        return isinstance(self.entrypoint, Program | Command)

    def process_ranks(self) -> list[int]:
        """Return the ranks that the agent starts a process for.

        These are all ranks, unless the entrypoint is started once per computer: then they are the
        first rank of each computer, whose process starts the others or does their work.
        """
        ranks = list(range(len(self.slots)))
        if self.entrypoint.per == "slot":
            return ranks
        homes = self.homes
        return [rank for rank in ranks if homes.index(homes[rank]) == rank]


class RankPlace(Wire):
    """A rank's place in its gang, in torchrun's terms."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    group_rank: int = 0
    group_world_size: int = 1
    master_addr: str
    master_port: int  # a free port, for programs such as torchrun; ranks do not use it
    lifeline_fd: int | None = None  # read end of a pipe that closes when the agent exits
    num_threads: int = 1  # the rank's share of the computer's cores


class GangNetwork(Wire):
    """How a gang's ranks on several computers reach each other."""

    addresses: list[str]  # of the computers, by group rank
    interface: str  # of this computer, for gloo and NCCL


class GangSpec(Wire):
    """The part of the specs that all ranks share. Has a secret: never written to a named file."""

    plan: GangPlan
    run_dir: str
    data_dir: str  # the data folder, for blobs and checkpoints
    socket_dir: str  # short 0700 folder for IPC sockets (their paths are limited to ~100 bytes)
    # File in a 0700 folder, over which the ranks of this start find each other. If they are on
    # several computers, the file with `-port` at the end of its name has the loopback port of a
    # TCPStore instead.
    store: str
    network: GangNetwork | None = None  # None: all ranks are on this computer
    # Hex digits with which the ranks sign what they send to each other.
    secret: str = Field(repr=False)
    # Values of the variables that the configuration only names; None: they are in a blob.
    environment: dict[str, str] | None = Field(default=None, repr=False)


class RankSpec(GangSpec):
    """The input of one rank process: its gang's spec, and its place in the gang."""

    place: RankPlace


class ForkGang(Wire):
    """To the zygote: fork all ranks of one gang, in rank order, or none."""

    gang: GangSpec  # sent once, as a plan may be large
    places: list[RankPlace]
    until: float  # by CLOCK_MONOTONIC, which both processes share: no fork after it

    @classmethod
    def of(cls, specs: Sequence[RankSpec], *, until: float) -> ForkGang:
        """Return the request to fork the ranks with these specs, which are of one gang."""
        shared = {name: getattr(specs[0], name) for name in GangSpec.model_fields}
        return cls(gang=GangSpec(**shared), places=[spec.place for spec in specs], until=until)

    def specs(self) -> list[RankSpec]:
        """Return the spec of each rank."""
        return [RankSpec(**dict(self.gang), place=place) for place in self.places]


class ZygoteReady(Wire):
    """From the zygote, first: everything is imported."""

    kind: Literal["ready"] = "ready"
    protocol: int
    version: str
    warmup_s: float
    unsafe: str = ""  # why it cannot fork safely and will refuse to; "": it can
    # The version of CUDA that torch was built for; None: for none (CPUs, ROCm).
    torch_cuda: str | None = None


class ZygoteFailed(Wire):
    """The only message of a zygote whose interpreter cannot run ranks."""

    kind: Literal["failed"] = "failed"
    reason: str


class GangForked(Wire):
    """All ranks were forked; `pids` in rank order."""

    kind: Literal["forked"] = "forked"
    allocation_id: str
    pids: list[int]


class ForkRefused(Wire):
    """No rank was forked, because of `reason`."""

    kind: Literal["refused"] = "refused"
    allocation_id: str
    reason: str


class RankExited(Wire):
    """A rank has exited, and its process group was killed; a negative code is minus the signal."""

    kind: Literal["exited"] = "exited"
    pid: int
    exit_code: int


ZygoteReport = Annotated[
    ZygoteReady | ZygoteFailed | GangForked | ForkRefused | RankExited,
    Field(discriminator="kind"),
]
