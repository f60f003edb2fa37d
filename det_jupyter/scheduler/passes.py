"""One pass along those who wait.

Each in order:

    1. It fits on slots that are not kept for those ahead: it starts.
    2. Else, if its group holds as much as it may: it is skipped, and keeps nothing.
    3. Else, if what leaves will make room: those agents are kept for it. If less urgent gangs (in
       fair share: gangs of groups that have more) would make room: the cheapest are asked to
       leave, and their agents are kept for it.
    4. Else the agents where it is nearest to fitting are kept for it. With preemption a less
       urgent gang may start even there, if it fits nowhere else: it is marked as backfill, and
       rule 3 has it leave as soon as that helps.

Only the first `RESERVED` who wait keep anything or have others leave; of those behind, one of each
shape is tried, because the others of that shape would not fit either. A pass therefore costs by
what starts and by how many shapes there are, not by how many wait.
"""

from __future__ import annotations

from det_jupyter.scheduler.agents import Ledger
from det_jupyter.scheduler.fitting import find_parts, is_spanning
from det_jupyter.scheduler.keeping import Kept
from det_jupyter.scheduler.model import (
    Decisions,
    Group,
    Placement,
    Policy,
    PoolRules,
    Preemption,
    Request,
    Running,
)
from det_jupyter.scheduler.order import Queue, Shape
from det_jupyter.scheduler.shares import Exchange
from det_jupyter.scheduler.victims import Way, find_way
from det_jupyter.scheduler.walk import Walk

RESERVED = 32


class Pass:
    """One pass: changes the ledger as it decides, and leaves the queue as it is."""

    def __init__(
        self, rules: PoolRules, groups: dict[int, Group], ledger: Ledger, queue: Queue, now: float
    ) -> None:
        self.kept = Kept(ledger, rules)
        self._rules = rules
        self._groups = groups
        self._ledger = ledger
        self._queue = queue
        self._now = now
        self._starts: list[Placement] = []
        self._preemptions: list[Preemption] = []
        self._promised: dict[int, int] = {}  # slots that groups will get from what leaves
        self._wanted: dict[int, int] = {}  # and those that they keep agents for, too
        self._spans: dict[Shape, bool] = {}
        self._has_order = rules.policy is Policy.PRIORITY

    def run(self) -> Decisions:
        """Decide about all who wait."""
        walk = Walk(self._queue)
        while (found := walk.next()) is not None:
            shape, request = found
            if self._is_full(request):
                walk.skip_group()
            elif self._start(shape, request) or self._wait(shape, request):
                walk.go_on()
            elif self._may_stand_in(shape):
                walk.skip_priority(self._priority(request))
            else:
                walk.drop()
        return Decisions(tuple(self._starts), tuple(self._preemptions))

    def _priority(self, request: Request) -> int:
        return self._groups[request.group].priority

    def _is_full(self, request: Request) -> bool:
        """Return whether its group will hold as much as it may with those ahead of it."""
        most = self._groups[request.group].max_slots
        if most is None or not request.slots:
            return False
        held = self._ledger.held(request.group) + self._wanted.get(request.group, 0)
        return held + request.slots > most

    def _start(self, shape: Shape, request: Request) -> bool:
        """Start it if it fits."""
        ledger, rules, spans = self._ledger, self._rules, self._spans_several(shape)
        parts = find_parts(ledger, rules, shape, self.kept.agents, spans=spans)
        is_backfill = parts is None and self._may_stand_in(shape)
        if is_backfill:
            closed = self.kept.closed_to(self._priority(request))
            parts = find_parts(ledger, rules, shape, closed, spans=spans)
        if parts is None:
            return False
        running = Running(request=request, parts=parts, since=self._now, is_backfill=is_backfill)
        ledger.hold(running)
        self._starts.append(Placement(request.id, parts))
        return True

    def _spans_several(self, shape: Shape) -> bool:
        if shape not in self._spans:
            self._spans[shape] = is_spanning(self._ledger, shape)
        return self._spans[shape]

    def _may_stand_in(self, shape: Shape) -> bool:
        """Return whether one of this shape could be a backfill, if it is less urgent."""
        return (
            self._has_order
            and self._rules.preemption
            and shape.slots > 0
            and any(
                keeper is not None and len(self._ledger.seats(agent_id).free)
                for agent_id, keeper in self.kept.agents.items()
            )
        )

    def _wait(self, shape: Shape, request: Request) -> bool:
        """Keep agents for it; return whether the next of its shape is worth a look."""
        if len(self.kept.by_request) == RESERVED or not shape.slots:
            return False
        spans = self._spans_several(shape)
        agents = self.kept.find_promise(shape, spans=spans)
        if agents is None and (way := self._find_way(shape, request, spans=spans)) is not None:
            for victim in way.victims:
                self._ledger.leave(victim)
                self._preemptions.append(Preemption(victim, request.id))
            agents = list(way.agents)
        if agents is not None:
            self.kept.keep_firmly(request.id, agents, shape)
            _add(self._promised, request)
        else:
            agents = self.kept.find_nearest(shape, spans=spans)
            if agents is None:
                return False
            self.kept.keep_loosely(request.id, agents, self._priority(request))
        _add(self._wanted, request)
        return True

    def _find_way(self, shape: Shape, request: Request, *, spans: bool) -> Way | None:
        if not self._rules.preemption or self._rules.policy is Policy.ROUND_ROBIN:
            return None
        if self._has_order:
            priority = self._priority(request)
            return find_way(self._ledger, self.kept, shape, priority, self._now, spans=spans)
        exchange = Exchange(
            self._ledger, self.kept, self._groups, self._promised, request.group, shape, self._now
        )
        return exchange.find_way(spans=spans)


def _add(counts: dict[int, int], request: Request) -> None:
    counts[request.group] = counts.get(request.group, 0) + request.slots
