"""The waiting requests, in order.

A key is a place in the order. It ends in group, number and id of the request, which make it
unique. The fields before these depend on the policy:

    priority     priority, position
    fair_share   share, position         share = (slots the group holds + slots of its requests
                                                  ahead of this one) / weight
    round_robin  turn, slots, position   turn = number of requests of its group ahead of it

So fair share puts a group's second request where it belongs once the first has started, and the
order does not change while requests start.

Requests of one shape fit on the same agents, so only the first of a shape has to be tried. Each
shape therefore has a list of heads: the first request of every group that may start one now. A
walk looks at the rest of a group only after its head.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NamedTuple

from det_jupyter.scheduler.deciding.undo import UndoLog
from det_jupyter.scheduler.model import Group, Policy, Request

Key = tuple[float | str, ...]
Entry = tuple[int, str]  # number and id: the order within a group


class Shape(NamedTuple):
    """The properties of a request that decide where it fits."""

    slots: int
    is_single_agent: bool
    blocked: frozenset[str]


def shape_of(request: Request) -> Shape:
    """Return the shape of a request."""
    return Shape(request.slots, request.is_single_agent and request.slots > 1, request.blocked)


class Queue:
    """The waiting requests."""

    def __init__(self, policy: Policy, groups: dict[int, Group], undo_log: UndoLog) -> None:
        self.requests: dict[str, Request] = {}
        self.promised: dict[str, Request] = {}  # requests that have promises
        self.heads: dict[Shape, list[Key]] = {}
        self._policy = policy
        self._groups = groups
        self._undo_log = undo_log
        self._held: dict[int, int] = {}
        self._lines: dict[int, dict[Shape, list[Entry]]] = {}
        self._head_of: dict[tuple[int, Shape], Key] = {}
        self._sorted: list[Key] = []  # all keys; policy priority only, where keys do not change
        self._fronts: list[Key] = []  # other policies: the first of every group, capped or not
        self._front_of: dict[int, Key] = {}
        self._listing: Iterator[str] | None = None  # the rest of the order, after `_ids`
        self._ids: list[str] = []
        self._ahead: dict[str, int] = {}

    def add(self, request: Request) -> None:
        """Add a request."""
        self.requests[request.id] = request
        if request.promised:
            self.promised[request.id] = request
        line = self._lines.setdefault(request.group, {})
        insort(line.setdefault(shape_of(request), []), (request.number, request.id))
        if self._policy is Policy.PRIORITY:
            insort(self._sorted, self.key(request))
        self._refresh(request.group)
        self._undo_log.note(partial(self.remove, request.id))

    def remove(self, request_id: str) -> None:
        """Remove a request."""
        request = self.requests.pop(request_id)
        self.promised.pop(request_id, None)
        line, shape = self._lines[request.group], shape_of(request)
        entries = line[shape]
        del entries[bisect_left(entries, (request.number, request.id))]
        if self._policy is Policy.PRIORITY:
            del self._sorted[bisect_left(self._sorted, self.key(request))]
        if not entries:
            del line[shape]
            self._set_head(request.group, shape, None)
        self._refresh(request.group)
        if not line:
            del self._lines[request.group]
        self._undo_log.note(partial(self.add, request))

    def promise(self, request_id: str, agents: tuple[str, ...]) -> None:
        """Set the agents that are promised to a request; (): none any longer."""
        self.promised.pop(request_id, None)
        before = self.requests[request_id]
        self._undo_log.note(partial(self.promise, request_id, before.promised))
        request = replace(before, promised=agents)
        self.requests[request_id] = request
        if agents:
            self.promised[request_id] = request

    def of_group(self, group: int) -> list[str]:
        """Return the ids of a group's requests."""
        return [name for line in self._lines.get(group, {}).values() for _, name in line]

    def set_held(self, group: int, slots: int) -> None:
        """Set the number of slots that a group holds."""
        self._undo_log.note(partial(self.set_held, group, self._held.get(group, 0)))
        if slots:
            self._held[group] = slots
        else:
            self._held.pop(group, None)
        self._refresh(group)

    def set_group(self, group: Group) -> None:
        """Add or update a group; its requests move together."""
        mine: list[Key] = []
        if self._policy is Policy.PRIORITY and self._lines.get(group.id):
            first, last = self._span(group.id)
            mine = self._sorted[first:last]
            del self._sorted[first:last]
        self._groups[group.id] = group
        if mine:
            moved = [self.key(self.requests[str(key[-1])]) for key in mine]
            place = bisect_left(self._sorted, moved[0])
            self._sorted[place:place] = moved
        self._refresh(group.id)

    def _span(self, group: int) -> tuple[int, int]:
        lane = (self._groups[group].priority, self._groups[group].position)
        ends = ((*lane, group), (*lane, group + 1))
        return bisect_left(self._sorted, ends[0]), bisect_left(self._sorted, ends[1])

    def _refresh(self, group: int) -> None:
        if self._policy is not Policy.PRIORITY:
            self._set_front(group)
        for shape, entries in self._lines.get(group, {}).items():
            is_capped = self._is_capped(group, shape.slots)
            head = None if is_capped else self.key(self.requests[entries[0][1]])
            self._set_head(group, shape, head)

    def _set_front(self, group: int) -> None:
        self._listing = None
        entries = [line[0] for line in self._lines.get(group, {}).values()]
        new = self.key(self.requests[min(entries)[1]]) if entries else None
        old = self._front_of.pop(group, None)
        if old is not None:
            del self._fronts[bisect_left(self._fronts, old)]
        if new is not None:
            insort(self._fronts, new)
            self._front_of[group] = new

    def _set_head(self, group: int, shape: Shape, head: Key | None) -> None:
        old = self._head_of.get((group, shape))
        if old == head:
            return
        if old is not None:
            heads = self.heads[shape]
            del heads[bisect_left(heads, old)]
            if not heads:
                del self.heads[shape]
            del self._head_of[group, shape]
        if head is not None:
            insort(self.heads.setdefault(shape, []), head)
            self._head_of[group, shape] = head

    def _is_capped(self, group: int, slots: int) -> bool:
        most = self._groups[group].max_slots
        return most is not None and slots > 0 and self._held.get(group, 0) + slots > most

    def key(self, request: Request) -> Key:
        """Return the place of a request in the order."""
        group = self._groups[request.group]
        last = (group.position, group.id, request.number, request.id)
        if self._policy is Policy.PRIORITY:
            return (group.priority, *last)
        entry, turn, slots = (request.number, request.id), 0, self._held.get(group.id, 0)
        for shape, entries in self._lines[group.id].items():
            ahead = bisect_left(entries, entry)
            turn += ahead
            slots += ahead * shape.slots
        if self._policy is Policy.FAIR_SHARE:
            return (slots / group.weight, *last)
        return (turn, slots, *last)

    def share(self, request: Request) -> float:
        """Return the share by which fair share orders a request."""
        return float(self.key(request)[0])

    def after(self, request: Request) -> Key | None:
        """Return the key of the next request of its group and shape."""
        entries = self._lines[request.group][shape_of(request)]
        place = bisect_right(entries, (request.number, request.id))
        return self.key(self.requests[entries[place][1]]) if place < len(entries) else None

    def position(self, request_id: str) -> int:
        """Return the number of requests ahead of one, capped ones included."""
        key = self.key(self.requests[request_id])
        if self._policy is Policy.PRIORITY:
            return bisect_left(self._sorted, key)
        if self._listing is not None and request_id in self._ahead:
            return self._ahead[request_id]
        ahead = self._fronts[: bisect_left(self._fronts, key)]
        return sum(self._num_ahead(int(front[-3]), key) for front in ahead)

    def _num_ahead(self, group: int, key: Key) -> int:
        """Return the number of requests of a group before a key."""
        return sum(
            bisect_left(entries, key, key=lambda entry: self.key(self.requests[entry[1]]))
            for entries in self._lines[group].values()
        )

    def first(self, limit: int | None = None) -> list[Request]:
        """Return the first `limit` requests in order, capped ones included."""
        if self._policy is Policy.PRIORITY:
            return [self.requests[str(key[-1])] for key in self._sorted[:limit]]
        if self._listing is None:
            self._listing, self._ids, self._ahead = self._in_order(), [], {}
        missing = None if limit is None else max(0, limit - len(self._ids))
        for request_id in islice(self._listing, missing):
            self._ahead[request_id] = len(self._ids)
            self._ids.append(request_id)
        return [self.requests[request_id] for request_id in self._ids[:limit]]

    def _in_order(self) -> Iterator[str]:
        """Yield the ids of all requests in order; any change ends its use."""
        later: list[Key] = []  # the next key of each group whose first was yielded
        for front in self._fronts:
            while later and later[0] < front:
                yield from self._take_least(later)
            heapq.heappush(later, front)
        while later:
            yield from self._take_least(later)

    def _take_least(self, later: list[Key]) -> Iterator[str]:
        """Yield the request of the least key, and replace the key by the next of its group."""
        request = self.requests[str(heapq.heappop(later)[-1])]
        entry = (request.number, request.id)
        nexts = []
        for entries in self._lines[request.group].values():
            place = bisect_right(entries, entry)
            nexts += entries[place : place + 1]
        if nexts:
            heapq.heappush(later, self.key(self.requests[min(nexts)[1]]))
        yield request.id
