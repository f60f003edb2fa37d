"""The connections between ranks, which a rank shuts so that the others notice that it leaves.

gloo does not tell which sockets are its own. One that leads to another rank is found by its other
end, which that rank has named as one of its own before the training began. What the user's code
has connected to a tracker or a database, and the sockets of a kernel, stay open.

Connections that are made later, as by a new process group, are not known: a rank that waits for
one notices later.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from collections.abc import Container, Iterator
from contextlib import suppress

End = tuple[str, int]  # IP address and port

_IP = (socket.AF_INET, socket.AF_INET6)
_OPEN_FILES = "/dev/fd"  # on Linux and macOS


def own_ends() -> set[End]:
    """Return this process's ends of its TCP connections."""
    return {own for _, own, _ in _connections()}


def shut_connections(ends: Container[End]) -> None:
    """Shut the connections to these ends: calls that wait for them return, there too.

    Sockets that listen stay as they are: gloo would abort the process.
    """
    for connection, _, other in _connections():
        if other in ends:
            with suppress(OSError):  # it was shut meanwhile
                connection.shutdown(socket.SHUT_RDWR)


def _connections() -> Iterator[tuple[socket.socket, End, End]]:
    """Yield this process's TCP connections, each with its own and its other end."""
    with suppress(OSError):  # a system without that folder
        for name in os.listdir(_OPEN_FILES):
            with suppress(OSError):  # a file that was closed meanwhile, or is not connected
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    with socket.socket(fileno=os.dup(int(name))) as connection:
                        if connection.family in _IP and connection.type == socket.SOCK_STREAM:
                            other = _end(connection.getpeername())
                            yield connection, _end(connection.getsockname()), other


def _end(address: tuple[str, int, *tuple[int, ...]]) -> End:
    """Return an end of a connection, which may be named as one of IPv6 in one process only."""
    ip = ipaddress.ip_address(address[0].partition("%")[0])
    return str(getattr(ip, "ipv4_mapped", None) or ip), address[1]
