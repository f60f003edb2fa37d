"""Changes of which slots may be given out, and in which pools.

SwitchSlots     slots that are given out no more, or again
DevicesReported   strangers on the devices of an agent
SetPools          which pools there are, and their rules

No work is lost by any of it: a trial that has to go is asked to save its state first, and queues
again.
"""

from __future__ import annotations

from det_jupyter.config.pools import parse_pools
from det_jupyter.contract.messages import AllocationState, SetPools, SwitchSlots
from det_jupyter.errors import Conflict, NotFound
from det_jupyter.master.machine.model.events import DevicesReported
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.placing import make_leave


def on_switch_slots(turn: Turn, event: SwitchSlots) -> None:
    """Give slots out no more, or again."""
    agent = turn.state.agents.get(event.agent_id)
    if agent is None:
        known = ", ".join(sorted(turn.state.agents)) or "none"
        raise NotFound(f"there is no agent {event.agent_id!r}; there are: {known}")
    own = {slot.id for slot in agent.slots}
    chosen = own if event.slots is None else set(event.slots)
    if strange := sorted(chosen - own):
        raise NotFound(
            f"agent {agent.id} has no slot {', '.join(map(str, strange))}; "
            f"it has {', '.join(map(str, sorted(own)))}"
        )
    disabled = set(agent.disabled)
    agent.disabled = sorted(disabled - chosen if event.enabled else disabled | chosen)
    turn.state.disabled[agent.id] = agent.disabled
    turn.queue.note_change()
    if event.enabled or event.drain:
        return
    for trial in turn.indexes.holding(agent.id):
        if _stands_on(trial, agent.id, chosen):
            turn.touch(trial, f"its slots on {agent.id} were disabled")
            make_leave(turn, trial, at_once=False)


def _stands_on(trial: Trial, agent_id: str, slot_ids: set[int]) -> bool:
    allocation = trial.allocation
    assert allocation is not None
    if allocation.state is AllocationState.STOPPING:
        return False
    places = zip(allocation.agent_ids, allocation.slots, strict=True)
    return any(agent == agent_id and slot.id in slot_ids for agent, slot in places)


def on_devices_reported(turn: Turn, event: DevicesReported) -> None:
    """Take note of strangers; a gang of ours that is on such a device stays."""
    agent = turn.state.agents.get(event.agent_id)
    if agent is not None:
        agent.occupied = {slot: found for slot, found in event.processes.items() if found}
        turn.queue.note_change()


def on_set_pools(turn: Turn, event: SetPools) -> None:
    """Have these pools from now on; trials go on where they are, and wait where they belong."""
    parsed = parse_pools({"pools": event.pools})
    names = {pool.pool_name for pool in parsed.pools}
    used = {
        experiment.pool: experiment
        for experiment in turn.state.living_experiments()
        if experiment.pool not in names
    }
    if used:
        raise Conflict(
            "; ".join(
                f"pool {name} is needed by experiment {experiment.id}: "
                "end it, or set another pool for it"
                for name, experiment in used.items()
            )
        )
    turn.state.set_pools(event.pools)
    turn.queue.note_all()
