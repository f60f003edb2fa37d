"""Pools and facts to ask for reasons, and what doing as a remedy says means there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo

from det_jupyter.scheduler.model import (
    AgentSlots,
    Group,
    Part,
    Policy,
    PoolRules,
    Request,
    Running,
)
from det_jupyter.scheduler.pool import Pool
from det_jupyter.scheduler.reasons import Title, Withheld
from det_jupyter.wire import Estimate, Remedy

NOON = 20_000 * 86_400.0 + 12 * 3600.0


@dataclass
class World:
    """Facts that are written down; all of it is in the pool, or can be put there.

    Requests are named `<trial>`: request "7" is of trial 7.
    """

    agents: Sequence[AgentSlots] = ()
    groups: Sequence[Group] = ()
    running: Sequence[Running] = ()
    queue: Sequence[Request] = ()
    rules: PoolRules = field(default_factory=PoolRules)
    titles: Mapping[int, Title] = field(default_factory=dict)
    ends: Mapping[str, Estimate] = field(default_factory=dict)
    away: Mapping[str, Withheld] = field(default_factory=dict)
    absent: Sequence[AgentSlots] = ()
    pool_name: str = "default"
    now: float = NOON
    zone: tzinfo | None = UTC

    def trial_of(self, request_id: str) -> int:
        return int(request_id)

    def title_of(self, experiment_id: int) -> Title:
        return self.titles.get(experiment_id, Title(f"name{experiment_id}"))

    def end_of(self, request_id: str) -> Estimate | None:
        return self.ends.get(request_id)

    def withheld(self) -> Mapping[str, Withheld]:
        return self.away

    def gone(self) -> Sequence[AgentSlots]:
        return self.absent

    def pool(self) -> Pool:
        """Return a pool with these facts, as it is before its next pass."""
        pool = Pool(self.rules)
        for agent in self.agents:
            pool.set_agent(agent)
        for group in self.groups:
            pool.set_group(group)
        for gang in self.running:
            pool.hold(gang)
        for request in self.queue:
            pool.add(request)
        return pool


def agent(name: str, slots: int, kind: str = "cuda") -> AgentSlots:
    return AgentSlots(id=name, kind=kind, slots=tuple(range(slots)))


def ask(trial: int, group: int, slots: int, **more: object) -> Request:
    return Request(id=str(trial), group=group, slots=slots, number=trial, **more)  # type: ignore[arg-type]


def gang(
    trial: int, group: int, where: Mapping[str, Sequence[int]], *, since: float = 7200.0,
    is_leaving: bool = False,
) -> Running:  # fmt: skip
    """`since`: so many seconds before noon."""
    parts = tuple(Part(name, tuple(slots)) for name, slots in where.items())
    return Running(
        request=ask(trial, group, sum(len(part.slot_ids) for part in parts)),
        parts=parts,
        since=NOON - since,
        is_leaving=is_leaving,
    )


def end(minutes: float, first: float, last: float | None) -> Estimate:
    return Estimate(
        at=NOON + 60 * minutes,
        earliest=NOON + 60 * first,
        latest=None if last is None else NOON + 60 * last,
        basis="by its progress",
    )


def apply(remedy: Remedy, pool: Pool, world: World, waiting: Request) -> str:
    """Do as a remedy says; return the id that the request has from then on."""
    match remedy.kind:
        case "wait" if remedy.trial_id is not None:
            pool.remove(str(remedy.trial_id))
        case "wait" if remedy.experiment_id is None or "left" in remedy.sentence:
            for running in [gang for gang in pool.running.values() if gang.is_leaving]:
                pool.remove(running.request.id)
        case "wait" | "pause":
            assert remedy.experiment_id is not None
            assert remedy.experiment_id != waiting.group
            _remove_experiment(pool, remedy.experiment_id)
        case "set_max_slots":
            pool.set_group(replace(pool.groups[waiting.group], max_slots=remedy.value))
        case "set_priority":
            assert remedy.value is not None
            mine = pool.groups[waiting.group]
            pool.set_group(replace(mine, priority=remedy.value, position=float(mine.id)))
        case "move_ahead":
            assert remedy.experiment_id is not None
            _move(pool, waiting.group, remedy.experiment_id)
        case "ask_slots":
            assert remedy.value is not None
            pool.remove(waiting.id)
            pool.add(replace(waiting, slots=remedy.value))
        case "enable_slots" | "free_device":
            assert remedy.agent_id is not None
            _give_out(pool, world, remedy)
        case "add_agent":
            for absent in world.absent:
                if remedy.agent_id in (None, absent.id):
                    pool.set_agent(absent)
        case _:
            raise AssertionError(remedy.kind)
    return waiting.id


def _remove_experiment(pool: Pool, group_id: int) -> None:
    held = [gang.request.id for gang in pool.running.values() if gang.request.group == group_id]
    wanted = [request.id for request in pool.waiting() if request.group == group_id]
    for request_id in held + wanted:
        pool.remove(request_id)


def _move(pool: Pool, own: int, anchor_id: int) -> None:
    """Adopt the anchor's priority, between it and whoever is ahead of it."""
    anchor = pool.groups[anchor_id]
    before = [
        group.position
        for group in pool.groups.values()
        if group.id != own
        and group.priority == anchor.priority
        and group.position < anchor.position
    ]
    position = (max(before) + anchor.position) / 2 if before else anchor.position - 1
    pool.set_group(replace(pool.groups[own], priority=anchor.priority, position=position))


def _give_out(pool: Pool, world: World, remedy: Remedy) -> None:
    assert remedy.agent_id is not None
    old = pool.agents[remedy.agent_id]
    withheld = world.away[remedy.agent_id]
    if remedy.kind == "enable_slots":
        assert set(remedy.slot_ids) <= set(withheld.disabled)
        more = set(remedy.slot_ids) - set(withheld.occupied)
        pool.set_agent(replace(old, slots=tuple(sorted({*old.slots, *more})), is_open=True))
        return
    named = {p.pid for s in remedy.slot_ids for p in withheld.occupied[s]}
    freed = {slot for slot, users in withheld.occupied.items() if {p.pid for p in users} <= named}
    more = freed - set(withheld.disabled)
    pool.set_agent(replace(old, slots=tuple(sorted({*old.slots, *more}))))


def starts(pool: Pool, request_id: str, now: float, *, is_preempting: bool = False) -> bool:
    """Whether the request starts in the next pass, or once those asked to leave have left."""
    started = {start.request_id for start in pool.decide(now).starts}
    if request_id in started or not is_preempting:
        return request_id in started
    for running in [gang for gang in pool.running.values() if gang.is_leaving]:
        pool.remove(running.request.id)
    return request_id in {start.request_id for start in pool.decide(now).starts}


__all__ = [
    "NOON", "Policy", "World", "agent", "apply", "ask", "end", "gang", "starts",
]  # fmt: skip
