"""The part of a connection to a master on another computer that an agent's runs need."""

from __future__ import annotations

from dataclasses import dataclass

from det_jupyter.agent.runs.lease import Lease
from det_jupyter.agent.tunnel.listener import GangListener


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteMaster:
    """A master on another computer.

    Args:
        address: Address of its computer.
        lease: Limits how long gangs run without an answer of the master.
        listener: Accepts the other parts of gangs whose rank 0 is here.
    """

    address: str
    lease: Lease
    listener: GangListener
