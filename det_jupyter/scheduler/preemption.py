"""Preemption: which gangs leave so that a request has room.

By priority, those that cost least:

    cost of a gang  = its slots · the seconds since it got them: the work that could be lost
    cost of a way   = the sum over its gangs: a set of gangs that make room if all of them leave

For a request that fits on one agent, each agent where less urgent gangs hold enough slots has a
cheapest set of gangs (a knapsack, small because an agent has few slots); the cheapest of these
sets is preempted. Agents are searched in the order of their newest gang: when one slot of the next
agent's newest gang alone costs more per missing slot than the best way found, no later agent can
be better. For a request that takes whole agents, the agents with the cheapest sets of gangs are
cleared; agents that one gang spans are cleared together, and agents of several sizes never.

In fair share, those of the groups with the greatest share:

    level    slots that a group holds, without those of leaving gangs
    share    level / weight
    fairer   after the exchange the taker's share is at most the giver's

An exchange happens only where it is fairer. Because the taker then has no greater share than the
giver, the giver can never claim its slots back in the same way: exchanges come to an end. The
search goes through the groups from the greatest share downward and their gangs from the newest on,
`LOOKED_AT` gangs (or groups that may give nothing) at most, until the gangs found hold enough
slots on an agent. There the gangs of the group with the greatest share leave first; a gang that
turns out not to be needed stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from det_jupyter.scheduler.board import ANY_PRIORITY, Seats, SlotBoard, in_sections, reaches_all
from det_jupyter.scheduler.model import Running, Shape
from det_jupyter.scheduler.reservations import Reservations

LOOKED_AT = 64
ROUNDING = 1e-9  # slots

Cost = tuple[float, int, tuple[str, ...]]  # work, number of gangs, their ids


@dataclass(frozen=True, slots=True)
class Way:
    """Gangs to preempt, and the agents on which that frees enough slots."""

    victims: tuple[str, ...]
    agents: tuple[str, ...]


def cost_of(gang: Running, now: float) -> float:
    """Return the most slot-seconds of work that can be lost when a gang leaves."""
    return gang.request.slots * max(0.0, now - gang.since)


@dataclass(frozen=True, slots=True)
class SlotNeeds:
    """The needs of a request that fits nowhere.

    Args:
        board: The agents.
        kept: Agents kept for requests ahead.
        shape: The request's shape.
        now: UTC seconds.
    """

    board: SlotBoard
    kept: Reservations
    shape: Shape
    now: float

    def could_use(self, seats: Seats) -> bool:
        """Return whether the request could start on the agent at all."""
        return seats.id not in self.shape.blocked and not self.kept.is_barred(seats.id)

    def missing(self, seats: Seats) -> int:
        """Return how many slots the request lacks on the agent once leaving gangs have left."""
        return self.shape.slots - self.kept.coming(seats.id)


def cheapest_way(needs: SlotNeeds, priority: int) -> Way | None:
    """Return the cheapest way to make room for a request of this priority, or None."""
    if needs.board.spans(needs.shape):
        return _clear_wholes(needs, priority)
    return _clear_one(needs, priority)


def _clear_one(needs: SlotNeeds, priority: int) -> Way | None:
    board, now = needs.board, needs.now
    candidates = (seats for seats in board.seats.values() if needs.could_use(seats))
    if not any(
        _slots_above(board, seats, priority) >= needs.missing(seats) for seats in candidates
    ):
        return None
    most = max(seats.coming for seats in board.seats.values())
    least_missing = max(1, needs.shape.slots - most)
    best: tuple[Cost, str] | None = None
    seen: set[str] = set()
    for gang in _newest(board, priority):
        if best is not None and max(0.0, now - gang.since) * least_missing >= best[0][0]:
            break
        for part in gang.parts:
            seats = board.seats.get(part.agent_id)
            if seats is None or seats.id in seen:
                continue
            seen.add(seats.id)
            cost = _cheapest_here(needs, seats, priority)
            if cost is not None:
                best = min(best, (cost, seats.id)) if best else (cost, seats.id)
    return Way(best[0][2], (best[1],)) if best else None


def _slots_above(board: SlotBoard, seats: Seats, priority: int) -> int:
    """Return the number of slots on an agent that less urgent gangs hold which stay."""
    return board.free_without(seats, priority) - seats.coming


def _newest(board: SlotBoard, priority: int) -> list[Running]:
    """Return gangs that stay, hold slots and have a greater priority number, the newest first."""
    found = [
        gang
        for gang in board.running.values()
        if gang.request.slots and not gang.is_leaving and board.priority(gang) > priority
    ]
    return sorted(found, key=lambda gang: (-gang.since, gang.request.id))


def _cheapest_here(needs: SlotNeeds, seats: Seats, priority: int) -> Cost | None:
    """Return the cheapest set of gangs that makes room on an agent; None if there is none."""
    missing = needs.missing(seats)
    if not needs.could_use(seats) or missing > _slots_above(needs.board, seats, priority):
        return None
    # cheapest[n]: the best way to get n slots or more
    cheapest: list[Cost | None] = [(0.0, 0, ()), *[None] * missing]
    for gang in needs.board.stayers(seats, priority):
        gain, cost = seats.freed_by(gang), cost_of(gang, needs.now)
        for got in range(missing, -1, -1):
            base = cheapest[got]
            if base is not None and gain:
                new = (base[0] + cost, base[1] + 1, (*base[2], gang.request.id))
                place = min(missing, got + gain)
                old = cheapest[place]
                cheapest[place] = new if old is None else min(old, new)
    return cheapest[missing]


def _clear_wholes(needs: SlotNeeds, priority: int) -> Way | None:
    board, shape = needs.board, needs.shape
    clear = board.clear(shape, needs.kept.agents, priority)
    found = [
        _cheapest_wholes(needs, [seats for _, seats in some], shape.slots // -negative_size)
        for (negative_size, _), some in in_sections(clear).items()
        if shape.slots % negative_size == 0 and len(some) >= shape.slots // -negative_size
    ]
    return min(found, key=lambda pair: pair[0])[1] if found else None


def _cheapest_wholes(needs: SlotNeeds, agents: list[Seats], num: int) -> tuple[Cost, Way]:
    """Return the cheapest way to clear `num` of these agents; there must be `num` or more."""
    board = needs.board
    together: dict[tuple[str, ...], list[str]] = {}  # ids of gangs -> agents that these occupy
    for seats in sorted(agents, key=lambda seats: seats.id):
        ids = tuple(gang.request.id for gang in board.stayers(seats, ANY_PRIORITY))
        together.setdefault(ids, []).append(seats.id)
    # cheapest[n]: the best way to n agents or more
    cheapest: list[tuple[Cost, tuple[str, ...]] | None] = [((0.0, 0, ()), ()), *[None] * num]
    for ids, names in together.items():
        cost = sum(cost_of(board.running[request_id], needs.now) for request_id in ids)
        for got in range(num - 1, -1, -1):
            base = cheapest[got]
            if base is None:
                continue
            (work, count, victims), chosen = base
            new = (
                (work + cost, count + len(ids), tuple(sorted({*victims, *ids}))),
                (*chosen, *names),
            )
            place = min(num, got + len(names))
            old = cheapest[place]
            cheapest[place] = new if old is None else min(old, new)
    best = cheapest[num]
    assert best is not None
    return best[0], Way(best[0][2], tuple(sorted(best[1][:num])))


@dataclass(slots=True)
class Exchange:
    """In fair share: a group that needs slots, and the groups with a greater share.

    Args:
        needs: The needs of its request.
        taker: The group.
        limit: The taker's share after the exchange: the slots that it holds and those of its
            requests up to this one, divided by its weight. No giver's share falls below it, so
            that a preempted gang does not queue ahead of the taker.
    """

    needs: SlotNeeds
    taker: int
    limit: float
    staying: dict[int, list[Running]] = field(default_factory=dict)
    level: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for gang in _newest(self.needs.board, ANY_PRIORITY):
            group = gang.request.group
            self.staying.setdefault(group, []).append(gang)
            self.level[group] = self.level.get(group, 0) + gang.num_kept

    def find_way(self) -> Way | None:
        """Return the gangs that have to leave, or None if no way is fairer."""
        spans = self.needs.board.spans(self.needs.shape)
        return self._clear_wholes() if spans else self._clear_one()

    def _may_give(self, gang: Running, level: Mapping[int, int]) -> bool:
        """Return whether the result is fairer if this gang leaves.

        Args:
            gang: The gang.
            level: Number of slots that each group would hold before the gang leaves.
        """
        group = self.needs.board.groups[gang.request.group]
        most = level[group.id] - self.limit * group.weight + ROUNDING
        return group.id != self.taker and gang.num_kept <= most

    def _able(self) -> Iterator[Running]:
        """Yield gangs that may leave: those of the group with the greatest share first."""
        board, left = self.needs.board, LOOKED_AT
        ranking = sorted(
            (-level / board.groups[group].weight, board.groups[group].position, group)
            for group, level in self.level.items()
        )
        for negative_share, _, group in ranking:
            above = -negative_share - self.limit
            if above <= 0 or left <= 0:
                return
            most = above * board.groups[group].weight + ROUNDING
            if most < 1 or group == self.taker:
                left -= 1
                continue
            gangs = self.staying[group][:left]
            left -= len(gangs)
            yield from (gang for gang in gangs if gang.num_kept <= most)

    def _clear_one(self) -> Way | None:
        needs, gains = self.needs, dict[str, int]()
        for gang in self._able():
            for part in gang.parts:
                agent_id = part.agent_id
                gains[agent_id] = gains.get(agent_id, 0) + len(part.slot_ids)
                seats = needs.board.seats.get(agent_id)
                if seats is None or seats.size < needs.shape.slots or not needs.could_use(seats):
                    continue
                if gains[agent_id] >= needs.missing(seats):
                    victims = self._victims_on(seats)
                    if victims is not None:
                        return Way(tuple(sorted(victims)), (agent_id,))
        return None

    def _victims_on(self, seats: Seats) -> dict[str, int] | None:
        """Return gangs that hold the missing slots on an agent, with these slots; or None."""
        missing = self.needs.missing(seats)
        stayers = {
            gang.request.id: gang
            for gang in self.needs.board.stayers(seats, ANY_PRIORITY)
            if seats.freed_by(gang)
        }
        victims: dict[str, int] = {}
        level, groups = dict(self.level), self.needs.board.groups

        def order(gang: Running) -> tuple[float, float, str]:
            group = groups[gang.request.group]
            cost = cost_of(gang, self.needs.now)
            return -level[group.id] / group.weight, cost, gang.request.id

        while sum(victims.values()) < missing:
            left = (gang for name, gang in stayers.items() if name not in victims)
            chosen = min(
                (gang for gang in left if self._may_give(gang, level)), key=order, default=None
            )
            if chosen is None:
                return None
            level[chosen.request.group] -= chosen.num_kept
            victims[chosen.request.id] = seats.freed_by(chosen)
        for request_id, gain in sorted(victims.items()):
            if sum(victims.values()) - gain >= missing:
                del victims[request_id]
        return victims

    def _clear_wholes(self) -> Way | None:
        """Clear agents one after the other until there are enough of one kind and size."""
        board, kept, shape = self.needs.board, self.needs.kept, self.needs.shape
        victims: set[str] = set()
        already = in_sections(board.clear(shape, kept.agents))
        clear = {key: [seats for _, seats in some] for key, some in already.items()}
        names = dict.fromkeys(part.agent_id for gang in self._able() for part in gang.parts)
        for seats in (board.seats[name] for name in names if name in board.seats):
            is_closed = seats.id in kept.agents or seats.id in shape.blocked
            if is_closed or not seats.size or shape.slots % seats.size:
                continue
            cleared = clear.setdefault((-seats.size, seats.agent.kind), [])
            if not reaches_all(seats, cleared) or not self._clear_whole(seats, victims):
                continue
            cleared.append(seats)
            num = shape.slots // seats.size
            if len(cleared) >= num:
                chosen = cleared[-num:]
                stayers = (g for s in chosen for g in board.stayers(s, ANY_PRIORITY))
                needed = victims.intersection(gang.request.id for gang in stayers)
                return Way(tuple(sorted(needed)), tuple(sorted(seats.id for seats in chosen)))
        return None

    def _clear_whole(self, seats: Seats, victims: set[str]) -> bool:
        """Add all gangs that stay on an agent to the victims, or none of them."""
        stayers = self.needs.board.stayers(seats, ANY_PRIORITY)
        new = [gang for gang in stayers if gang.request.id not in victims]
        level = dict(self.level)
        for gang in new:
            if not self._may_give(gang, level):
                return False
            level[gang.request.group] -= gang.num_kept
        self.level = level
        victims.update(gang.request.id for gang in new)
        return True
