"""Which requests start and which gangs have to leave: one function of a snapshot.

A pass goes through the waiting requests in order. For each:

    1. It fits on slots that are not kept for requests ahead: it starts.
    2. Else, if its group holds `max_slots`: it is skipped, and keeps nothing; elastic gangs of
       its group give slots back for it.
    3. Else, if leaving gangs will make room, or elastic gangs that give slots back (elastic.py):
       their agents are kept for it. If less urgent gangs
       (in fair share: gangs of groups that have more) would make room: the cheapest of them are
       asked to leave, and their agents are kept for it.
    4. Else the agents where it is nearest to fitting are kept for it. With preemption a less
       urgent gang may start even there, if it fits nowhere else: it is marked as backfill, and
       rule 3 asks it to leave as soon as that makes room.

A request for which gangs were asked to leave before starts on their agents, or waits on (see
reservations.py). Only the first `reservation_depth` waiting requests keep agents by rule 4; those
behind may preempt too. At most `LOOKED_AT` requests are served by rules 3 and 4. Of the requests
behind, one of each shape is tried, because the others of that shape would not fit either.

After the last pass elastic gangs grow into what is left (elastic.py), but not on agents where a
request that keeps none will fit.

Nothing is kept between calls: the same snapshot gives the same decisions.
"""

from __future__ import annotations

import math
from dataclasses import replace

from det_jupyter.scheduler.board import NO_PRIORITY, SlotBoard
from det_jupyter.scheduler.elastic import GivingBack, Growing
from det_jupyter.scheduler.model import (
    AgentPart,
    Decisions,
    Placement,
    Policy,
    Preemption,
    Promise,
    Request,
    Resize,
    Running,
    Shape,
)
from det_jupyter.scheduler.preemption import Exchange, SlotNeeds, cheapest_way
from det_jupyter.scheduler.reservations import Reservations
from det_jupyter.scheduler.snapshot import Snapshot

LOOKED_AT = 32  # requests that keep agents or preempt in one pass


class PassFailed(Exception):
    """An error in a pass of the scheduler.

    Attributes:
        request_id: The request that the pass was handling; "": none.
    """

    def __init__(self, request_id: str) -> None:
        super().__init__(request_id)
        self.request_id = request_id


def decide(snapshot: Snapshot, now: float) -> Decisions:
    """Return which requests start and which gangs have to leave.

    Where a decision changes the facts of the next one, another pass follows, until one decides
    nothing. This terminates: every pass but the last starts a request, preempts a gang, or ends a
    promise; a preempted gang does not wait again before it has left, and a promise is only made by
    a preemption.

    Args:
        snapshot: The pool.
        now: UTC seconds.

    Raises:
        PassFailed: A pass raised an error, which is its cause.
    """
    starts: dict[str, Placement] = {}
    resizes: dict[str, Resize] = {}
    preemptions: list[Preemption] = []
    promises: dict[str, Promise] = {}
    while True:
        taken = Pass(snapshot, now)
        try:
            taken.run()
        except MemoryError:
            raise
        except Exception as error:  # of a mistake in it; the caller attributes it to a request
            raise PassFailed(taken.looking_at) from error
        decided = Decisions(
            tuple(taken.starts),
            tuple(taken.resizes),
            tuple(taken.preemptions),
            tuple(taken.promises.values()),
        )
        starts |= {start.request_id: start for start in decided.starts}
        resizes |= {resize.request_id: resize for resize in decided.resizes}
        preemptions += decided.preemptions
        promises |= taken.promises
        snapshot = snapshot.after(decided, now)
        if not taken.is_worth_another:
            break
    grown, look_again_at = list[Resize](), None
    if any(gang.request.sizes for gang in snapshot.running.values()):
        growth = Growing(snapshot, taken.kept.closed_to_all() | taken.awaited, now)
        for name, parts in growth.of_starts(starts).items():
            starts[name] = replace(starts[name], parts=parts)
        grown, look_again_at = growth.of_running(starts), growth.look_again_at
    waiting, kept = snapshot.waiting, taken.kept.by_request
    gone = {one.request_id for one in preemptions}
    return Decisions(
        tuple(starts.values()),
        (*(one for one in resizes.values() if one.request_id not in gone), *grown),
        tuple(preemptions),
        tuple(promise for name, promise in promises.items() if name in waiting),
        {name: agents for name, agents in kept.items() if name in waiting},
        look_again_at,
    )


class Pass:
    """One pass over the queue of a snapshot.

    Attributes:
        starts: Gangs that start.
        resizes: Elastic gangs that give slots back.
        preemptions: Gangs that are asked to leave.
        promises: Promises that are made or end, by request.
        kept: The agents kept for requests that wait.
        awaited: Agents where gangs are leaving, or give slots back, for requests that keep none.
        looking_at: The current request, which is at fault if the pass raises an error.
    """

    def __init__(self, snapshot: Snapshot, now: float) -> None:
        self.starts: list[Placement] = []
        self.resizes: list[Resize] = []
        self.preemptions: list[Preemption] = []
        self.promises: dict[str, Promise] = {}
        self.looking_at = ""
        self._snapshot = snapshot
        self._rules = snapshot.rules
        self._now = now
        self._board = SlotBoard(snapshot)
        self.kept = Reservations(self._board, snapshot.promised)
        self.awaited: set[str] = set()
        self._is_cut = False  # the pass ended early, because promises changed
        self._num_keepers = 0
        self._wanted: dict[int, int] = {}  # by group: number of slots for which it keeps agents
        self._allowed: dict[int, int] = {}  # by group: slots that it gives back for its requests
        self._exhausted: set[int] = set()  # groups that have nothing more to give back
        self._no_room: dict[Shape, int] = {}  # by shape that fits nowhere: up to which priority
        # By shape that is not tried again: up to which priority.
        self._passed: dict[Shape, float] = {}
        self._has_elastic = any(gang.request.sizes for gang in snapshot.running.values())
        self._has_order = self._rules.policy is Policy.PRIORITY
        self._has_backfill = self._rules.preemption and self._has_order

    @property
    def is_worth_another(self) -> bool:
        """Whether another pass could decide more."""
        has_asked = bool(self.preemptions or self.resizes)
        return has_asked or self._is_cut or self._starts_reorder

    @property
    def _starts_reorder(self) -> bool:
        """Return whether the starts change the order of the queue, or what groups may preempt."""
        match self._rules.policy:
            case Policy.PRIORITY:
                return False
            case Policy.FAIR_SHARE if not self._rules.preemption:
                return self._snapshot.overtakes(self.starts)
            case _:
                return bool(self.starts)

    def run(self) -> None:
        """Decide about all waiting requests."""
        for request in self._snapshot.in_order(self._passed):
            if self._is_cut:
                return
            self.looking_at = request.id
            self.kept.keep_promised_up_to(self.kept.level(request))
            if request.promised:
                self._serve_promised(request)
            else:
                self._serve(request)

    def _serve_promised(self, request: Request) -> None:
        if request.id in self.kept.by_request and not self._is_capped(request):
            parts = self.kept.find_promised_parts(request)
            if parts is not None:
                self._hold(request, parts, is_backfill=self.kept.is_lent(request))
            elif not self._start(request):
                self.kept.close_promised(request)
                self._note_keeper(request)
                return
        self.promises[request.id] = Promise(request.id, ())
        self._is_cut = True

    def _serve(self, request: Request) -> None:
        if self._is_capped(request, self._wanted.get(request.group, 0)):
            self._make_allowance(request)
            return
        if self._start(request) or self._wait(request):
            return
        is_loose = self._has_backfill and self.kept.least_loose is not None
        up_to = self._priority(request) if request.slots and is_loose else math.inf
        self._passed[request.shape] = up_to

    def _priority(self, request: Request) -> int:
        return self._board.groups[request.group].priority

    def _is_capped(self, request: Request, ahead: int = 0) -> bool:
        """Return whether `max_slots` of the request's group leaves no room for the request.

        Args:
            request: The request.
            ahead: Slots of the group's requests that wait ahead of it.
        """
        most = self._board.groups[request.group].max_slots
        held = self._board.held(request.group) + ahead
        return most is not None and request.slots > 0 and held + request.slots > most

    def _start(self, request: Request) -> bool:
        """Start a request if it fits; as backfill if it fits only on agents kept for others."""
        shape, kept, priority = request.shape, self.kept, self._priority(request)
        tried, least = self._no_room.get(shape), kept.least_loose
        parts, is_backfill = None, False
        if tried is None:
            parts = self._board.find_parts(shape, kept.closed_to_all())
            if parts is None and kept.behind:
                parts = self._board.find_parts(shape, kept.agents.keys() - kept.behind)
        may_be_backfill = self._has_backfill and least is not None and priority > least
        if parts is None and may_be_backfill and (tried is None or priority > tried):
            parts, is_backfill = self._board.find_parts(shape, kept.closed_to(priority)), True
        if parts is None:
            self._no_room[shape] = priority
            return False
        self._hold(request, parts, is_backfill=is_backfill)
        if shape.slots and not kept.behind.isdisjoint(part.agent_id for part in parts):
            self._is_cut = True
        return True

    def _hold(self, request: Request, parts: tuple[AgentPart, ...], *, is_backfill: bool) -> None:
        gang = Running(request=request, parts=parts, since=self._now, is_backfill=is_backfill)
        self._board.hold(gang)
        self.starts.append(Placement(request.id, parts, is_backfill))

    def _wait(self, request: Request) -> bool:
        """Keep agents for a request that waits; return whether to try the next of its shape."""
        if not request.slots or self._num_keepers >= LOOKED_AT:
            return False
        shape, kept = request.shape, self.kept
        may_keep = self._num_keepers < self._rules.reservation_depth
        agents = kept.find_room(shape)
        if agents and not may_keep:
            self.awaited.update(agents)
            return False
        agents = agents or self._make_room(request, needs_victims=not may_keep)
        if agents:
            kept.keep_firmly(request, agents)
        elif not may_keep:
            return False
        else:
            above = self._priority(request) if self._has_backfill else NO_PRIORITY
            agents = kept.find_nearest(shape, above)
            if agents is None:
                return False
            kept.keep_loosely(request, agents, self._priority(request))
        self._note_keeper(request)
        return True

    def _note_keeper(self, request: Request) -> None:
        self._num_keepers += 1
        wanted = self._wanted.get(request.group, 0)
        self._wanted[request.group] = wanted + request.slots

    def _make_room(self, request: Request, *, needs_victims: bool) -> list[str] | None:
        """Make gangs give slots back, or leave, if the request then fits; return the agents."""
        needs = SlotNeeds(self._board, self.kept, request.shape, self._now)
        found = self._giving_back(request).find_room(needs) if self._has_elastic else None
        has_preemption = self._rules.preemption and self._rules.policy is not Policy.ROUND_ROBIN
        if found is not None:
            self._resize(found[1])
            if has_preemption:
                self.promises[request.id] = Promise(request.id, (found[0],))
            return [found[0]]
        if not has_preemption:
            return None
        if self._has_order:
            way = cheapest_way(needs, self._priority(request))
        else:
            way = Exchange(needs, request.group, self._snapshot.share_with(request)).find_way()
        if way is None or (needs_victims and not way.victims):
            return None
        for victim in way.victims:
            self.kept.add_spare(self._board.leave(victim))
            self.preemptions.append(Preemption(victim, request.id))
        if way.victims:
            self.promises[request.id] = Promise(request.id, way.agents)
        return list(way.agents)

    def _make_allowance(self, request: Request) -> None:
        """Make gangs of a group that holds `max_slots` give slots back for its next request."""
        board, group = self._board, self._board.groups[request.group]
        if not self._has_elastic or group.id in self._exhausted:
            return
        assert group.max_slots is not None
        wanted = self._allowed.get(group.id, 0) + request.slots
        excess = board.kept_by(group.id) + wanted - group.max_slots
        found = self._giving_back(request).find_allowance(excess) if excess > 0 else []
        if excess > 0 and not found:
            self._exhausted.add(group.id)
            return
        self._resize(found)
        self._allowed[group.id] = wanted

    def _giving_back(self, request: Request) -> GivingBack:
        is_fair = self._rules.policy is Policy.FAIR_SHARE
        share = self._snapshot.share_with(request) if is_fair else 0.0
        return GivingBack(self._board, request, share)

    def _resize(self, resizes: list[Resize]) -> None:
        for resize in resizes:
            self.kept.add_spare(self._board.resize(resize))
        self.resizes += resizes
