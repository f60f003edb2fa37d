"""The settings of a cluster whose nodes become agents: in `pools.yaml`, and of its bridge."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from det_jupyter.contract.schema.fields import Bool, Number, Section, Text

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_ADDRESS = re.compile(r"(?P<host>[^\s:/]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[1-9]\d{0,4}))?")
_MAX_NAME = 63  # characters of an agent's name
_NUM_DIGITS = 6  # of a node's id, in the agent's name
_MOST_PORT = 65535
_PORTS = {"ray": 6379}


def _cluster_name(value: Any) -> Any:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise PydanticCustomError("name", "expected up to 32 letters, digits, '.', '_' and '-'")


def _address(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("ray://"):
        raise PydanticCustomError(
            "address",
            "expected HOST:PORT of the cluster's head (6379, not the client server's 10001)",
        )
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is not None and int(match["port"] or 1) <= _MOST_PORT:
        return value
    raise PydanticCustomError("address", "expected HOST:PORT of the cluster's head")


def _slots(value: Any) -> Any:
    if value == "gpu" or (type(value) is int and 1 <= value <= 1024):
        return value
    raise PydanticCustomError("slots", "expected gpu, or a number of CPU places from 1 to 1024")


class ClusterConfig(Section):
    """A cluster."""

    engine: Literal["ray"]
    """The program that manages the cluster."""
    address: Annotated[str, BeforeValidator(_address)]
    """HOST:PORT of its head."""
    name: Annotated[str, BeforeValidator(_cluster_name)] = "ray"
    """The names of its agents begin with it."""
    slots: Annotated[Literal["gpu"] | int, BeforeValidator(_slots)] = "gpu"
    """The slots of a node: all of its GPUs, or this number of CPU places."""
    idle_minutes: Annotated[Number, Field(gt=0, allow_inf_nan=False)] | None = None
    """Time without a trial after which a node is given back; null: never."""
    python: Text = ""
    """The interpreter of agents and ranks on the nodes; "": that of Ray's workers."""
    bridge_python: Text = ""
    """An interpreter with Ray on the master's computer; "": the master's own."""
    token_file: Text = ""
    """A file with the cluster's token; "": where Ray looks for it."""
    without_token: Bool = False
    """Whether to accept a cluster that requires no token of programs that reach its port."""
    master_address: Text = ""
    """The master's computer, as the nodes reach it; "": found by the route to the head."""

    @property
    def host_and_port(self) -> tuple[str, int]:
        """The address, with the engine's usual port if it has none."""
        match = _ADDRESS.fullmatch(self.address)
        assert match is not None
        return match["host"].strip("[]"), int(match["port"] or _PORTS[self.engine])

    @property
    def agent_pattern(self) -> str:
        """The pattern that the names of its agents match."""
        return f"{self.name}-*"

    def agent_name(self, hostname: str, node_id: str) -> str:
        """Return the name of a node's agent.

        >>> config = ClusterConfig(engine="ray", address="head:6379")
        >>> config.agent_name("node-b.example.org", "3f9a1c77aa")
        'ray-node-b-3f9a1c'
        """
        end = f"-{node_id[:_NUM_DIGITS]}"
        host = re.sub(r"[^A-Za-z0-9_-]", "-", hostname.partition(".")[0])
        return f"{self.name}-{host}"[: _MAX_NAME - len(end)] + end
