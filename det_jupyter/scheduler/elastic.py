"""Elastic gangs: how they grow into free slots, and what they give back.

    gives back   to a waiting request that then fits on an agent: slots above the gang's fewest.
                 Which gangs: by priority, those of the same or a less urgent one; in fair share,
                 those whose group then holds no less for its weight; in round robin, all.
                 If the request is elastic too, it gets more: all from less urgent ones, from
                 equals until it is as large. The largest of the least urgent gives first, one
                 slot at a time; a gang on several agents gives a whole agent.
    grows        once all requests that fit have started: first the gangs that start now, into
                 any slots that are not kept for others; then gangs that have trained for
                 `GROW_AFTER_S`, into those that have been free for as long. The most urgent (in
                 fair share: with the least share) and smallest first, one step at a time. What a
                 group's own requests may have of its `max_slots` is left.

A step is one more slot on one agent, or the next number of whole agents. A gang may move to
another agent for it, with devices of the same kind. A gang that is being resized does not grow
further, but may give back: it has not started with its new slots yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from det_jupyter.contract.values.sizes import GROW_AFTER_S
from det_jupyter.scheduler.board import Closed, Seats, SlotBoard
from det_jupyter.scheduler.model import (
    AgentPart,
    Group,
    Policy,
    Request,
    Resize,
    Running,
    size_of,
)
from det_jupyter.scheduler.preemption import ROUNDING, SlotNeeds
from det_jupyter.scheduler.snapshot import Snapshot

Parts = tuple[AgentPart, ...]
_NEW = "newly free slots"


class GivingBack:
    """What elastic gangs may give back to a waiting request.

    Args:
        board: The agents.
        request: The request.
        share: In fair share: the share of its group once it has started.
    """

    def __init__(self, board: SlotBoard, request: Request, share: float) -> None:
        self._board, self._request, self._share = board, request, share
        self._own = board.groups[request.group]

    def find_room(self, needs: SlotNeeds) -> tuple[str, list[Resize]] | None:
        """Return the agent on which the request then fits, and what gangs give back there."""
        board, slots = self._board, self._request.slots
        if not slots or board.spans(self._request.shape) or not self._givers(board.running):
            return None
        large = (seats for seats in board.seats.values() if seats.size >= slots)
        for seats in sorted(large, key=lambda seats: (needs.missing(seats), seats.id)):
            if needs.could_use(seats) and (found := self._give(needs.missing(seats), seats)):
                return seats.id, found
        return None

    def find_allowance(self, num: int) -> list[Resize]:
        """Return what the request's own group gives back so that it holds `num` slots less."""
        return self._give(num, None)

    def _givers(self, names: Iterable[str]) -> dict[str, Running]:
        gangs = (self._board.running[name] for name in names)
        return {
            gang.request.id: gang
            for gang in gangs
            if gang.request.sizes
            and gang.is_whole
            and not gang.is_leaving
            and gang.num_kept > gang.request.sizes.least
        }

    def _give(self, missing: int, seats: Seats | None) -> list[Resize]:
        """Return the resizes that free `missing` slots; [] if there are not enough.

        Args:
            missing: The number of slots.
            seats: The agent; None: on any, by gangs of the request's own group.
        """
        gangs = self._givers(self._board.running if seats is None else seats.gangs)
        if seats is None:
            gangs = {name: one for name, one in gangs.items() if self._is_own(one)}
        given, changed = Counter[int](), dict[str, Resize]()
        most = self._most() if seats is not None else self._request.slots
        while sum(given.values()) < missing + most - self._request.slots:
            extra = sum(given.values()) + 1 - missing
            ways = [
                (self._board.priority(gang), gang.num_kept, name, less)
                for name, gang in gangs.items()
                if (less := _smaller(gang, seats)) and self._may_give(gang, less, given, extra)
            ]
            if not ways:
                return list(changed.values()) if extra > 0 else []
            *_, name, less = max(ways, key=lambda way: way[:3])
            given[gangs[name].request.group] += gangs[name].num_kept - size_of(less)
            gangs[name] = replace(gangs[name], becomes=less)
            changed[name] = Resize(name, less, self._request.id)
        return list(changed.values())

    def _is_own(self, gang: Running) -> bool:
        return gang.request.group == self._own.id

    def _most(self) -> int:
        """Return how many slots the request may have."""
        sizes, cap = self._request.sizes, self._own.max_slots
        most = sizes.most if sizes else self._request.slots
        return most if cap is None else max(0, min(most, cap - self._board.held(self._own.id)))

    def _may_give(self, gang: Running, less: Parts, given: Counter[int], extra: int) -> bool:
        """Return whether a gang may become as small as `less`.

        Args:
            gang: The gang.
            less: What it keeps.
            given: The number of slots that groups give back already.
            extra: How many slots more than its fewest the request then has.
        """
        policy, group = self._board.rules.policy, self._board.groups[gang.request.group]
        if policy is Policy.PRIORITY and group.priority != self._own.priority:
            return group.priority > self._own.priority
        if policy is Policy.FAIR_SHARE and not self._is_own(gang):
            given_now = gang.num_kept - size_of(less)
            left = self._board.kept_by(group.id) - given[group.id] - given_now
            share = self._share + max(0, extra) / self._own.weight
            return left >= share * group.weight - ROUNDING
        return extra <= 0 or size_of(less) >= self._request.slots + extra


def _smaller(gang: Running, seats: Seats | None) -> Parts:
    """Return the slots of a gang after it gave back as few as it can (on an agent); () if none."""
    sizes, parts = gang.request.sizes, gang.next_parts
    assert sizes is not None
    part = parts[-1]
    if seats is not None:
        part = next((one for one in parts if one.agent_id == seats.id), AgentPart(seats.id, ()))
    usable = [slot for slot in part.slot_ids if seats is None or slot in seats.agent.slots]
    if not usable:
        return ()
    others = tuple(one for one in parts if one is not part)
    if not others:
        kept = tuple(slot for slot in part.slot_ids if slot != usable[-1])
        others = (AgentPart(part.agent_id, kept),)
    return others if size_of(others) >= sizes.least else ()


class Growing:
    """How elastic gangs grow after all requests that fit have started.

    Args:
        snapshot: The pool, with the gangs that start now.
        closed: Agents that are kept for waiting requests.
        now: UTC seconds.
    """

    def __init__(self, snapshot: Snapshot, closed: Closed, now: float) -> None:
        self._snapshot, self._board = snapshot, SlotBoard(snapshot)
        self._closed, self._now = closed, now
        self._next = list[float]()  # times at which there may be more to get

    @property
    def look_again_at(self) -> float | None:
        """When a gang may grow though nothing else happens."""
        return min(self._next, default=None)

    def of_starts(self, started: Iterable[str]) -> dict[str, Parts]:
        """Return the slots of the gangs that start now, where these become more."""
        running = self._board.running
        return self._grow([k for k in started if running[k].request.sizes], are_new=True)

    def of_running(self, started: Iterable[str]) -> list[Resize]:
        """Return the gangs that train and grow."""
        new, ready = set(started), list[str]()
        for name, gang in self._board.running.items():
            if name in new or gang.trains_since is None or not self._may_change(gang):
                continue
            if gang.trains_since + GROW_AFTER_S <= self._now:
                ready.append(name)
            else:
                self._next.append(gang.trains_since + GROW_AFTER_S)
        if not ready and not self._next:
            return []
        self._hold_newly_free()
        return [Resize(name, parts) for name, parts in self._grow(ready, are_new=False).items()]

    def _may_change(self, gang: Running) -> bool:
        """Return whether a gang is elastic, smaller than it may be, and not changing already."""
        sizes = gang.request.sizes
        is_steady = not (gang.is_leaving or gang.becomes or gang.is_backfill)
        return bool(sizes and is_steady and gang.is_whole and gang.request.slots < sizes.most)

    def _hold_newly_free(self) -> None:
        """Withhold slots that have not been free for `GROW_AFTER_S`."""
        for seats in list(self._board.seats.values()):
            at = {slot: seats.agent.freed_at.get(slot, 0.0) + GROW_AFTER_S for slot in seats.free}
            new = tuple(slot for slot in seats.free if at[slot] > self._now)
            self._next += (at[slot] for slot in new)
            if new:
                name = f"{_NEW} {seats.id}"
                request = Request(id=name, group=0, slots=len(new))
                part = AgentPart(seats.id, new)
                self._board.hold(Running(request=request, parts=(part,), since=self._now))

    def _grow(self, names: list[str], *, are_new: bool) -> dict[str, Parts]:
        """Return the slots of the gangs that can have more.

        Args:
            names: The gangs.
            are_new: Whether they start now; else they hold their present slots until they go on.
        """
        board, found = self._board, dict[str, Parts]()
        while names:
            name = min(names, key=self._turn)
            gang = board.lift(name)
            bigger = self._bigger(gang)
            if bigger:
                found[name] = bigger
                gang = replace(gang, becomes=bigger)
                gang = gang.resized() if are_new else gang
            else:
                names = [each for each in names if each != name]
            board.hold(gang)
        return found

    def _turn(self, name: str) -> tuple[float, int, int, str]:
        gang = self._board.running[name]
        group = self._board.groups[gang.request.group]
        first: float = group.priority
        if self._board.rules.policy is not Policy.PRIORITY:
            first = self._board.held(group.id) / group.weight
        return first, gang.num_kept, gang.request.number, name

    def _bigger(self, gang: Running) -> Parts | None:
        """Return the slots of a gang after the next step; None if it cannot grow.

        The gang is not on the board.
        """
        request, board = gang.request, self._board
        sizes, group = request.sizes, board.groups[request.group]
        assert sizes is not None
        most = sizes.most
        if group.max_slots is not None:
            most = min(most, group.max_slots - board.held(group.id) - self._asked_by(group))
        parts = gang.next_parts
        here = board.seats.get(parts[0].agent_id)
        others = () if here is None else self._other_kinds(here.agent.kind)
        blocked = request.blocked.union(others)
        for size in self._next_sizes(gang.num_kept, most):
            if here is not None and len(parts) == 1 and here.id not in self._closed:
                own = parts[0].slot_ids
                more = [slot for slot in here.free if slot not in own][: size - len(own)]
                if len(own) + len(more) == size and set(own) <= set(here.free):
                    return (AgentPart(here.id, (*own, *more)),)
            shape = replace(request, slots=size, blocked=blocked).shape
            if found := board.find_parts(shape, self._closed):
                return found
        return None

    def _other_kinds(self, kind: str) -> Iterator[str]:
        """Yield the agents whose devices are of another kind: a gang stays on its kind."""
        return (seats.id for seats in self._board.seats.values() if seats.agent.kind != kind)

    def _asked_by(self, group: Group) -> int:
        """Return how many slots of its `max_slots` a group's waiting requests can have.

        Its gangs would give them back for these requests, if they held them.
        """
        assert group.max_slots is not None
        all_held = (gang.request for gang in self._snapshot.running.values())
        held = [request for request in all_held if request.group == group.id]
        least = sum(one.sizes.least if one.sizes else one.slots for one in held)
        room = most = max(0, group.max_slots - least)
        for request in self._snapshot.waiting.values():
            if request.group == group.id and request.slots <= room:
                room -= request.slots
        return most - room

    def _next_sizes(self, size: int, most: int) -> list[int]:
        """Return one slot more, and the next number of whole agents of each size."""
        sizes = {seats.size for seats in self._board.seats.values() if seats.size}
        wholes = {each * (size // each + 1) for each in sizes}
        return sorted(each for each in {size + 1, *wholes} if each <= most)
