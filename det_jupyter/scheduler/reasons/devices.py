"""Slots that exist and are not given out: which to enable, and which processes to end."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from math import inf

from det_jupyter.contract.messages import DeviceProcess, Remedy
from det_jupyter.contract.values.text import count, listed, shortened
from det_jupyter.scheduler.board import Seats
from det_jupyter.scheduler.model import AgentSlots
from det_jupyter.scheduler.reasons.wait import WaitingRequest
from det_jupyter.scheduler.reasons.whatif import PoolChange
from det_jupyter.scheduler.reasons.wording import noun, numbers, process_text

_IDLE_S = 60.0  # a process that uses its device now and then does not count as idle
_AGENTS = 16  # most agents that are examined

Test = Callable[[Sequence[AgentSlots]], bool]


def device_remedies(wait: WaitingRequest, test: Test | None = None) -> Iterator[Remedy]:
    """Yield remedies that release withheld slots: at most one of each kind.

    Args:
        wait: The request and its pool.
        test: Returns whether these agents are enough; None: whether the request starts on them.
    """
    test = test or (lambda agents: wait.starts(PoolChange(agents=tuple(agents))))
    for find in (_enable, _free, _reset):
        for agent_id in list(wait.withheld)[:_AGENTS]:
            if (remedy := find(wait, wait.survey.board.seats[agent_id], test)) is not None:
                yield remedy
                break


def held_slots(seats: Seats) -> set[int]:
    """Return the slots that gangs hold on an agent, usable or not."""
    return {slot for gang in seats.gangs.values() for slot in gang.slots_on(seats.id)}


def draining(wait: WaitingRequest) -> list[Seats]:
    """Return the agents with disabled slots that a gang still holds."""
    return [
        seats
        for seats in wait.allowed
        if seats.id in wait.withheld
        and held_slots(seats).intersection(wait.withheld[seats.id].disabled)
    ]


def foreign_processes(wait: WaitingRequest) -> list[DeviceProcess]:
    """Return the processes on devices that the request could use, each once per agent.

    A claim of another master is one, too.
    """
    found: dict[tuple[str, int, str, str], DeviceProcess] = {}
    for agent_id, withheld in sorted(wait.withheld.items()):
        for slot in sorted(withheld.occupied):
            for process in withheld.occupied[slot]:
                key = (agent_id, process.pid, process.command, process.claim)
                found.setdefault(key, process)
    return list(found.values())


def _enable(wait: WaitingRequest, seats: Seats, test: Test) -> Remedy | None:
    withheld, found = wait.withheld[seats.id], None
    if wait.request.slots:
        held = held_slots(seats)
        slots = sorted(withheld.disabled_only, key=lambda slot: (slot in held, slot))
        found = _fewest(seats, slots, test)
    elif withheld.disabled and not seats.agent.is_open and test(_with_slots(seats, ())):
        found = withheld.disabled
    if found is None:
        return None
    return Remedy(
        verb="enable_slots",
        target=[seats.id],
        values={"slot_ids": sorted(found)},
        text=f"enable {count(len(found), 'slot')} of agent {shortened(seats.id)} again",
    )


def _free(wait: WaitingRequest, seats: Seats, test: Test) -> Remedy | None:
    withheld, held = wait.withheld[seats.id], held_slots(seats)
    if not wait.request.slots:
        return None
    free_soon = [
        slot
        for slot in withheld.occupied_only
        if all(one.claim != "next" for one in withheld.occupied[slot])  # nothing is to end there
    ]
    slots = sorted(
        free_soon,
        key=lambda slot: (slot in held, _loss(withheld.occupied[slot]), slot),
    )
    found = _fewest(seats, slots, test)
    if found is None:
        return None
    users = {process.pid: process for slot in found for process in withheld.occupied[slot]}
    # Ending these processes also frees their other devices; with those, a whole agent may be too
    # large for the request.
    freed = [slot for slot in slots if users.keys() >= {p.pid for p in withheld.occupied[slot]}]
    if len(freed) > len(found) and not test(_with_slots(seats, freed)):
        return None
    return _freed(wait, seats.id, withheld.host, found, list(users.values()))


def _reset(wait: WaitingRequest, seats: Seats, test: Test) -> Remedy | None:
    withheld, held = wait.withheld[seats.id], held_slots(seats)
    if not wait.request.slots:
        return None
    slots = sorted(withheld.lost_only, key=lambda slot: (slot in held, slot))
    found = _fewest(seats, slots, test)
    if found is None:
        return None
    indexes = sorted(withheld.lost[slot].index for slot in found)
    which = f"{noun(len(indexes), 'GPU')} {numbers(indexes)} of agent {shortened(seats.id)}"
    return Remedy(
        verb="reset_devices",
        target=[seats.id],
        values={"slot_ids": sorted(found), "indexes": indexes, "host": withheld.host},
        text=f"reset {which}, or restart the computer",
    )


def _loss(processes: Sequence[DeviceProcess]) -> tuple[int, float]:
    """Return a sort key: small for devices with few processes that have been idle for long."""
    since = [inf if p.idle_since is None else p.idle_since for p in processes]
    return (len(processes), max(since, default=0.0))


def _fewest(seats: Seats, slots: Sequence[int], test: Test) -> Sequence[int] | None:
    """Return the shortest beginning of `slots` that is enough; None if all are not enough."""
    if not slots or not test(_with_slots(seats, slots)):
        return None
    # More slots are never worse, except for a request of whole agents, which `_free` checks.
    nums = range(1, len(slots))
    return slots[: 1 + bisect_left(nums, True, key=lambda n: test(_with_slots(seats, slots[:n])))]


def _with_slots(seats: Seats, slots: Collection[int]) -> list[AgentSlots]:
    """Return an agent with more of its slots given out."""
    more = tuple(sorted({*seats.agent.slots, *slots}))
    return [replace(seats.agent, slots=more, is_open=True)]


def _freed(
    wait: WaitingRequest,
    agent_id: str,
    host: str,
    slots: Sequence[int],
    users: Sequence[DeviceProcess],
) -> Remedy:
    """Return the remedy: end the user's idle processes, or ask other users to end theirs."""
    facts = wait.facts
    steps: dict[str, list[str]] = {"shut down": [], "end": []}
    for user in users:
        step = "shut down" if user.notebook else "end"
        if user.user not in ("", facts.own_user):
            step = f"ask {shortened(user.user)} to end"
        steps.setdefault(step, []).append(process_text(user, facts.now))
    busy = [
        user.pid
        for user in users
        if not user.claim and (user.idle_since is None or facts.now - user.idle_since <= _IDLE_S)
    ]
    has_claims = any(user.claim for user in users)
    is_safe = (
        not busy
        and not has_claims
        and steps.keys() == {"shut down", "end"}
        and not steps["shut down"]
    )
    to_do = " and ".join(f"{step} {listed(who, most=3)}" for step, who in steps.items() if who)
    may_be_busy = f"; pid {listed(busy, most=3)} may be busy" if busy else ""
    return Remedy(
        verb="end_processes" if is_safe else "ask_for_devices",
        target=[agent_id],
        values={"slot_ids": list(slots), "pids": [user.pid for user in users], "host": host},
        text=f"{to_do} on agent {shortened(agent_id)}{may_be_busy}",
    )
