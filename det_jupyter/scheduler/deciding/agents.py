"""The agents of a pool, the gangs on them, and the slots that groups hold.

Shelves index the agents by:

    free        slots that no gang holds
    idle        slots of agents that are wholly idle
    aux         places for gangs without slots
    reach(p)    slots that are free without the gangs that are leaving and without all gangs
                of a priority number above p
    clear(p)    free slots of agents that would be wholly idle without those gangs

`reach(NO_PRIORITY)` and `clear(NO_PRIORITY)` leave out only the gangs that are leaving anyway.
A shelf is made when it is first asked for, and is kept up to date from then on.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from det_jupyter.scheduler.deciding.shelves import Place, Section, Shelf
from det_jupyter.scheduler.deciding.undo import UndoLog
from det_jupyter.scheduler.model import AgentSlots, Group, PoolRules, Running

NO_PRIORITY = 1000  # no gang has a greater priority number
ANY_PRIORITY = -1  # every gang has a greater priority number


@dataclass(slots=True)
class Seats:
    """One agent as it is now.

    Args:
        agent: What it offers; an empty offer while it is away.
        is_here: Whether it belongs to the pool.
        gangs: The slots that each gang holds here; gangs without slots hold ().
        free: Slots that no gang holds, ascending.
        coming: Number of slots that are free once the leaving gangs have left.
        staying: Number of slots that the other gangs hold, by priority.
        num_aux: Gangs without slots.
    """

    agent: AgentSlots
    is_here: bool = False
    gangs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    free: tuple[int, ...] = ()
    coming: int = 0
    staying: dict[int, int] = field(default_factory=dict)
    num_aux: int = 0

    @property
    def section(self) -> Section:
        """Its section on every shelf."""
        return (self.agent.kind, len(self.agent.slots))

    @property
    def is_idle(self) -> bool:
        """Whether no gang holds any of its slots, those not given out included."""
        return len(self.gangs) == self.num_aux

    def reach(self, priority: int) -> int:
        """Return the slots that are free without all gangs above this priority number."""
        gone = sum(slots for number, slots in self.staying.items() if number > priority)
        return self.coming + gone


class Ledger:
    """All agents, all gangs that hold slots, and the slots that each group holds."""

    def __init__(self, rules: PoolRules, groups: Mapping[int, Group], undo_log: UndoLog) -> None:
        self.agents: dict[str, AgentSlots] = {}
        self.running: dict[str, Running] = {}
        self.newest: dict[
            Hashable, list[tuple[float, str]]
        ] = {}  # -since, of what stays, by class
        self.ranking: list[tuple[float, float, int]] = []  # groups that hold, most first
        self._rules = rules
        self._groups = groups
        self._undo_log = undo_log
        self._seats: dict[str, Seats] = {}
        self._held: dict[int, int] = {}
        self.staying_by_group: dict[int, int] = {}  # without what leaves
        self._of_group: dict[int, dict[str, None]] = {}
        self._rank_of: dict[int, tuple[float, float, int]] = {}
        self.free_shelf = self._make_shelf(lambda seats: len(seats.free))
        self.idle_shelf = self._make_shelf(
            lambda seats: len(seats.free) if seats.is_idle and seats.free else None
        )
        self.aux_shelf = self._make_shelf(self._aux_places)
        self._reach: dict[int, Shelf] = {}
        self._clear: dict[int, Shelf] = {}

    def _make_shelf(self, level: Callable[[Seats], int | None]) -> Shelf:
        def place(agent_id: str) -> Place | None:
            seats = self._seats.get(agent_id)
            if seats is None or not seats.is_here:
                return None
            found = level(seats)
            return None if found is None else (seats.section, found)

        shelf = Shelf(place)
        for agent_id in self.agents:
            shelf.touch(agent_id)
        return shelf

    def _aux_places(self, seats: Seats) -> int | None:
        left = self._rules.max_aux_per_agent - seats.num_aux
        return left if seats.agent.is_open and left > 0 else None

    def reach_shelf(self, priority: int) -> Shelf:
        """Return agents by their free slots without all gangs above this priority number."""
        if priority not in self._reach:
            self._reach[priority] = self._make_shelf(lambda seats: seats.reach(priority))
        return self._reach[priority]

    def clear_shelf(self, priority: int) -> Shelf:
        """Return agents that are idle without all gangs above this priority number."""

        def level(seats: Seats) -> int | None:
            is_clear = seats.agent.slots and all(n > priority for n in seats.staying)
            return len(seats.free) if is_clear else None

        if priority not in self._clear:
            self._clear[priority] = self._make_shelf(level)
        return self._clear[priority]

    def set_agent(self, agent: AgentSlots) -> None:
        """Add an agent, or update what it offers."""
        self.agents[agent.id] = agent
        seats = self._seats.setdefault(agent.id, Seats(agent))
        seats.agent, seats.is_here = agent, True
        self._recount(agent.id)

    def remove_agent(self, agent_id: str) -> None:
        """Remove an agent; gangs on it hold their slots until they are dropped."""
        del self.agents[agent_id]
        seats = self._seats[agent_id]
        seats.agent, seats.is_here = AgentSlots(id=agent_id), False
        self._recount(agent_id)

    def seats(self, agent_id: str) -> Seats:
        """Return an agent as it is now."""
        return self._seats[agent_id]

    def gangs_on(self, agent_id: str) -> list[str]:
        """Return the gangs on an agent, whether it belongs to the pool now or not."""
        return [*self._seats[agent_id].gangs] if agent_id in self._seats else []

    def _recount(self, agent_id: str) -> None:
        seats = self._seats[agent_id]
        usable = set(seats.agent.slots)
        seats.num_aux = 0
        seats.staying = {}
        num_leaving = 0
        held: set[int] = set()
        for request_id, slots in seats.gangs.items():
            running = self.running[request_id]
            held.update(slots)
            back = len(usable.intersection(slots))
            if not running.request.slots:
                seats.num_aux += 1
            elif running.is_leaving:
                num_leaving += back
            else:
                priority = self._groups[running.request.group].priority
                seats.staying[priority] = seats.staying.get(priority, 0) + back
        seats.free = tuple(sorted(usable - held))
        seats.coming = len(seats.free) + num_leaving
        if not seats.is_here and not seats.gangs:
            del self._seats[agent_id]
        self._touch(agent_id)

    def _touch(self, agent_id: str) -> None:
        shelves = (self.free_shelf, self.idle_shelf, self.aux_shelf)
        for shelf in (*shelves, *self._reach.values(), *self._clear.values()):
            shelf.touch(agent_id)

    def hold(self, running: Running) -> None:
        """Give a gang its slots."""
        request = running.request
        self.running[request.id] = running
        self._of_group.setdefault(request.group, {})[request.id] = None
        self._account(running, 1)
        for part in running.parts:
            seats = self._seats.setdefault(part.agent_id, Seats(AgentSlots(id=part.agent_id)))
            seats.gangs[request.id] = part.slot_ids
            self._recount(part.agent_id)
        self._undo_log.note(partial(self.drop, request.id))

    def leave(self, request_id: str) -> dict[str, int]:
        """Note that a gang was asked to leave; return the slots that it gives back per agent."""
        running = self.running[request_id]
        agents = {part.agent_id for part in running.parts}
        before = {agent_id: self._seats[agent_id].coming for agent_id in agents}
        self._account(running, -1)
        self.running[request_id] = running = replace(running, is_leaving=True)
        self._account(running, 1)
        for part in running.parts:
            self._recount(part.agent_id)
        self._undo_log.note(partial(self._stay, request_id))
        return {agent_id: self._seats[agent_id].coming - num for agent_id, num in before.items()}

    def _stay(self, request_id: str) -> None:
        """Undo `leave`."""
        running = replace(self.running[request_id], is_leaving=False)
        self.drop(request_id)
        self.hold(running)

    def drop(self, request_id: str) -> None:
        """Take a gang's slots back."""
        running = self.running.pop(request_id)
        group = running.request.group
        del self._of_group[group][request_id]
        if not self._of_group[group]:
            del self._of_group[group]
        self._account(running, -1)
        for part in running.parts:
            del self._seats[part.agent_id].gangs[request_id]
            self._recount(part.agent_id)
        self._undo_log.note(partial(self.hold, running))

    def stayers(self, agent_id: str, priority: int) -> list[tuple[Running, tuple[int, ...]]]:
        """Return gangs that stay here and have a greater priority number, with their slots."""
        here = sorted(self._seats[agent_id].gangs.items())
        found = [(self.running[request_id], slots) for request_id, slots in here]
        return [
            (running, slots)
            for running, slots in found
            if slots
            and not running.is_leaving
            and self._groups[running.request.group].priority > priority
        ]

    def _account(self, running: Running, sign: int) -> None:
        """Add a gang's slots to those that its group holds, or subtract them."""
        request = running.request
        if not request.slots:
            return
        group = request.group
        _add(self._held, group, sign * request.slots)
        if not running.is_leaving:
            _add(self.staying_by_group, group, sign * request.slots)
            self._list(running, sign)
            self.rank(group)

    def _list(self, running: Running, sign: int) -> None:
        ids = self.newest.setdefault(self.class_of(running.request.group), [])
        entry = (-running.since, running.request.id)
        if sign > 0:
            insort(ids, entry)
        else:
            del ids[bisect_left(ids, entry)]
            if not ids:
                del self.newest[self.class_of(running.request.group)]

    def class_of(self, group: int) -> Hashable:
        """Return what the gangs of a group are listed by in `newest`."""
        return group if self._rules.policy == "fair_share" else self._groups[group].priority

    def held(self, group: int) -> int:
        """Return the slots that a group holds, those of gangs that leave included."""
        return self._held.get(group, 0)

    def of_group(self, group: int) -> list[Running]:
        """Return the gangs of a group that hold slots."""
        return [self.running[request_id] for request_id in self._of_group.get(group, ())]

    def rank(self, group: int) -> None:
        """Put a group where it belongs among those that hold slots: most per weight first."""
        old = self._rank_of.pop(group, None)
        if old is not None:
            del self.ranking[bisect_left(self.ranking, old)]
        if group in self.staying_by_group:
            facts = self._groups[group]
            new = (-self.staying_by_group[group] / facts.weight, facts.position, group)
            insort(self.ranking, new)
            self._rank_of[group] = new

    def forget_classes(self, group: int) -> list[Running]:
        """Take the gangs of a group out of `newest`, before the group changes; return them."""
        listed = [r for r in self.of_group(group) if r.request.slots and not r.is_leaving]
        for running in listed:
            self._list(running, -1)
        return listed

    def list_again(self, group: int, listed: list[Running]) -> None:
        """Put them back under what the group is now."""
        for running in listed:
            self._list(running, 1)
        self.rank(group)
        for agent_id in {part.agent_id for r in self.of_group(group) for part in r.parts}:
            self._recount(agent_id)


def _add(counts: dict[int, int], key: int, amount: int) -> None:
    counts[key] = counts.get(key, 0) + amount
    if not counts[key]:
        del counts[key]
