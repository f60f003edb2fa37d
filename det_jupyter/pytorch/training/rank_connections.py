"""The connections between ranks, which a rank shuts so that the others notice that it leaves.

gloo does not tell which sockets are its own. One that leads to another rank is found by its other
end: a socket of that process, or an address of that computer. What the user's code has connected
to a tracker or a database, and the sockets of a kernel, stay open.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Collection, Iterable
from contextlib import suppress

import psutil

_IP = (socket.AF_INET, socket.AF_INET6)
_CONNECTED = psutil.CONN_ESTABLISHED


def shut_connections(pids: Iterable[int], addresses: Collection[str] = ()) -> None:
    """Shut this process's connections to others: calls that wait for them return, there too.

    Sockets that listen stay as they are: gloo would abort the process.

    Args:
        pids: Processes on this computer; those that have ended are skipped.
        addresses: IP addresses of other computers (`own_addresses` there).
    """
    theirs = {end for pid in pids for _, end, _ in _connections(pid)}
    for number, _, other in _connections(os.getpid()):
        if other in theirs or other[0] in addresses:
            # The descriptor may have been closed, and another file opened, meanwhile.
            with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
                if _end(*connection.getpeername()[:2]) == other:
                    connection.shutdown(socket.SHUT_RDWR)


def own_addresses() -> list[str]:
    """Return the IP addresses of the interfaces over which this rank reaches other computers."""
    interfaces = psutil.net_if_addrs()
    return [
        _end(each.address, 0)[0]
        for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")
        for each in interfaces.get(name, ())
        if each.family in _IP
    ]


def _connections(pid: int) -> list[tuple[int, tuple[str, int], tuple[str, int]]]:
    """Return the descriptors of a process's TCP connections, with their own and other ends."""
    # psutil raises a RuntimeError for what it cannot read, and where it is not implemented.
    with suppress(psutil.Error, OSError, RuntimeError):
        found = psutil.Process(pid).net_connections("tcp")
        return [(c.fd, _end(*c.laddr), _end(*c.raddr)) for c in found if c.status == _CONNECTED]
    return []


def _end(address: str, port: int) -> tuple[str, int]:
    """Return an end of a connection, which may be named as one of IPv6 in one process only."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    return str(getattr(ip, "ipv4_mapped", None) or ip), port
