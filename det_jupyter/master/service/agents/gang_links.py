"""Adds the data with which its agents connect to the start of a gang on several computers.

The link (`GangLink`) is added when the command is sent, so that neither the key nor the secret is
in an event, the database or a log. The link of a gang never changes, so a start may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

from det_jupyter.contract.messages import AgentCommand, GangExited, GangLink, StartGang
from det_jupyter.errors import DetError
from det_jupyter.master.machine.model.state import MachineState
from det_jupyter.master.service.agents.agent_access import AgentAccess


def with_link(
    command: AgentCommand, agent_id: str, state: MachineState, access: AgentAccess
) -> AgentCommand:
    """Return a command for an agent; if it starts a gang on several computers, with the link.

    Args:
        command: The command.
        agent_id: The agent that gets the command. Only agents that accept connections get the key.
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
    names = list(dict.fromkeys(command.plan.agent_ids))  # in the order of group ranks
    chief = state.agents.get(names[0])
    if chief is None or not chief.port:
        raise DetError(
            f"the ranks are on {' and '.join(names)}, and agent {names[0]} accepts no connections "
            "of the others; its log says why. Start that agent anew, or ask for no more "
            "resources.slots_per_trial than one computer has"
        )
    defaults = state.pool_configs[state.pool_of_agent(names[0])].task_container_defaults
    link = link_between(names, command.plan.allocation_id, state, access)
    link.interface = defaults.dtrain_network_interface
    if agent_id in state.agents and not state.agents[agent_id].port:
        link.key = ""
    return command.model_copy(update={"link": link})


def link_between(
    names: Sequence[str], purpose: str, state: MachineState, access: AgentAccess
) -> GangLink:
    """Return the data with which agents connect to each other, including the key.

    Args:
        names: The agents.
        purpose: The id of the gang or check, from which the secret is derived.
        state: Has the agents.
        access: Has the certificate.

    Raises:
        DetError: There is no certificate.
        OSError: A file of `access` cannot be read or written.
    """
    certificate, key = access.gang_certificate()
    agents = [state.agents.get(name) for name in names]
    return GangLink(
        agents=list(names),
        addresses=[agent.address if agent else "" for agent in agents],
        ports=[agent.port if agent else 0 for agent in agents],
        certificate=certificate,
        key=key,
        secret=access.gang_secret(purpose),
    )


def end_unstarted(
    start: StartGang, agent_id: str, state: MachineState, at: float, error: DetError | OSError
) -> GangExited:
    """Return the end of a part of a gang whose start could not be sent.

    Args:
        start: The command.
        agent_id: The agent that should have got it.
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
