"""Decides which agent processes may register, and keeps the problems of agents.

another version of the protocol     refused until it exits; its trials continue
another Python or torch, elsewhere  refused
a second process of one name        refused while the first is connected or may run trials
"""

from __future__ import annotations

from itertools import chain

from det_jupyter._version import __version__
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.host.versions import find_difference
from det_jupyter.contract.messages import PROTOCOL, OtherVersion, RegisterAgent
from det_jupyter.errors import Conflict, ProtocolMismatch
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.service.agents.links import AgentLinks


class AgentAdmission:
    """Checks registrations; stores the problems of agents, and why some are refused.

    Args:
        machine: Has the agents and their trials.
        links: The links to the agents.
    """

    def __init__(self, machine: Machine, links: AgentLinks) -> None:
        self._machine = machine
        self._links = links
        self._refusals: dict[str, str] = {}  # by agent: why it is refused
        # By agent: problems of its options and variables.
        self._problems: dict[str, list[str]] = {}

    def check(
        self, agent_id: str, registration: RegisterAgent | OtherVersion, *, is_remote: bool
    ) -> RegisterAgent:
        """Return the registration if the agent process may register.

        Args:
            agent_id: The agent's name.
            registration: The registration that it has sent.
            is_remote: Whether the agent is on another computer.

        Raises:
            ProtocolMismatch: The agent has another version, or another Python or torch.
            Conflict: Another process of this name may still run trials.
        """
        if isinstance(registration, OtherVersion) or registration.protocol != PROTOCOL:
            raise self._refuse(agent_id, _other_version(agent_id, registration, is_remote))
        if is_remote and (difference := find_difference(agent_id, registration.versions)):
            raise self._refuse(agent_id, difference)
        if is_remote and (problem := self._find_other_process(agent_id, registration)):
            raise Conflict(problem)
        self._refusals.pop(agent_id, None)
        self._problems[agent_id] = registration.problems
        return registration

    def _refuse(self, agent_id: str, why: str) -> ProtocolMismatch:
        self._links.refuse(agent_id)
        self._refusals[agent_id] = why
        return ProtocolMismatch(why)

    def _find_other_process(self, agent_id: str, registration: RegisterAgent) -> str:
        """Return a message if another process of this agent's name may run; else "".

        The same credentials may be used on several computers. A process that reports all runs of
        the agent has the agent's folder, whose lock shows that the former process has exited.
        """
        before = self._machine.state.agents.get(agent_id)
        if before is None or before.session == registration.session:
            return ""
        other = f"process {before.pid} on {before.hostname}"
        if self._links.is_connected(agent_id):
            return (
                f"{other} is connected as agent {agent_id}; end it, or add this computer under "
                "another name: det agent add NAME"
            )
        known = {run.allocation_id for run in registration.runs}
        held = (trial.allocation for trial in self._machine.indexes.trials_on_agent(agent_id))
        living = (
            allocation.id
            for allocation in held
            if allocation is not None and agent_id in [p.agent_id for p in allocation.living_parts]
        )
        if any(allocation_id not in known for allocation_id in living):
            return (
                f"{other} may still run trials as agent {agent_id}; this one can connect when "
                "they count as lost, within 30 s"
            )
        return ""

    def refusal_of(self, agent_id: str) -> str:
        """Return why an agent that still tries to register is refused; "" if none tries."""
        is_trying = self._links.was_refused(agent_id)
        return self._refusals.get(agent_id, "") if is_trying else ""

    def problems(self) -> list[str]:
        """Return the problems of agents' options and variables.

        Also, by name, why agents that never registered and still try are refused.
        """
        unknown = self._refusals.keys() - self._machine.state.agents.keys()
        refusals = [text for agent_id in sorted(unknown) if (text := self.refusal_of(agent_id))]
        return [*dict.fromkeys(chain(*self._problems.values())), *refusals]


def _other_version(
    agent_id: str, registration: RegisterAgent | OtherVersion, is_remote: bool
) -> str:
    pid = registration.pid
    process = ProcessIdentity(pid, registration.birth, registration.hostname)
    versions = (
        f"agent {agent_id} (process {pid}{process.on_host}) is det_jupyter "
        f"{registration.version} (protocol {registration.protocol}), and this master is "
        f"{__version__} (protocol {PROTOCOL})"
    )
    if is_remote:
        return (
            f"{versions}; end it, and install the same version there: pip install "
            f"det-jupyter=={__version__}"
        )
    end = f"`kill {pid}` ends" if process.is_here else "kill it there to end"
    return (
        f"{versions}: its trials train on, and when they have ended one of this version takes "
        f"over; {end} it with them now"
    )
