"""The master's requests that pages may make, each with its resource and action for the authorizer.

Routes of changes (messages/changes.py) are derived from their classes; the others are listed.
Other requests are refused: those of agents and of senders to trackers, for example. `*` matches
one segment of a path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args
from urllib.parse import quote, unquote

from det_jupyter.contract.messages import AnyChange, ChangeRequest, SetPools, SwitchSlots
from det_jupyter.errors import NotFound

# For Jupyter Server's authorizer. `execute` covers running code and stopping the master.
PREFIX = "det_jupyter:"
RESOURCES = ("experiments", "cluster", "logs", "templates", "kernels")
ACTIONS = ("read", "write", "execute")

_TABLE = """
GET     master                      cluster      read
GET     status                      cluster      read
POST    master/stop                 cluster      execute
GET     agents/*/series             cluster      read
GET     cluster                     cluster      read
GET     jobs                        cluster      read
GET     possible                    cluster      read
GET     experiments                 experiments  read
POST    experiments                 experiments  execute
GET     experiments/*               experiments  read
POST    experiments/*/continue      experiments  execute
GET     experiments/*/curves        experiments  read
GET     experiments/*/code          experiments  read
GET     experiments/*/checkpoints   experiments  read
GET     experiments/*/importance    experiments  read
GET     experiments/*/config        experiments  read
GET     experiments/*/logs          logs         read
GET     checkpoints/*               experiments  read
GET     models                      experiments  read
GET     models/*                    experiments  read
POST    preview                     experiments  read
GET     trials/*                    experiments  read
GET     trials/*/timings            experiments  read
GET     trials/*/series             experiments  read
GET     trials/*/reason             experiments  read
GET     trials/*/logs               logs         read
POST    trials/*/continue           experiments  execute
GET     templates                   templates    read
GET     templates/*                 templates    read
PUT     templates/*                 templates    write
DELETE  templates/*                 templates    write
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A request that is relayed to the master."""

    method: str
    pattern: tuple[str, ...]
    resource: str
    action: str

    def fits(self, method: str, parts: list[str]) -> bool:
        return (
            method == self.method
            and len(parts) == len(self.pattern)
            and all(
                expected in ("*", part) for expected, part in zip(self.pattern, parts, strict=True)
            )
        )


def _route_of(change: type[ChangeRequest]) -> Route:
    """Return the route of a class of change requests."""
    parts = change.path.strip("/").split("/")
    return Route(
        method=change.method,
        pattern=tuple("*" if part.startswith("{") else part for part in parts),
        resource="cluster" if change in (SwitchSlots, SetPools) else "experiments",
        action="write",
    )


ROUTES = [
    *(
        Route(method=method, pattern=tuple(path.split("/")), resource=resource, action=action)
        for method, path, resource, action in map(str.split, _TABLE.strip().splitlines())
    ),
    *map(_route_of, get_args(AnyChange)),
]


def find_route(method: str, path: str) -> tuple[Route, str]:
    """Return the route of a request and the path to request from the master.

    Args:
        path: Still percent-encoded.

    Raises:
        NotFound: Pages may not make such a request.
    """
    parts = [unquote(part) for part in path.split("/")]
    is_plain = all(part not in ("", ".", "..") and "/" not in part for part in parts)
    for route in ROUTES if is_plain else []:
        if route.fits(method, parts):
            return route, "/".join(quote(part, safe="") for part in parts)
    raise NotFound(f"{method} {unquote(path)[:200]}: pages cannot send this request to the master")
