"""Allocations, and the parts of their gangs: plain data that is stored as JSON."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import model_validator

from det_jupyter.contract.messages import (
    AllocationState,
    AllocationView,
    ChangeOrder,
    CheckpointRef,
    GangExited,
    HangReport,
    RankStall,
    Target,
    Wire,
)
from det_jupyter.contract.messages.leaving import RankProgress
from det_jupyter.contract.run.journal import LastStepSaved, RankFailure, RankStarted, RunEnded


class GangPart(Wire):
    """The ranks of a gang on the agents of one agent process.

    `agent_id` is the first of these agents in the order of ranks. It receives the commands, and
    reports the start and the end of the part.
    """

    agent_id: str
    is_remote: bool = False  # on another computer
    ranks: list[int]  # ascending
    is_started: bool = False
    note: str = ""  # a remark on how its ranks were started
    interface: str = ""  # network interface by which its ranks reach other computers
    exited: GangExited | None = None  # its end, when none of its ranks is left

    @property
    def has_failed(self) -> bool:
        """Whether it has exited because it failed, was killed or was lost."""
        end = self.exited
        if end is None:
            return False
        return end.killed or end.lost or bool(end.error) or any(end.exit_codes.values())


class LostRun(Wire):
    """A run that was lost before its first step, possibly because of its trial."""

    run: int
    at: float
    what: str  # a description of the loss, such as "agent box died"
    is_device: bool = False  # it was lost with a GPU, so the memory was not the cause


class Allocation(AllocationView):
    """One period in which a trial waits for slots and then holds them.

    `agent_id` is the agent of the chief, and carries the first part. `slots` are in the order of
    ranks; each rank of a trial without slots has a slot with id -1. `ranks` contains the processes
    of the parts that have started.
    """

    queued_at: float
    is_backfill: bool = False  # uses slots that a more urgent trial waits for
    promised: list[str] = []  # while it waits: agents where others are preempted for it
    excludes: list[str] = []  # agents that later runs of its trial must avoid
    is_hopeless: bool = False  # a log policy forbids another try
    starts_from: CheckpointRef | None = None
    parts: list[GangPart] = []  # in the order of ranks
    # Contents of its plan that have to be the same for all parts.
    planned_target: Target = None
    planned_is_last: bool | None = None  # None: not known, in allocations of earlier versions
    planned_best: float | None = None
    planned_orders: list[ChangeOrder] = []
    ranks_up: dict[int, RankStarted] = {}  # ranks that have journaled their start
    asked_at: float | None = None  # when it was asked to save its state and leave
    # While it is resized: the slots of the next run by agent, in rank order.
    becomes: dict[str, list[int]] = {}
    resized_with: str = ""  # uuid of the checkpoint of its trial's last change of size
    saved_on_request: str = ""  # uuid of the last checkpoint that is only of its leaving
    # While it leaves: where its ranks are, and how their code handles the request (RanksSeen).
    places: dict[int, RankProgress] = {}
    checked_at: float | None = None
    saving_since: float | None = None
    is_for_rest: bool = False  # progress is saved, so the run cannot fail any more
    run_end: RunEnded | None = None  # from the lowest rank that has written one
    run_end_rank: int = 0
    failures: list[RankFailure] = []
    # Ranks that their agents report as stalled; `hang` is set while all ranks are stalled.
    stalled: dict[int, RankStall] = {}
    stalled_since: float = 0.0
    # The step that the other ranks have saved when one was killed.
    last_step: LastStepSaved | None = None
    ended_for: HangReport | None = None  # the hang because of which its ranks were killed

    @model_validator(mode="after")
    def _fill_agent_ids(self) -> Allocation:
        # Allocations stored before gangs could span agents have only `agent_id`.
        if self.agent_id is not None and not self.agent_ids:
            self.agent_ids = [self.agent_id] * len(self.slots)
        # Allocations stored before there were parts.
        if self.agent_id is not None and not self.parts:
            ranks = list(range(len(self.slots)))
            part = GangPart(agent_id=self.agent_id, ranks=ranks, is_started=bool(self.ranks))
            self.parts = [part]
        return self

    @property
    def holds_slots(self) -> bool:
        """Whether slots are allocated to it."""
        return self.state not in (AllocationState.QUEUED, AllocationState.ENDED)

    @property
    def living_parts(self) -> list[GangPart]:
        """The parts that have not exited, according to the reports so far."""
        return [part for part in self.parts if part.exited is None]

    @property
    def has_failed_part(self) -> bool:
        """Whether a part has failed, was killed or was lost, so that all others are killed."""
        return any(part.has_failed for part in self.parts)

    @property
    def is_leaving(self) -> bool:
        """Whether its slots will be released: it was asked to leave, or its ranks are killed."""
        return self.state is AllocationState.STOPPING or self.has_failed_part

    def part_with(self, ranks: Collection[int]) -> GangPart | None:
        """Return the part that all of these ranks belong to, if there is one."""
        if len(self.parts) == 1:
            return self.parts[0]
        return next((part for part in self.parts if ranks and set(ranks) <= {*part.ranks}), None)
