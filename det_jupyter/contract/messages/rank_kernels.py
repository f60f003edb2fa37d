"""Messages by which programs on the master's computer reach kernels of ranks on other computers.

An agent sends a RankKernel when the kernel of a rank has started. For each connection to that
kernel, the master makes a tunnel (agent/link/console_tunnels.py).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from det_jupyter.contract.host.connection_files import NUMBERS
from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import Rank


class RankKernel(Wire):
    """The kernel of a rank, which accepts connections now."""

    allocation_id: str
    rank: Rank
    # The key of its connection file, with which its messages are signed.
    key: Annotated[str, Field(repr=False, pattern="^[0-9a-f]{64}$")]


class OpenTunnel(Wire):
    """Connect to a socket of a rank's kernel, and carry the bytes by two requests to the master.

    The response to `GET tunnels/<id>` has the bytes for the kernel, the request `POST
    tunnels/<id>` has those from it. When one of the three ends, so do the others.
    """

    kind: Literal["open_tunnel"] = "open_tunnel"
    id: str = Field(repr=False)  # random; valid once, for this agent
    allocation_id: str
    rank: Rank
    socket: Annotated[int, Field(ge=NUMBERS[0], le=NUMBERS[-1])]  # connection_files.py
