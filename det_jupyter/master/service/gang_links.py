"""Adds to the start of a gang on several computers how its agents connect to each other.

The link is made when the command is sent, so neither the key nor the secret is in an event, the
database or a log. It is the same each time, so a start may be repeated.
"""

from __future__ import annotations

from det_jupyter.contract.messages import AgentCommand, GangExited, GangLink, StartGang
from det_jupyter.errors import DetError
from det_jupyter.master.machine.model.state import MachineState
from det_jupyter.master.service.agent_access import AgentAccess


def with_link(
    command: AgentCommand, agent_id: str, state: MachineState, access: AgentAccess
) -> AgentCommand:
    """Return a command for an agent; if it starts a gang on several computers, with its link.

    Args:
        command: The command.
        agent_id: The agent that it is for. Only that of the chief gets the key.
        state: Has the agents and the gang.
        access: Has the certificate, and derives the secret.

    Raises:
        DetError: The agent of the chief accepts no other agents, or there is no certificate.
        OSError: A file of `access` cannot be read or written.
    """
    if not isinstance(command, StartGang):
        return command
    found = state.find_allocation(command.plan.allocation_id)
    if found is None or len(found[1].parts) == 1:
        return command
    names = list(dict.fromkeys(command.plan.agent_ids))  # by group rank
    chief = state.agents.get(names[0])
    if chief is None or not chief.port:
        raise DetError(
            f"the ranks are on {' and '.join(names)}, and agent {names[0]} accepts no connections "
            "of the others; its log says why. Start that agent anew, or ask for no more "
            "resources.slots_per_trial than one computer has"
        )
    defaults = state.pool_configs[state.pool_of_agent(names[0])].task_container_defaults
    certificate, key = access.gang_certificate()
    link = GangLink(
        addresses=[state.agents[n].address if n in state.agents else "" for n in names],
        port=chief.port,
        interface=defaults.dtrain_network_interface,
        certificate=certificate,
        key=key if agent_id == names[0] else "",
        secret=access.gang_secret(command.plan.allocation_id),
    )
    return command.model_copy(update={"link": link})


def end_unstarted(
    start: StartGang, agent_id: str, state: MachineState, at: float, error: DetError | OSError
) -> GangExited:
    """Return the end of a part of a gang whose start could not be sent.

    Args:
        start: The command.
        agent_id: The agent that it was for.
        state: Has the gang.
        at: UTC seconds.
        error: Why it could not be sent.
    """
    found = state.find_allocation(start.plan.allocation_id)
    part = state.part_on(found[1], agent_id) if found is not None else None
    return GangExited(
        allocation_id=start.plan.allocation_id,
        at=at,
        exit_codes=dict.fromkeys(part.ranks if part is not None else []),
        error=str(error),
        error_is_final=isinstance(error, DetError),
    )
