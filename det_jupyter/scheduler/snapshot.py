"""A pool at one moment: the values that decisions and reasons follow from, and its queue in order.

The order of the queue depends on the policy:

    priority     priority, position
    fair_share   share, position         share = (slots the group holds + slots of its requests
                                                  ahead of this one) / weight
    round_robin  turn, slots, position   turn = number of requests of its group ahead of it

Within a group the lower number goes first. So fair share puts a group's second request where it
belongs once the first has started, and the order does not change while requests start, unless one
starts ahead of another of its group (`overtakes`).

A group's position is its number, unless it was moved: then a number between two neighbours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import merge
from itertools import chain
from operator import attrgetter

from det_jupyter.scheduler.model import (
    AgentSlots,
    Decisions,
    Group,
    Placement,
    Policy,
    PoolRules,
    Request,
    Running,
    Shape,
    size_of,
)

_BY_NUMBER = attrgetter("number", "id")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A pool at one moment.

    Args:
        rules: The pool's rules.
        agents: Its agents, by id.
        groups: The groups of all requests, by number; there may be more.
        waiting: The requests that wait, by id.
        running: The gangs that hold slots, by the id of their request, also on agents that have
            left.
    """

    rules: PoolRules = field(default_factory=PoolRules)
    agents: Mapping[str, AgentSlots] = field(default_factory=dict)
    groups: Mapping[int, Group] = field(default_factory=dict)
    waiting: Mapping[str, Request] = field(default_factory=dict)
    running: Mapping[str, Running] = field(default_factory=dict)

    @cached_property
    def order(self) -> list[Request]:
        """The waiting requests in order; `max_slots` has no effect on the order."""
        if self.rules.policy is Policy.PRIORITY:
            return [*self.in_order({})]
        keyed = chain.from_iterable(self._with_keys(group_id, {}) for group_id in self._by_group)
        return [request for _, request in sorted(keyed)]

    def in_order(
        self, passed: Mapping[Shape, float], groups: Collection[int] | None = None
    ) -> Iterator[Request]:
        """Yield waiting requests in order, without sorting all of them.

        Args:
            passed: Shapes to leave out, each up to a priority number (ignored by other policies
                than priority). Requests with promises are not left out. The caller may add shapes
                meanwhile.
            groups: Only requests of these groups; None: of all groups.
        """
        ids = self._by_group if groups is None else groups
        if self.rules.policy is Policy.PRIORITY:
            by_place = attrgetter("priority", "position", "id")
            for group in sorted((self.groups[group_id] for group_id in ids), key=by_place):
                for request in self._by_group[group.id]:
                    if passed.get(request.shape, -1) < group.priority or request.promised:
                        yield request
            return
        for _, request in merge(*(self._with_keys(group_id, passed) for group_id in ids)):
            # Its shape may have been passed while it was the next one of its group.
            if request.shape not in passed or request.promised:
                yield request

    def _with_keys(
        self, group_id: int, passed: Container[Shape]
    ) -> Iterator[tuple[tuple[float | str, ...], Request]]:
        """Yield a group's requests in order, with keys to compare them with other groups'."""
        is_fair = self.rules.policy is Policy.FAIR_SHARE
        group, slots = self.groups[group_id], self.held(group_id)
        for turn, request in enumerate(self._by_group[group_id]):
            if request.shape not in passed or request.promised:
                first: tuple[float, ...] = (slots / group.weight,) if is_fair else (turn, slots)
                yield (*first, group.position, group_id, request.number, request.id), request
            slots += request.slots

    @property
    def promised(self) -> list[Request]:
        """The waiting requests that have promises, in order."""
        groups = {request.group for request in self.waiting.values() if request.promised}
        return [request for request in self.in_order({}, groups) if request.promised]

    @cached_property
    def _by_group(self) -> dict[int, list[Request]]:
        groups: dict[int, list[Request]] = {}
        for request in self.waiting.values():
            groups.setdefault(request.group, []).append(request)
        for mine in groups.values():
            mine.sort(key=_BY_NUMBER)
        return groups

    @cached_property
    def _places(self) -> dict[str, int]:
        return {request.id: place for place, request in enumerate(self.order)}

    def position(self, request_id: str) -> int:
        """Return the number of requests ahead of a waiting one."""
        return self._places[request_id]

    def share_with(self, request: Request) -> float:
        """Return the share of its group once the request, and those ahead in it, have started."""
        mine = self._by_group[request.group]
        slots = request.slots + sum(
            other.slots for other in mine if _BY_NUMBER(other) < _BY_NUMBER(request)
        )
        return (self.held(request.group) + slots) / self.groups[request.group].weight

    def overtakes(self, starts: Iterable[Placement]) -> bool:
        """Return whether waiting requests start ahead of others of their groups."""
        names = {start.request_id for start in starts}
        num_by_group = Counter(self.waiting[name].group for name in names)
        return any(
            one.id not in names
            for group, num in num_by_group.items()
            for one in self._by_group[group][:num]
        )

    @cached_property
    def _held(self) -> dict[int, int]:
        held: dict[int, int] = {}
        for gang in self.running.values():
            held[gang.request.group] = held.get(gang.request.group, 0) + gang.num_held
        return held

    def held(self, group: int) -> int:
        """Return the number of slots that a group holds, including those of leaving gangs."""
        return self._held.get(group, 0)

    def of_group(self, group: int) -> list[str]:
        """Return the ids of all requests of a group, running ones first."""
        held = [gang.request.id for gang in self.running.values() if gang.request.group == group]
        return held + [request.id for request in self._by_group.get(group, ())]

    def without(self, *request_ids: str) -> Snapshot:
        """Return a snapshot without these requests, whether they wait or hold slots."""
        gone = set(request_ids)
        return replace(
            self,
            waiting={name: one for name, one in self.waiting.items() if name not in gone},
            running={name: one for name, one in self.running.items() if name not in gone},
        )

    def with_resized(self, request_ids: Iterable[str]) -> Snapshot:
        """Return the snapshot after these gangs went on with their next slots."""
        done = {name: self.running[name].resized() for name in request_ids}
        return replace(self, running={**self.running, **done}) if done else self

    def after(self, decisions: Decisions, now: float) -> Snapshot:
        """Return the snapshot after decisions; gangs that were asked to leave remain in it."""
        waiting, running = dict(self.waiting), dict(self.running)
        for start in decisions.starts:
            request = waiting.pop(start.request_id)
            slots = size_of(start.parts)
            running[start.request_id] = Running(
                request=replace(request, promised=(), slots=slots),
                parts=start.parts,
                since=now,
                is_backfill=start.is_backfill,
            )
        for resize in decisions.resizes:
            gang = running[resize.request_id]
            running[resize.request_id] = replace(gang, becomes=resize.parts)
        for gone in decisions.preemptions:
            gang = running[gone.request_id]
            running[gone.request_id] = replace(gang, is_leaving=True, becomes=())
        for promise in decisions.promises:
            if promise.request_id in waiting:
                request = waiting[promise.request_id]
                waiting[request.id] = replace(request, promised=promise.agents)
        return replace(self, waiting=waiting, running=running)


def moved_beside(
    own: Group, anchor: Group, groups: Iterable[Group], *, is_ahead: bool, newest: int
) -> list[Group]:
    """Return the groups that change so that one comes right ahead of, or right behind, another.

    The group that moves takes the anchor's priority. Other groups change only if no position is
    left between two neighbours.

    Args:
        own: The group that moves.
        anchor: The group beside which it comes.
        groups: All groups, these two among them.
        is_ahead: Whether it comes ahead of the anchor.
        newest: The greatest number of any group so far; later groups come behind it.
    """
    others = sorted(
        (one for one in groups if one.priority == anchor.priority and one.id != own.id),
        key=attrgetter("position", "id"),
    )
    moved = replace(own, priority=anchor.priority)
    place = next(place for place, one in enumerate(others) if one.id == anchor.id)
    positions = [one.position for one in others]
    low, high = _gap(positions, place, is_ahead=is_ahead, newest=newest)
    middle = (low + high) / 2
    if low < middle < high:
        return [replace(moved, position=middle)]
    # The gap was halved too often: give all groups of this priority new, distant positions.
    positions = [newest + place / len(others) for place in range(len(others))]
    low, high = _gap(positions, place, is_ahead=is_ahead, newest=newest)
    spread = (replace(one, position=at) for one, at in zip(others, positions, strict=True))
    return [replace(moved, position=(low + high) / 2), *spread]


def _gap(
    positions: list[float], place: int, *, is_ahead: bool, newest: int
) -> tuple[float, float]:
    """Return the two positions between which the group moves, beside the group at `place`."""
    if is_ahead:
        return positions[place - 1] if place > 0 else positions[place] - 1.0, positions[place]
    is_last = place == len(positions) - 1
    return positions[place], newest + 1.0 if is_last else positions[place + 1]
