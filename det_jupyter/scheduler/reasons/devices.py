"""Slots that exist and are not given out: which of them to enable, or whom to ask for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from math import inf
from operator import itemgetter

from det_jupyter.scheduler.model import AgentSlots
from det_jupyter.scheduler.reasons.facts import Withheld
from det_jupyter.scheduler.reasons.situation import Situation
from det_jupyter.scheduler.reasons.survey import Room
from det_jupyter.scheduler.reasons.whatif import Change
from det_jupyter.scheduler.reasons.words import file_of, listed, shown
from det_jupyter.wire import DeviceProcess, Remedy
from det_jupyter.words import count, lasting, size

IDLE_S = 60.0  # a process that uses its device now and then is not idle
_AGENTS = 16  # that are looked at

Test = Callable[[Sequence[AgentSlots]], bool]


def device_remedies(situation: Situation, test: Test | None = None) -> Iterator[Remedy]:
    """Yield what would give the request slots that are withheld now: at most one of each kind.

    Args:
        situation: As it is.
        test: Whether agents that offer this are enough; None: whether it starts then.
    """
    test = test or (lambda agents: situation.starts(Change(agents=tuple(agents))))
    for maker in (_enable, _free):
        for agent_id, withheld in situation.withheld[:_AGENTS]:
            if (remedy := maker(situation, agent_id, withheld, test)) is not None:
                yield remedy
                break


def disabled_only(withheld: Withheld) -> tuple[int, ...]:
    """Return the slots that enabling would make usable."""
    return tuple(slot for slot in withheld.disabled if slot not in withheld.occupied)


def occupied_only(withheld: Withheld) -> tuple[int, ...]:
    """Return the slots that only strangers keep from use."""
    return tuple(slot for slot in sorted(withheld.occupied) if slot not in withheld.disabled)


def _enable(situation: Situation, agent_id: str, withheld: Withheld, test: Test) -> Remedy | None:
    if situation.request.slots == 0:
        is_open = situation.survey.rooms[agent_id].agent.is_open
        if is_open or not withheld.disabled or not test(_with_slots(situation, agent_id, ())):
            return None
        return _enabled(agent_id, withheld.disabled)
    held = held_on(situation, agent_id)
    slots = sorted(disabled_only(withheld), key=lambda slot: (slot in held, slot))
    found = _fewest(situation, agent_id, slots, test)
    return None if found is None else _enabled(agent_id, found)


def _enabled(agent_id: str, slots: Collection[int]) -> Remedy:
    return Remedy(
        verb="enable_slots",
        target=[agent_id],
        values={"slot_ids": sorted(slots)},
        text=f"enable {count(len(slots), 'slot')} of agent {shown(agent_id)} again",
    )


def held_on(situation: Situation, agent_id: str) -> set[int]:
    """Return the slots that gangs hold on an agent, those that are given out no more too."""
    gangs = situation.survey.pool.on_agent(agent_id)
    return {slot for gang in gangs for slot in gang.slots_on(agent_id)}


def draining(situation: Situation) -> list[Room]:
    """Return the agents with disabled slots that a gang still holds."""
    return [
        situation.survey.rooms[agent_id]
        for agent_id, withheld in situation.withheld
        if held_on(situation, agent_id).intersection(withheld.disabled)
    ]


def strangers(situation: Situation) -> list[DeviceProcess]:
    """Return the processes on devices that the request could use otherwise, each once an agent."""
    found: dict[tuple[str, int, str], DeviceProcess] = {}
    for agent_id, withheld in sorted(situation.withheld, key=itemgetter(0)):
        for slot in sorted(withheld.occupied):
            for process in withheld.occupied[slot]:
                found.setdefault((agent_id, process.pid, process.command), process)
    return list(found.values())


def _fewest(
    situation: Situation, agent_id: str, slots: Sequence[int], test: Test
) -> Sequence[int] | None:
    """Return the fewest first slots that are enough; None if all of them are not."""
    if not slots or not test(_with_slots(situation, agent_id, slots)):
        return None
    low, high = 1, len(slots)
    while low < high:  # more slots are never worse, but for whole agents: checked at the end
        middle = (low + high) // 2
        if test(_with_slots(situation, agent_id, slots[:middle])):
            high = middle
        else:
            low = middle + 1
    return slots[:high]


def _with_slots(situation: Situation, agent_id: str, slots: Collection[int]) -> list[AgentSlots]:
    """Return an agent with more of its slots given out."""
    agent = situation.survey.rooms[agent_id].agent
    more = tuple(sorted({*agent.slots, *slots}))
    return [replace(agent, slots=more, is_open=True)]


def _free(situation: Situation, agent_id: str, withheld: Withheld, test: Test) -> Remedy | None:
    if situation.request.slots == 0:
        return None
    held = held_on(situation, agent_id)
    slots = list(occupied_only(withheld))
    slots.sort(key=lambda slot: (slot in held, _busy(withheld.occupied[slot]), slot))
    found = _fewest(situation, agent_id, slots, test)
    if found is None:
        return None
    users = {process.pid: process for slot in found for process in withheld.occupied[slot]}
    # What they use besides comes free too, and a whole agent must not become too large.
    freed = [slot for slot in slots if users.keys() >= {p.pid for p in withheld.occupied[slot]}]
    if len(freed) > len(found) and not test(_with_slots(situation, agent_id, freed)):
        return None
    return _freed(situation, agent_id, found, list(users.values()))


def _busy(processes: Sequence[DeviceProcess]) -> tuple[int, float]:
    """Rank devices by whose loss hurts least: few processes, idle for long."""
    since = [inf if p.idle_since is None else p.idle_since for p in processes]
    return (len(processes), max(since, default=0.0))


def _freed(
    situation: Situation, agent_id: str, slots: Collection[int], users: Sequence[DeviceProcess]
) -> Remedy:
    """Return how to get devices back: what idles may be ended, the rest is asked for."""
    facts = situation.survey.facts
    own = [user for user in users if user.user in ("", facts.own_user)]
    steps = [
        _step([user for user in own if user.notebook], "shut down", facts.now),
        _step([user for user in own if not user.notebook], "end", facts.now),
    ]
    for name in dict.fromkeys(user.user for user in users if user not in own):
        theirs = [user for user in users if user.user == name]
        steps.append(_step(theirs, f"ask {shown(name)} to end", facts.now))
    busy = [
        str(user.pid)
        for user in users
        if user.idle_since is None or facts.now - user.idle_since <= IDLE_S
    ]
    may_be_busy = f"; pid {listed(busy)} may be busy" if busy else ""
    is_safe = len(own) == len(users) and not busy and not any(user.notebook for user in users)
    return Remedy(
        verb="end_processes" if is_safe else "ask_for_devices",
        target=[agent_id],
        values={"slot_ids": list(slots), "pids": [user.pid for user in users]},
        text=f"{' and '.join(filter(None, steps))} on agent {shown(agent_id)}{may_be_busy}",
    )


def _step(users: Sequence[DeviceProcess], verb: str, now: float) -> str:
    return f"{verb} {listed([stranger(user, now) for user in users])}" if users else ""


def stranger(process: DeviceProcess, now: float) -> str:
    """Return who uses a device, in words: `python train.py (pid 71, 12 GB, idle for 2 h)`."""
    name = shown(process.command, 40) or "a process"
    if process.notebook:
        name = f"the kernel of {file_of(process.notebook)}"
    facts = [f"pid {process.pid}"]
    if process.user:
        facts.append(shown(process.user))
    if process.memory_bytes:
        facts.append(size(process.memory_bytes))
    if process.idle_since is not None:
        facts.append(f"idle for {lasting(now - process.idle_since)}")
    return f"{name} ({', '.join(facts)})"
