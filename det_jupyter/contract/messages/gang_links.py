"""How the agents of a gang on several computers connect to each other."""

from __future__ import annotations

from pydantic import Field

from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import PrintableText


class GangLink(Wire):
    """How the agents of a gang on several computers connect to the chief's agent.

    Contains secrets, so it is never written to a file.
    """

    agents: list[str]  # by group rank, as the next two
    # Addresses of the computers, as the others reach them; "": the master's.
    addresses: list[str]
    ports: list[int]  # for TLS; 0: the agent is on the master's computer, and accepts no others
    # Network interface of gloo and NCCL on each computer; "": that of the route to the others.
    interface: str = ""
    certificate: str  # PEM: the one certificate that the other agents trust
    # PEM, of the certificate; only for agents that accept others.
    key: str = Field(default="", repr=False)
    # Hex digits with which the ranks sign, and with which an agent shows that it is of the gang.
    secret: str = Field(repr=False)


class Cut(Wire):
    """Two computers between which no connection is possible, as one of their agents has found."""

    from_agent: PrintableText
    to_agent: PrintableText
    why: PrintableText  # such as "no answer at 10.0.0.5 port 41233"

    @property
    def pair(self) -> frozenset[str]:
        return frozenset((self.from_agent, self.to_agent))

    @property
    def sentence(self) -> str:
        """The problem in words."""
        return (
            f"cannot reach the computer of agent {self.to_agent} from that of agent "
            f"{self.from_agent}: {self.why}"
        )
