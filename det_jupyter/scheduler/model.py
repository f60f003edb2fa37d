"""The scheduler's inputs and outputs: plain values.

Group       an experiment: how urgent it is, its share, its place in the queue
Request     a gang that needs slots, or holds them: one run of one trial
AgentSlots  an agent, and which of its slots may be given out
PoolRules   how a pool shares its slots
Decisions   placements, other sizes of elastic gangs, preemptions, and promises of agents

A pool at one moment, made of these, is in snapshot.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from det_jupyter.contract.values.sizes import Sizes


class Policy(StrEnum):
    """The order in which waiting requests are served."""

    PRIORITY = "priority"
    FAIR_SHARE = "fair_share"
    ROUND_ROBIN = "round_robin"


class Fitting(StrEnum):
    """Which agent gets a gang that fits on several: the fullest, or the emptiest."""

    BEST = "best"
    WORST = "worst"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRules:
    """How a pool shares its slots.

    Args:
        policy: Order of the queue.
        preemption: Whether gangs are asked to leave for others: less urgent ones for a more urgent
            one (priority), or those of groups with a greater share (fair share).
        fitting: Which agent gets a gang that fits on several.
        allow_heterogeneous_fits: Whether a gang may span agents with different numbers of slots.
        max_aux_per_agent: How many gangs without slots an agent carries.
        reservation_depth: Number of waiting gangs that have agents kept for them at a time (Maui's
            RESERVATIONDEPTH). Those behind may still preempt, if preemption is on.
    """

    policy: Policy = Policy.PRIORITY
    preemption: bool = False
    fitting: Fitting = Fitting.BEST
    allow_heterogeneous_fits: bool = False
    max_aux_per_agent: int = 100
    reservation_depth: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """An experiment.

    Args:
        id: Its number.
        priority: 1 to 99, lower is more urgent.
        weight: Its weight in fair share, relative to the other groups; above 0.
        max_slots: The most slots that its gangs may hold together.
        position: Sorts the groups of one priority: the group's number, unless it was moved.
    """

    id: int
    priority: int = 42
    weight: float = 1.0
    max_slots: int | None = None
    position: float = 0.0


class Shape(NamedTuple):
    """The properties of a request that decide where it fits."""

    slots: int
    is_single_agent: bool
    blocked: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Request:
    """A gang that needs slots, or holds them.

    Args:
        id: Id of the allocation.
        group: Number of its group.
        slots: How many ranks; 0: one rank that needs no slot. While an elastic gang waits: the
            fewest that it may have.
        sizes: The fewest and the most slots of an elastic gang; None: their number is fixed.
        number: Number of its trial; within a group the lower one goes first.
        is_single_agent: Whether it must not span agents.
        blocked: Agents that it must not run on.
        promised: While it waits: agents where gangs were asked to leave for it.
    """

    id: str
    group: int
    slots: int
    sizes: Sizes | None = None
    number: int = 0
    is_single_agent: bool = False
    blocked: frozenset[str] = frozenset()
    promised: tuple[str, ...] = ()

    @cached_property
    def shape(self) -> Shape:
        """The properties that decide where it fits; requests of one shape fit equally."""
        return Shape(self.slots, self.is_single_agent and self.slots > 1, self.blocked)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSlots:
    """An agent.

    Args:
        id: Its name.
        kind: Kind of its devices; a gang never mixes kinds.
        slots: Ids of the slots that may be given out, whether they are held now or not. Slots that
            are disabled, draining or used by other processes are not among them; gangs on those
            slots stay.
        is_open: Whether gangs without slots may start here.
        cut_from: Agents that it cannot reach: no gang is on both.
        freed_at: When slots became free for the last time, UTC seconds; others: long ago.
    """

    id: str
    kind: str = "cpu"
    slots: tuple[int, ...] = ()
    is_open: bool = True
    cut_from: frozenset[str] = frozenset()
    freed_at: Mapping[int, float] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class AgentPart:
    """The slots of one agent that a gang gets; none for a gang without slots."""

    agent_id: str
    slot_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """This gang gets these slots, in rank order.

    Backfill uses slots that a more urgent gang waits for.
    """

    request_id: str
    parts: tuple[AgentPart, ...]
    is_backfill: bool = False


@dataclass(frozen=True, slots=True)
class Resize:
    """This elastic gang saves its state and goes on at once on these slots, in rank order.

    `for_request_id` is the request that needs the slots which it gives back; "": it grows.
    """

    request_id: str
    parts: tuple[AgentPart, ...]
    for_request_id: str = ""


@dataclass(frozen=True, slots=True)
class Preemption:
    """This gang is asked to save its state and leave, because another gang needs its slots."""

    request_id: str
    for_request_id: str


@dataclass(frozen=True, slots=True)
class Promise:
    """These agents are promised to this waiting request from now on; (): the promise ended."""

    request_id: str
    agents: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A gang that holds slots.

    Args:
        request: Its request.
        parts: Its slots.
        since: When it got them, UTC seconds.
        is_leaving: Whether it was asked to leave, or allowed to.
        is_backfill: Whether it uses slots that a more urgent gang waits for.
        becomes: While it is resized: the slots of its next run, which are held for it.
        trains_since: When it did its first step; None: not yet.
    """

    request: Request
    parts: tuple[AgentPart, ...]
    since: float
    is_leaving: bool = False
    is_backfill: bool = False
    becomes: tuple[AgentPart, ...] = ()
    trains_since: float | None = None

    @property
    def next_parts(self) -> tuple[AgentPart, ...]:
        """The slots that it keeps, as far as is decided."""
        return self.becomes or self.parts

    @property
    def agent_ids(self) -> list[str]:
        """The agents where it holds slots, or will."""
        names = [part.agent_id for part in self.parts]
        if self.becomes:
            names += (part.agent_id for part in self.becomes)
            names = [*dict.fromkeys(names)]
        return names

    def slots_on(self, agent_id: str) -> tuple[int, ...]:
        """Return the slots of an agent that it holds, or that are held for it."""
        held = _slots_on(self.parts, agent_id)
        if self.becomes:
            held = tuple(dict.fromkeys((*held, *_slots_on(self.becomes, agent_id))))
        return held

    def kept_on(self, agent_id: str) -> tuple[int, ...]:
        """Return the slots of an agent that it does not give back."""
        return () if self.is_leaving else _slots_on(self.next_parts, agent_id)

    @property
    def is_whole(self) -> bool:
        """Whether all of its slots are in this pool."""
        return size_of(self.parts) == self.request.slots

    @property
    def num_given(self) -> int:
        """Number of slots that it gives back while it is resized."""
        kept = {(part.agent_id, slot) for part in self.next_parts for slot in part.slot_ids}
        held = {(part.agent_id, slot) for part in self.parts for slot in part.slot_ids}
        return len(held - kept)

    def resized(self) -> Running:
        """Return the gang after it went on with its next slots."""
        request = replace(self.request, slots=size_of(self.next_parts))
        return replace(self, request=request, parts=self.next_parts, becomes=(), trains_since=None)

    @property
    def num_kept(self) -> int:
        """Number of slots that it has once it was resized, if it is."""
        return size_of(self.becomes) if self.becomes else self.request.slots

    @property
    def num_held(self) -> int:
        """Number of slots that count as its own: the present or the next, whichever is more."""
        slots = self.request.slots
        return max(slots, size_of(self.becomes)) if self.becomes else slots


def _slots_on(parts: tuple[AgentPart, ...], agent_id: str) -> tuple[int, ...]:
    for part in parts:
        if part.agent_id == agent_id:
            return part.slot_ids
    return ()


def size_of(parts: Iterable[AgentPart]) -> int:
    """Return the number of slots."""
    return sum(len(part.slot_ids) for part in parts)


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions about a snapshot.

    Args:
        starts: Gangs that start.
        resizes: Elastic gangs that get another number of slots.
        preemptions: Gangs that are asked to leave.
        promises: Promises that were made, and that ended.
        kept: Agents kept for requests that still wait; no effect beyond this decision.
        look_again_at: When elastic gangs may grow though nothing else happens, UTC seconds.
    """

    starts: tuple[Placement, ...] = ()
    resizes: tuple[Resize, ...] = ()
    preemptions: tuple[Preemption, ...] = ()
    promises: tuple[Promise, ...] = ()
    kept: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)
    look_again_at: float | None = field(default=None, compare=False)
