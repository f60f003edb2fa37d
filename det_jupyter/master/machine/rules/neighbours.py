"""Which gangs wait only because other masters of an agent's computer have its slots.

The agent writes it where theirs see it (agent/devices/neighbours.py), so that slots which become
free are kept for who is next.
"""

from __future__ import annotations

from collections.abc import Mapping

from det_jupyter.contract.messages import WantSlots
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.scheduler.decide import PassFailed, decide
from det_jupyter.scheduler.snapshot import Snapshot

_NOTHING = WantSlots(sizes=[], slot_ids=[])


def publish_wants(turn: Turn, pool: str) -> None:
    """Send each agent of a pool that shares its slots which gangs wait, if that has changed."""
    agents = turn.state.agents_of(pool)
    is_shared = any(agent.is_shared for agent in agents)
    if not is_shared and all(agent.wants == _NOTHING for agent in agents):
        return
    wanted = _wanted(turn.queue.without_neighbours(pool), turn.now) if is_shared else {}
    for agent in agents:
        wants = wanted.get(agent.id, _NOTHING) if agent.is_shared else _NOTHING
        if wants != agent.wants:
            agent.wants = wants
            turn.send(agent.id, wants)


def _wanted(pool: Snapshot, now: float) -> Mapping[str, WantSlots]:
    try:
        starts = decide(pool, now).starts
    except PassFailed:  # the experiment at fault is given up by the pass that counts
        return {}
    sizes: dict[str, list[int]] = {}
    for start in starts:
        left = pool.waiting[start.request_id].slots  # an elastic gang is kept its fewest only
        for part in start.parts:
            if num := min(left, len(part.slot_ids)):
                sizes.setdefault(part.agent_id, []).append(num)
                left -= num
    return {
        agent: WantSlots(sizes=found, slot_ids=list(pool.agents[agent].slots))
        for agent, found in sizes.items()
    }
