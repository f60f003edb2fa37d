"""Pools and facts for tests of reasons, and how each remedy is carried out there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo

from det_jupyter.contract.messages import Estimate, Reason, Remedy
from det_jupyter.contract.messages.resources import command_lines
from det_jupyter.contract.values.reader import NOTEBOOK
from det_jupyter.scheduler.model import (
    AgentPart,
    AgentSlots,
    Group,
    Policy,
    PoolRules,
    Request,
    Running,
)
from det_jupyter.scheduler.reasons import PoolSurvey, Title, Withheld, why_waiting
from det_jupyter.scheduler.snapshot import Snapshot
from tests.scheduler_pool import Pool

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
    left: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    others: Mapping[str, Pool] = field(default_factory=dict)
    searching: Collection[int] = ()  # experiments whose searches are not over
    returning: Collection[str] = ()  # of those that leave: who queues again
    own_user: str = ""
    pool_name: str = "default"
    now: float = NOON
    zone: tzinfo | None = UTC

    def trial_of(self, request_id: str) -> int:
        return int(request_id)

    def title_of(self, experiment_id: int) -> Title:
        return self.titles.get(experiment_id, Title(f"name{experiment_id}"))

    def end_of(self, request_id: str) -> Estimate | None:
        return self.ends.get(request_id)

    def leaves_by(self, request_id: str) -> float | None:
        return self.limits.get(request_id)

    def may_ask_again(self, experiment_id: int) -> bool:
        return experiment_id in self.searching

    def queues_again(self, request_id: str) -> bool:
        return request_id in self.returning

    def other_pools(self) -> Mapping[str, Snapshot]:
        return {name: pool.snapshot() for name, pool in self.others.items()}

    def withheld(self) -> Mapping[str, Withheld]:
        return self.away

    def gone(self) -> Sequence[AgentSlots]:
        return self.absent

    def left_at(self, agent_id: str) -> float | None:
        return self.left.get(agent_id)

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
    parts = tuple(AgentPart(name, tuple(slots)) for name, slots in where.items())
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
    """Carry out a remedy, step by step; return the id of the request from then on."""
    match remedy.verb:
        case "wait":
            _wait(remedy, pool, world, waiting)
        case "pause" | "kill":
            for group_id in remedy.target:
                assert group_id != waiting.group
                _remove_experiment(pool, int(group_id))
                settle(pool, world.now)
        case "set":
            assert remedy.target == [waiting.group]
            mine = pool.groups[waiting.group]
            if "priority" in remedy.values:
                mine = replace(mine, position=float(mine.id))
            pool.set_group(replace(mine, **remedy.values))  # type: ignore[arg-type]
        case "move":
            assert remedy.target == [waiting.group]
            _move(pool, waiting.group, number(remedy, "ahead_of"))
        case "kill_and_submit":
            return _submit_anew(remedy, pool, world, waiting)
        case "enable_slots" | "end_processes" | "ask_for_devices" | "reset_devices":
            _give_out(pool, world, remedy)
        case "add_agent":
            for absent in world.absent:
                if absent.id in remedy.target:
                    pool.set_agent(absent)
        case "kill_and_continue":
            pool.remove(waiting.id)
            pool.add(replace(waiting, blocked=frozenset()))
        case _:
            raise AssertionError(remedy.verb)
    return waiting.id


def number(remedy: Remedy, name: str) -> int:
    value = remedy.values[name]
    assert isinstance(value, int)
    return value


def numbers(remedy: Remedy, name: str) -> list[int]:
    value = remedy.values.get(name, [])
    assert isinstance(value, list)
    return value


def _wait(remedy: Remedy, pool: Pool, world: World, waiting: Request) -> None:
    """Let those end that it names; where it names a number, the smallest of them."""
    for trial in [*numbers(remedy, "left"), *numbers(remedy, "trials")]:
        if str(trial) in pool.running:
            pool.remove(str(trial))
            settle(pool, world.now)
    if "agent" in remedy.values:
        _end_some(pool, world, remedy, waiting)
    elif "trials" not in remedy.values:
        assert remedy.target != [waiting.group]
        _remove_experiment(pool, int(remedy.target[0]))


def _end_some(pool: Pool, world: World, remedy: Remedy, waiting: Request) -> None:
    agent_id = str(remedy.values["agent"])
    counts_slots = "num_slots" in remedy.values
    enough = number(remedy, "num_slots" if counts_slots else "num_trials")
    usable = set(pool.agents[agent_id].slots)
    given = {
        running.request.id: len(usable & {s for p in running.parts for s in p.slot_ids
                                          if p.agent_id == agent_id})
        for running in pool.on_agent(agent_id)
        if not running.is_leaving
        and remedy.target in ([], [running.request.group])
        and not _is_asked(pool, running, waiting)
    }  # fmt: skip
    for request_id in sorted(given, key=lambda name: (given[name], name)):
        if enough > 0 and given[request_id]:
            enough -= given[request_id] if counts_slots else 1
            pool.remove(request_id)
            settle(pool, world.now)


def _is_asked(pool: Pool, running: Running, waiting: Request) -> bool:
    """Whether the scheduler preempts this gang as soon as that makes room."""
    theirs, mine = pool.groups[running.request.group], pool.groups[waiting.group]
    has_order = pool.rules.policy is Policy.PRIORITY and pool.rules.preemption
    return has_order and theirs.priority > mine.priority


def _submit_anew(remedy: Remedy, pool: Pool, world: World, waiting: Request) -> str:
    """Kill the experiment and submit it again."""
    mine = pool.groups[waiting.group]
    _remove_experiment(pool, mine.id)
    settle(pool, world.now)
    new = max(pool.groups) + 1
    pool.set_group(replace(mine, id=new, position=float(new)))
    pool.add(Request(
        id="1000000", group=new, slots=number(remedy, "slots_per_trial"), number=1000000,
        is_single_agent=waiting.is_single_agent,
    ))  # fmt: skip
    return "1000000"


def _remove_experiment(pool: Pool, group_id: int) -> None:
    held = [gang.request.id for gang in pool.running.values() if gang.request.group == group_id]
    wanted = [request.id for request in pool.waiting() if request.group == group_id]
    for request_id in held + wanted:
        pool.remove(request_id)


def _move(pool: Pool, own: int, anchor_id: int) -> None:
    """Move a group to the anchor's priority, right ahead of the anchor."""
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
    agent_id = str(remedy.target[0])
    old, withheld = pool.agents[agent_id], world.away[agent_id]
    slot_ids = numbers(remedy, "slot_ids")
    if remedy.verb == "enable_slots":
        assert set(slot_ids) <= set(withheld.disabled)
        more = set(slot_ids) - {*withheld.occupied, *withheld.lost}
        pool.set_agent(replace(old, slots=tuple(sorted({*old.slots, *more})), is_open=True))
        return
    if remedy.verb == "reset_devices":
        assert set(slot_ids) <= set(withheld.lost)
        more = set(slot_ids) - {*withheld.occupied, *withheld.disabled}
        pool.set_agent(replace(old, slots=tuple(sorted({*old.slots, *more}))))
        return
    named = {p.pid for s in slot_ids for p in withheld.occupied[s]}
    freed = {slot for slot, users in withheld.occupied.items() if {p.pid for p in users} <= named}
    more = freed - {*withheld.disabled, *withheld.lost}
    pool.set_agent(replace(old, slots=tuple(sorted({*old.slots, *more}))))


def settle(pool: Pool, now: float) -> None:
    """Decide, and let preempted gangs queue again, until nothing is preempted."""
    for _ in range(4):
        asked = pool.decide(now).preemptions
        for gone in asked:
            request = pool.running[gone.request_id].request
            pool.remove(request.id)
            pool.add(request)
        if not asked:
            return


def reason(world: World, request_id: str = "9") -> Reason:
    """Return why a request waits once the pool has decided what it can."""
    pool = world.pool()
    for _ in range(3):
        pool.decide(world.now)
    return why(pool, request_id, world)


def why(pool: Pool, request_id: str, world: World) -> Reason:
    """Return why a request waits in a pool as it is."""
    return why_waiting(PoolSurvey(pool.snapshot(), world), request_id)


def offers(found: Reason) -> list[tuple[str, str]]:
    """Return the text of each remedy, and the lines to type."""
    return [(remedy.text, "\n".join(command_lines(remedy, NOTEBOOK))) for remedy in found.remedies]


def groups(*ids: int) -> list[Group]:
    return [Group(id=i, position=float(i)) for i in ids]
