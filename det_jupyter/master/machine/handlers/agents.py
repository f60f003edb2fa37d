"""Agents register, disconnect and exit. The runs that an agent reports are reconciled with ours.

our allocation      reported run   then
STARTING            none           the agent has missed the command: start it again
its ranks started   none           lost with an earlier agent process: queue the trial again
STOPPING            none           it has not started and never will: it has ended
STOPPING            alive          the agent may have missed the command: stop it again
any other           alive          it goes on; send a farther target or orders that may be missing
any                 not alive      wait for its journals and its exit
none                alive          kill it
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
    """Add or update an agent, and reconcile the runs that it reports with its allocations."""
    turn.state.lost_agents.pop(event.agent_id, None)
    before = turn.state.agents.get(event.agent_id)
    offered = {slot.id for slot in event.slots}
    turn.state.agents[event.agent_id] = Agent.built_from(
        event,
        id=event.agent_id,
        disabled=[id for id in turn.state.disabled.get(event.agent_id, ()) if id in offered],
        occupied={id: found for id, found in event.devices.items() if found},
    )
    turn.queue.mark_changed()
    if before is not None and before.problem:
        _record_problem(turn, turn.state.agents[event.agent_id])
    is_alive = {run.allocation_id: run.alive for run in event.runs}
    for trial, allocation in _allocations_on(turn, event.agent_id):
        if allocation.agent_id != event.agent_id:
            continue  # the chief's agent controls the whole gang, and reports it
        with attribute_errors_to(trial.experiment_id):
            _reconcile(turn, trial, allocation, is_alive.get(allocation.id))
    for allocation_id, alive in is_alive.items():
        if alive and turn.state.find_allocation(allocation_id) is None:
            turn.send(event.agent_id, KillGang(allocation_id=allocation_id))


def _reconcile(turn: Turn, trial: Trial, allocation: Allocation, is_alive: bool | None) -> None:
    """Act on whether the ranks of a run are alive; None: the agent has no such run."""
    if is_alive is None:
        is_unstarted = allocation.state is AllocationState.STARTING and not allocation.ranks
        if is_unstarted and _are_offered(turn, allocation):
            send_start(turn, trial, allocation)
        else:
            on_gang_exited(turn, _lost_gang(allocation, turn.now))
    elif is_alive and allocation.state is AllocationState.STOPPING:
        at_once = trial.state in (State.STOPPING_KILLED, State.STOPPING_ERROR)
        send_stop(turn, trial, allocation, at_once=at_once)
    elif is_alive:
        if trial.target != allocation.planned_target:
            send_target(turn, trial, allocation)
        send_orders(turn, trial)


def _are_offered(turn: Turn, allocation: Allocation) -> bool:
    """Return whether the agents of an allocation still have all of its slots."""
    agents = turn.state.agents
    offered = {(agent.id, slot.id) for agent in agents.values() for slot in agent.slots}
    held = zip(allocation.agent_ids, (slot.id for slot in allocation.slots), strict=True)
    return all(agent in agents and (id < 0 or (agent, id) in offered) for agent, id in held)


def on_agent_away(turn: Turn, event: AgentAway) -> None:
    """Mark an agent as not connected: nothing starts there; what runs there goes on."""
    agent = turn.state.agents.get(event.agent_id)
    if agent is None:
        return
    if not agent.is_away:
        agent.is_away = True
        turn.queue.mark_changed()
    if agent.problem != event.problem:
        agent.problem = event.problem
        _record_problem(turn, agent)


def _record_problem(turn: Turn, agent: Agent) -> None:
    """Add an agent's problem, or its end, to the last events of the trials on the agent."""
    for trial, _ in _allocations_on(turn, agent.id):
        turn.touch(trial, f"agent {agent.id}: {agent.problem or 'listens again'}")


def on_agent_lost(turn: Turn, event: AgentLost) -> None:
    """Remove an agent that has exited; its runs are lost or stopped."""
    agent_id = event.agent_id
    if lost := turn.state.agents.pop(agent_id, None):
        turn.state.lost_agents[agent_id] = lost
    for trial, allocation in _allocations_on(turn, agent_id):
        with attribute_errors_to(trial.experiment_id):
            if allocation.agent_id == agent_id:
                on_gang_exited(turn, _lost_gang(allocation, turn.now))
            else:  # the chief's agent reports when all ranks have exited
                # The trial queues again, and no restart is counted.
                turn.touch(trial, "lost some of its slots")
                stop_run(turn, trial, at_once=True)
    turn.queue.mark_changed()


def on_devices_reported(turn: Turn, event: DevicesReported) -> None:
    """Store which devices other processes use; gangs that run on them stay."""
    agent = turn.state.agents.get(event.agent_id)
    if agent is not None:
        agent.occupied = {slot: found for slot, found in event.processes.items() if found}
        turn.queue.mark_changed()


def _allocations_on(turn: Turn, agent_id: str) -> list[tuple[Trial, Allocation]]:
    return [
        (trial, trial.allocation)
        for trial in turn.indexes.trials_on_agent(agent_id)
        if trial.allocation is not None
    ]


def _lost_gang(allocation: Allocation, now: float) -> GangExited:
    codes: dict[int, int | None] = dict.fromkeys(range(len(allocation.slots)))
    return GangExited(allocation_id=allocation.id, at=now, exit_codes=codes, lost=True)
