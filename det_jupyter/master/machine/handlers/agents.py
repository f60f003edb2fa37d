"""Agents register, disconnect and exit. The runs that an agent reports are reconciled with ours.

An agent reports the part of a gang that its process carries.

our allocation      its part     reported run   then
STARTING            unstarted    none           the agent has missed the command: repeat it
any other           unstarted    none           it will never start: it has ended
any                 started      none           it is lost with an earlier agent process
any                 over         alive          it was given up as lost: kill it
another part failed              alive          the agent may have missed the command: kill it
STOPPING            any          alive          it may have missed the command: repeat it
any other           any          alive          it continues; send the chief a farther target
                                                or orders that may be missing
any                 any          not alive      wait for its journals and its exit
none                             alive          kill it
"""

from __future__ import annotations

from det_jupyter.contract.messages import AllocationState, KillGang, Loss
from det_jupyter.master.machine.handlers.exits import on_gang_exited
from det_jupyter.master.machine.model.allocations import Allocation, GangPart
from det_jupyter.master.machine.model.events import (
    AgentAway,
    AgentLost,
    AgentRegistered,
    AgentRemoved,
    AgentsReachable,
    ClustersChanged,
    DevicesReported,
)
from det_jupyter.master.machine.model.state import Agent, Trial
from det_jupyter.master.machine.model.turn import Turn, attribute_errors_to
from det_jupyter.master.machine.rules.gang_ends import lost_part
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
    if before is None or before.session != event.session:
        turn.state.forget_cuts(event.agent_id)  # the agent may have another address now
    offered = {slot.id for slot in event.slots}
    turn.state.agents[event.agent_id] = Agent.built_from(
        event,
        id=event.agent_id,
        disabled=[id for id in turn.state.disabled.get(event.agent_id, ()) if id in offered],
        occupied={id: found for id, found in event.devices.items() if found},
    )
    if event.is_remote and not event.slots:  # the agent is exiting
        agent = turn.state.agents[event.agent_id]
        agent.left_at = turn.now
        agent.left_slots = before.former.slots if before is not None else []
    turn.state.agents[event.agent_id].note_freed(offered, turn.now)
    turn.queue.mark_changed()
    if before is not None and before.problem:
        _record_problem(turn, turn.state.agents[event.agent_id])
    is_alive = {run.allocation_id: run.alive for run in event.runs}
    for trial, allocation in _allocations_on(turn, event.agent_id):
        part = _part_of(allocation, event.agent_id)
        if part is None:
            continue  # another agent of its process reports the part
        with attribute_errors_to(trial.experiment_id):
            _reconcile(turn, trial, allocation, part, is_alive.get(allocation.id))
    for allocation_id, alive in is_alive.items():
        if alive and turn.state.find_allocation(allocation_id) is None:
            kill = KillGang(allocation_id=allocation_id, gives_up_uploads=True)
            turn.send(event.agent_id, kill)


def _part_of(allocation: Allocation, agent_id: str) -> GangPart | None:
    """Return the part of a gang that is reported by this agent, if there is one."""
    return next((part for part in allocation.parts if part.agent_id == agent_id), None)


def _reconcile(
    turn: Turn, trial: Trial, allocation: Allocation, part: GangPart, is_alive: bool | None
) -> None:
    """Update a part from an agent's report: alive, exited (False), or unknown to it (None)."""
    is_starting = allocation.state is AllocationState.STARTING
    if is_alive and (part.exited is not None or allocation.has_failed_part):
        turn.send_to_parts([part], KillGang(allocation_id=allocation.id))
    elif part.exited is not None:
        return
    elif is_alive is None and (part.is_started or not is_starting or allocation.has_failed_part):
        _end_part(turn, allocation, part)
    elif is_alive is None:
        if _are_offered(turn, allocation, part):
            send_start(turn, trial, allocation, [part])
            _send_later_orders(turn, trial, allocation, part)
        else:
            _end_part(turn, allocation, part)
    elif allocation.state is AllocationState.STOPPING:
        is_kill = allocation.asked_at is None
        if is_alive or is_kill:  # ranks that have ended may wait for uploads, but not if killed
            send_stop(turn, trial, allocation, [part], at_once=is_kill)
    elif is_alive:
        _send_later_orders(turn, trial, allocation, part)


def _end_part(turn: Turn, allocation: Allocation, part: GangPart) -> None:
    """Record that a part has no ranks: they are lost, or were never started."""
    end = lost_part(allocation, part, turn.now, Loss.AGENT)
    if not part.is_started:
        update = {"lost": False, "loss": Loss.UNKNOWN, "killed": True}
        end = end.model_copy(update=update)
    on_gang_exited(turn, end)


def _send_later_orders(turn: Turn, trial: Trial, allocation: Allocation, part: GangPart) -> None:
    """Send the chief's part the orders and targets that its plan does not contain."""
    if part is not allocation.parts[0]:
        return
    if trial.target != allocation.planned_target:
        send_target(turn, trial, allocation)
    send_orders(turn, trial)


def _are_offered(turn: Turn, allocation: Allocation, part: GangPart) -> bool:
    """Return whether the agents of a part still have all of its slots."""
    agents = turn.state.agents
    offered = {(agent.id, slot.id) for agent in agents.values() for slot in agent.slots}
    held = ((allocation.agent_ids[rank], allocation.slots[rank].id) for rank in part.ranks)
    return all(agent in agents and (id < 0 or (agent, id) in offered) for agent, id in held)


def on_agent_away(turn: Turn, event: AgentAway) -> None:
    """Mark an agent as not connected: nothing is started there; what runs there continues."""
    agent = turn.state.agents.get(event.agent_id)
    if agent is None:
        return
    if not agent.is_away:
        agent.is_away = True
        if agent.left_at is None:
            agent.left_at = turn.now
        turn.queue.mark_changed()
    if agent.problem != event.problem:
        agent.problem = event.problem
        turn.queue.mark_changed()  # views of slots show it
        _record_problem(turn, agent)


def _record_problem(turn: Turn, agent: Agent) -> None:
    """Add an agent's problem, or its end, to the last events of the trials on the agent."""
    for trial, _ in _allocations_on(turn, agent.id):
        turn.touch(trial, f"agent {agent.id}: {agent.problem or 'listens again'}")


def on_agent_removed(turn: Turn, event: AgentRemoved) -> None:
    """Record that an agent was removed, so that it is not expected to return once it is lost."""
    turn.state.lost_agents.pop(event.agent_id, None)
    if agent := turn.state.agents.get(event.agent_id):
        agent.is_removed = True
    turn.state.forget_cuts(event.agent_id)
    turn.queue.mark_changed()


def on_agents_reachable(turn: Turn, event: AgentsReachable) -> None:
    """Allow gangs on two agents again, as these can reach each other."""
    turn.state.forget_cuts(*event.agents)
    turn.queue.mark_changed()


def on_clusters_changed(turn: Turn, event: ClustersChanged) -> None:
    """Store the names of the clusters; pools with nodes of a cluster may grow."""
    turn.state.clusters = event.names


def on_agent_lost(turn: Turn, event: AgentLost) -> None:
    """Remove an agent that has exited; its runs are lost or stopped."""
    agent_id = event.agent_id
    lost = turn.state.agents.pop(agent_id, None)
    turn.state.forget_cuts(agent_id)
    if lost is not None and not lost.is_removed:
        turn.state.lost_agents[agent_id] = lost
    for trial, allocation in _allocations_on(turn, agent_id):
        with attribute_errors_to(trial.experiment_id):
            if part := _part_of(allocation, agent_id):
                on_gang_exited(turn, lost_part(allocation, part, turn.now, event.loss))
            else:  # another agent of the process reports the part when its ranks have exited
                # The trial queues again, and no restart is counted.
                turn.touch(trial, "lost some of its slots")
                stop_run(turn, trial, at_once=True)
    turn.queue.mark_changed()


def on_devices_reported(turn: Turn, event: DevicesReported) -> None:
    """Store which devices other processes use and which are lost; gangs on them stay."""
    agent = turn.state.agents.get(event.agent_id)
    if agent is not None:
        before = {*agent.occupied, *agent.lost}
        agent.occupied = {slot: found for slot, found in event.processes.items() if found}
        agent.lost, agent.is_shared = event.lost, event.is_shared
        agent.note_freed(before - {*agent.occupied, *agent.lost}, turn.now)
        turn.queue.mark_changed()


def _allocations_on(turn: Turn, agent_id: str) -> list[tuple[Trial, Allocation]]:
    return [
        (trial, trial.allocation)
        for trial in turn.indexes.trials_on_agent(agent_id)
        if trial.allocation is not None
    ]
