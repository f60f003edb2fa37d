"""Agents that come and go. The runs that an agent reports are compared with the allocations here.

we have             the agent says      then
STARTING            nothing             it missed the order: start again
its ranks started   nothing             lost with an agent before this one: run again elsewhere
STOPPING            nothing             it never started, and never will
STOPPING            alive               it may have missed the order: leave
any                 alive               it goes on; it may have missed a farther target, or orders
any                 not alive           wait: its journals and its exit will come
nothing             alive               it is of no use: kill
"""

from __future__ import annotations

from det_jupyter.contract.messages import AllocationState, GangExited, KillGang, State
from det_jupyter.master.machine.handlers.runs import on_gang_exited
from det_jupyter.master.machine.model.events import (
    AgentAway,
    AgentLost,
    AgentRegistered,
    DevicesReported,
)
from det_jupyter.master.machine.model.state import Agent, Allocation, Trial
from det_jupyter.master.machine.model.turn import Turn, attribute_errors_to
from det_jupyter.master.machine.rules.placing import (
    send_start,
    send_stop,
    send_target,
    stop_run,
)
from det_jupyter.master.machine.rules.trial_orders import send_orders


def on_agent_registered(turn: Turn, event: AgentRegistered) -> None:
    """Note an agent, new or back, and settle what became of its runs."""
    turn.state.lost_agents.pop(event.agent_id, None)
    before = turn.state.agents.get(event.agent_id)
    offered = {slot.id for slot in event.slots}
    turn.state.agents[event.agent_id] = Agent.built_from(
        event,
        id=event.agent_id,
        disabled=[id for id in turn.state.disabled.get(event.agent_id, ()) if id in offered],
        occupied={id: who for id, who in event.devices.items() if who},
    )
    turn.queue.note_change()
    if before is not None and before.problem:
        _tell_problem(turn, turn.state.agents[event.agent_id])
    lives = {run.allocation_id: run.alive for run in event.runs}
    for trial, allocation in _held_by(turn, event.agent_id):
        if allocation.agent_id != event.agent_id:
            continue  # the agent of its chief carries the whole gang, and reports on it
        with attribute_errors_to(trial.experiment_id):
            _settle(turn, trial, allocation, lives.get(allocation.id))
    for allocation_id, is_alive in lives.items():
        if is_alive and turn.state.find_allocation(allocation_id) is None:
            turn.send(event.agent_id, KillGang(allocation_id=allocation_id))


def _settle(turn: Turn, trial: Trial, allocation: Allocation, is_alive: bool | None) -> None:
    """Act on the agent's report of a run; None: the agent does not know it."""
    if is_alive is None:
        _settle_unknown(turn, trial, allocation)
    elif is_alive and allocation.state is AllocationState.STOPPING:
        at_once = trial.state in (State.STOPPING_KILLED, State.STOPPING_ERROR)
        send_stop(turn, trial, allocation, at_once=at_once)
    elif is_alive:
        if trial.target != allocation.planned_target:
            send_target(turn, trial, allocation)
        send_orders(turn, trial)


def _settle_unknown(turn: Turn, trial: Trial, allocation: Allocation) -> None:
    """An agent has its slots but knows nothing of the run."""
    is_wanted = allocation.state is AllocationState.STARTING and not allocation.ranks
    if is_wanted and _are_offered(turn, allocation):
        send_start(turn, trial, allocation)
    else:
        on_gang_exited(turn, _lost(allocation, turn.now))


def _are_offered(turn: Turn, allocation: Allocation) -> bool:
    """Return whether its agents still have all its slots."""
    agents = turn.state.agents
    offered = {(agent.id, slot.id) for agent in agents.values() for slot in agent.slots}
    held = zip(allocation.agent_ids, (slot.id for slot in allocation.slots), strict=True)
    return all(agent in agents and (id < 0 or (agent, id) in offered) for agent, id in held)


def on_agent_away(turn: Turn, event: AgentAway) -> None:
    """Start nothing on an agent that does not listen; what runs there goes on."""
    agent = turn.state.agents.get(event.agent_id)
    if agent is None:
        return
    if not agent.is_away:
        agent.is_away = True
        turn.queue.note_change()
    if agent.problem != event.problem:
        agent.problem = event.problem
        _tell_problem(turn, agent)


def _tell_problem(turn: Turn, agent: Agent) -> None:
    """Show with the trials on an agent what is wrong with it, or that nothing is."""
    for trial, _ in _held_by(turn, agent.id):
        turn.touch(trial, f"agent {agent.id}: {agent.problem or 'listens again'}")


def on_agent_lost(turn: Turn, event: AgentLost) -> None:
    """Forget an agent; whatever ran there is dead, or shall be."""
    agent_id = event.agent_id
    if lost := turn.state.agents.pop(agent_id, None):
        turn.state.lost_agents[agent_id] = lost
    for trial, allocation in _held_by(turn, agent_id):
        with attribute_errors_to(trial.experiment_id):
            if allocation.agent_id == agent_id:
                on_gang_exited(turn, _lost(allocation, turn.now))
            else:  # the agent of its chief carries it, and reports when all of its ranks are gone
                turn.touch(trial, "lost some of its slots")  # it queues again, not charged for it
                stop_run(turn, trial, at_once=True)
    turn.queue.note_change()


def on_devices_reported(turn: Turn, event: DevicesReported) -> None:
    """Take note of strangers; a gang of ours that is on such a device stays."""
    agent = turn.state.agents.get(event.agent_id)
    if agent is not None:
        agent.occupied = {slot: found for slot, found in event.processes.items() if found}
        turn.queue.note_change()


def _held_by(turn: Turn, agent_id: str) -> list[tuple[Trial, Allocation]]:
    return [
        (trial, trial.allocation)
        for trial in turn.indexes.trials_on_agent(agent_id)
        if trial.allocation is not None
    ]


def _lost(allocation: Allocation, now: float) -> GangExited:
    codes: dict[int, int | None] = dict.fromkeys(range(len(allocation.slots)))
    return GangExited(allocation_id=allocation.id, at=now, exit_codes=codes, lost=True)
