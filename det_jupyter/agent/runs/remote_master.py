"""The part of a connection to a master on another computer that an agent's runs need."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias

from det_jupyter.agent.runs.lease import Lease
from det_jupyter.agent.runs.run import Run
from det_jupyter.agent.tunnel.listener import GangListener

Prepare: TypeAlias = Callable[[Run], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteMaster:
    """A master on another computer.

    Args:
        address: Address of its computer.
        prepare: Fetches what a run needs to this computer.
        lease: Limits how long gangs run without an answer of the master.
        listener: Accepts the other parts of gangs whose rank 0 is here.
    """

    address: str
    prepare: Prepare
    lease: Lease
    listener: GangListener
