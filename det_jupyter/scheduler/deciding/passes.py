"""One pass over the waiting requests.

For each request, in order:

    1. It fits on slots that are not kept for requests ahead: it starts.
    2. Else, if its group holds `max_slots`: it is skipped, and keeps nothing.
    3. Else, if leaving gangs will make room: their agents are kept for it. If less urgent gangs
       (in fair share: gangs of groups that have more) would make room: the cheapest of them are
       asked to leave, and their agents are kept for it.
    4. Else the agents where it is nearest to fitting are kept for it. With preemption a less
       urgent gang may start even there, if it fits nowhere else: it is marked as backfill, and
       rule 3 asks it to leave as soon as that makes room.

A request for which gangs were asked to leave before starts on their agents, or waits on
(promises.py). Only the first `reservation_depth` waiting requests keep agents by rule 4; those
behind may preempt too. At most `LOOKED_AT` requests are served by rules 3 and 4. Of the requests
behind, one of each shape is tried, because the others of that shape would not fit either. The cost
of a pass therefore grows with the number of starts and of shapes, not of waiting requests.
"""

from __future__ import annotations

import math
from dataclasses import replace

from det_jupyter.scheduler.deciding.agents import NO_PRIORITY, Ledger
from det_jupyter.scheduler.deciding.fitting import Closed, find_parts, is_spanning
from det_jupyter.scheduler.deciding.keeping import Kept
from det_jupyter.scheduler.deciding.order import Key, Queue, Shape, shape_of
from det_jupyter.scheduler.deciding.promises import Promises
from det_jupyter.scheduler.deciding.shares import Exchange
from det_jupyter.scheduler.deciding.victims import Way, find_way
from det_jupyter.scheduler.deciding.walk import Walk
from det_jupyter.scheduler.model import (
    Decisions,
    Group,
    Part,
    Placement,
    Policy,
    PoolRules,
    Preemption,
    Promise,
    Request,
    Running,
)

LOOKED_AT = 32  # requests that keep agents or preempt in one pass


class Pass:
    """One pass: changes the ledger as it decides, and does not change the queue."""

    def __init__(
        self, rules: PoolRules, groups: dict[int, Group], ledger: Ledger, queue: Queue, now: float
    ) -> None:
        self.kept = Kept(ledger, rules)
        self.promises = Promises(rules, groups, ledger, queue, self.kept)
        self.is_cut = False  # ended early, because promises changed: another pass follows
        self.looking_at = ""  # the current request: the culprit, should the pass raise
        self._rules = rules
        self._groups = groups
        self._ledger = ledger
        self._queue = queue
        self._now = now
        self._starts: list[Placement] = []
        self._preemptions: list[Preemption] = []
        self._num_keepers = 0
        self._wanted: dict[int, int] = {}  # slots that groups keep agents for
        self._spans: dict[Shape, bool] = {}
        self._no_room: dict[Shape, int] = {}  # shapes that fit nowhere, up to which priority
        self._no_sight: set[Shape] = set()
        self._no_way: dict[Shape, float] = {}  # fair share: at this share and above
        self._has_order = rules.policy is Policy.PRIORITY
        self._has_backfill = rules.preemption and self._has_order

    def run(self) -> Decisions:
        """Decide about all waiting requests."""
        walk = Walk(self._queue)
        while (found := walk.next()) is not None:
            shape, request = found
            self._serve_promised(walk.key)
            if self.is_cut:
                break
            self.looking_at = request.id
            self.promises.reach(self.promises.rank(request))
            if self.promises.is_kept(request):
                walk.go_on()
            elif self._is_full(request):
                walk.skip_group()
            elif self._start(shape, request) or self._wait(shape, request):
                walk.go_on()
            elif shape.slots and self._has_backfill and self.kept.least_loose is not None:
                walk.skip_priority(self._priority(request))
            else:
                walk.drop()
        self._serve_promised(None)
        promises = (Promise(name, agents) for name, agents in self.promises.changes.items())
        return Decisions(tuple(self._starts), tuple(self._preemptions), tuple(promises))

    def _serve_promised(self, until: Key | None) -> None:
        """Decide about requests with promises, up to this place in the order.

        The walk may skip them, because it drops a shape whose first request does not fit.
        """
        while not self.is_cut and (request := self.promises.next_until(until)) is not None:
            self.looking_at = request.id
            self.promises.reach(self.promises.rank(request))
            self._serve(request)

    def _serve(self, request: Request) -> None:
        promises = self.promises
        is_capped = self._is_capped(request, self._ledger.held(request.group))
        if not is_capped and promises.is_kept(request):
            parts = promises.find_parts(request)
            if parts is not None:
                self._hold(request, parts, is_backfill=promises.is_lent(request))
            elif not self._start(shape_of(request), request):
                promises.settle(request)
                self._note_keeper(request)
                return
        promises.changes[request.id] = ()
        self.is_cut = True

    def _priority(self, request: Request) -> int:
        return self._groups[request.group].priority

    def _is_full(self, request: Request) -> bool:
        """Return whether `max_slots` of its group is used up by gangs and requests ahead of it."""
        held = self._ledger.held(request.group) + self._wanted.get(request.group, 0)
        return self._is_capped(request, held)

    def _is_capped(self, request: Request, held: int) -> bool:
        most = self._groups[request.group].max_slots
        return most is not None and request.slots > 0 and held + request.slots > most

    def _start(self, shape: Shape, request: Request) -> bool:
        """Start it if it fits, as backfill if it fits only there."""
        tried, priority = self._no_room.get(shape), self._priority(request)
        parts, is_backfill = None, False
        if tried is None:
            parts = self._find_parts(shape, self._closed_to_all())
            if parts is None and self.kept.promised:
                parts = self._find_parts(shape, self.kept.agents.keys() - self.kept.promised)
        if parts is None and (tried is None or priority > tried) and self._may_stand_in(priority):
            parts, is_backfill = self._find_parts(shape, self.kept.closed_to(priority)), True
        if parts is None:
            self._no_room[shape] = priority
            return False
        self._hold(request, parts, is_backfill=is_backfill)
        if shape.slots and not self.kept.promised.isdisjoint(part.agent_id for part in parts):
            self.is_cut = True
        return True

    def _closed_to_all(self) -> Closed:
        """Return agents that are only used by requests that fit nowhere else."""
        unkept = self.promises.unkept()
        return self.kept.agents.keys() | unkept if unkept else self.kept.agents

    def _hold(self, request: Request, parts: tuple[Part, ...], *, is_backfill: bool) -> None:
        running = Running(
            request=replace(request, promised=()),
            parts=parts,
            since=self._now,
            is_backfill=is_backfill,
        )
        self._ledger.hold(running)
        self._starts.append(Placement(request.id, parts))

    def _find_parts(self, shape: Shape, closed: Closed) -> tuple[Part, ...] | None:
        spans = self._spans_several(shape)
        return find_parts(self._ledger, self._rules, shape, closed, spans=spans)

    def _spans_several(self, shape: Shape) -> bool:
        if shape not in self._spans:
            self._spans[shape] = is_spanning(self._ledger, shape)
        return self._spans[shape]

    def _may_stand_in(self, priority: int) -> bool:
        """Return whether a request of this priority could be backfill somewhere."""
        least = self.kept.least_loose
        return self._has_backfill and least is not None and priority > least

    def _wait(self, shape: Shape, request: Request) -> bool:
        """Keep agents for it; return whether to try the next request of its shape."""
        if not shape.slots or self._num_keepers >= LOOKED_AT:
            return False
        may_keep = self._num_keepers < self._rules.reservation_depth
        in_sight = self._find_room(shape)
        if in_sight and not may_keep:
            return False
        agents = in_sight or self._make_room(shape, request, needs_victims=not may_keep)
        if agents is not None:
            self.kept.keep_firmly(request.id, agents, shape)
        elif not may_keep:
            return False
        else:
            above = self._priority(request) if self._has_backfill else NO_PRIORITY
            agents = self.kept.find_nearest(shape, above, spans=self._spans_several(shape))
            if agents is None:
                return False
            self.kept.keep_loosely(request.id, agents, self._priority(request))
        self._note_keeper(request)
        return True

    def _note_keeper(self, request: Request) -> None:
        self._num_keepers += 1
        wanted = self._wanted.get(request.group, 0)
        self._wanted[request.group] = wanted + request.slots

    def _find_room(self, shape: Shape) -> list[str] | None:
        """Return the agents where leaving gangs make room."""
        if shape in self._no_sight:
            return None
        spans = self._spans_several(shape)
        closed = self._closed_to_all()
        agents = self.kept.find_room(shape, closed, spans=spans)
        if agents is None and closed is not self.kept.agents:
            agents = self.kept.find_room(shape, self.kept.agents, spans=spans)
        if agents is None:
            self._no_sight.add(shape)
        return agents

    def _make_room(
        self, shape: Shape, request: Request, *, needs_victims: bool
    ) -> list[str] | None:
        """Preempt gangs if that makes room, and return the agents."""
        way = self._find_way(shape, request) if self._rules.preemption else None
        if way is None or (needs_victims and not way.victims):
            return None
        for victim in way.victims:
            self.kept.credit(self._ledger.leave(victim))
            self._preemptions.append(Preemption(victim, request.id))
        self._no_sight.clear()
        if way.victims:
            self.promises.changes[request.id] = way.agents
        return list(way.agents)

    def _find_way(self, shape: Shape, request: Request) -> Way | None:
        """Return the best way to make room; do not search again where its shape had none."""
        if self._rules.policy is Policy.ROUND_ROBIN:
            return None
        limit = 0.0 if self._has_order else self._share_with(request)
        if limit >= self._no_way.get(shape, math.inf):
            return None
        ledger, kept, spans = self._ledger, self.kept, self._spans_several(shape)
        if self._has_order:
            way = find_way(ledger, kept, shape, self._priority(request), self._now, spans=spans)
        else:
            exchange = Exchange(ledger, kept, self._groups, request.group, shape, self._now, limit)
            way = exchange.find_way(spans=spans)
        if way is None:
            self._no_way[shape] = limit
        return way

    def _share_with(self, request: Request) -> float:
        """Return the share of its group once it and the requests ahead of it have started."""
        return self._queue.share(request) + request.slots / self._groups[request.group].weight
