"""What ranks are started with, and messages between agent and fork server (JSON lines)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from det_jupyter.contract.messages.plan import GangPlan
from det_jupyter.contract.messages.states import Wire


class RankPlace(Wire):
    """A rank's place in its gang, in torchrun's words."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    group_rank: int = 0
    group_world_size: int = 1
    master_addr: str
    master_port: int  # was free; for programs that want to meet there, the ranks do not
    lifeline_fd: int | None = None  # read end of a pipe that closes when the agent dies
    num_threads: int = 1  # the rank's share of the computer's cores


class GangSpec(Wire):
    """What all ranks of one start of a gang share. Never written to a named file."""

    plan: GangPlan
    run_dir: str
    data_dir: str  # the data folder, for blobs and checkpoints
    socket_dir: str  # short 0700 folder for IPC sockets (their paths are limited to ~100 bytes)
    store: str  # file in a 0700 folder, over which the ranks of this start find each other
    # Hex digits that only the ranks of this start know: what they send is signed.
    secret: str = Field(repr=False)


class RankSpec(GangSpec):
    """What one rank process is started with: its gang, and its place in it."""

    place: RankPlace


# ---- agent <-> zygote (one JSON line each, over the socket that the zygote is started with) ----


class ForkGang(Wire):
    """Fork all ranks of one gang, in rank order, or none."""

    gang: GangSpec  # what the ranks share: a plan may be large, so it is sent once
    places: list[RankPlace]
    until: float  # on CLOCK_MONOTONIC, which both sides share: a later fork is not waited for

    @classmethod
    def of(cls, specs: Sequence[RankSpec], *, until: float) -> ForkGang:
        """Return the request to fork these ranks of one gang."""
        shared = {name: getattr(specs[0], name) for name in GangSpec.model_fields}
        return cls(gang=GangSpec(**shared), places=[spec.place for spec in specs], until=until)

    def specs(self) -> list[RankSpec]:
        """Return what each rank is started with."""
        return [RankSpec(**dict(self.gang), place=place) for place in self.places]


class ZygoteReady(Wire):
    """The first word: everything is imported."""

    kind: Literal["ready"] = "ready"
    protocol: int
    version: str
    warmup_s: float
    unsafe: str = ""  # why it will never fork, if so
    # The version of CUDA (or HIP) that torch was built for; None: a CPU build.
    torch_cuda: str | None = None


class ZygoteFailed(Wire):
    """The first and last word of a zygote whose interpreter cannot run ranks."""

    kind: Literal["failed"] = "failed"
    reason: str


class GangForked(Wire):
    """All ranks exist; `pids` in rank order."""

    kind: Literal["forked"] = "forked"
    allocation_id: str
    pids: list[int]


class ForkRefused(Wire):
    """No rank exists, because of `reason`."""

    kind: Literal["refused"] = "refused"
    allocation_id: str
    reason: str


class RankExited(Wire):
    """A rank has ended and took its process group along; a negative code is minus the signal."""

    kind: Literal["exited"] = "exited"
    pid: int
    exit_code: int


ZygoteReport = Annotated[
    ZygoteReady | ZygoteFailed | GangForked | ForkRefused | RankExited,
    Field(discriminator="kind"),
]
