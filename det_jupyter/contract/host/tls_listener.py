"""Listening sockets for TLS, on which a bounded number of connections wait for their handshake.

asyncio calls a protocol when the handshake is over. Until then a connection that sends nothing
holds a file of this process, for a minute by default; a program that reaches the port could open
so many that none is left, for other ports either.
"""

from __future__ import annotations

import socket
from asyncio import BaseTransport
from contextlib import suppress

from det_jupyter.contract.host.pending_connections import PendingConnections


class TlsListener(socket.socket):
    """A listening socket that closes connections whose handshake takes long, or is one of many.

    The server must call `note_handshake` for each connection.
    """

    # For attributes: socket.socket has none.
    __slots__ = ("_by_file", "_pending")

    def __init__(self, family: socket.AddressFamily) -> None:
        # With `proto`, asyncio disables Nagle's algorithm (see serve.py).
        super().__init__(family, proto=socket.IPPROTO_TCP)
        self._pending: PendingConnections[socket.socket] = PendingConnections(_hang_up)
        self._by_file: dict[int, socket.socket] = {}

    def accept(self) -> tuple[socket.socket, object]:
        """Accept a connection, which is pending until its handshake is over."""
        connection, address = super().accept()
        # A former connection with this file was closed before its handshake was over.
        self._forget(connection.fileno())
        self._by_file[connection.fileno()] = connection
        self._pending.add(connection)
        return connection, address

    def note_handshake(self, transport: BaseTransport) -> None:
        """Stop counting a connection as pending: its handshake is over."""
        self._forget(transport.get_extra_info("socket").fileno())

    def _forget(self, file: int) -> None:
        if (connection := self._by_file.pop(file, None)) is not None:
            self._pending.remove(connection)


def listen_for_tls(port: int) -> TlsListener:
    """Return a socket that is bound to all interfaces, at any free port if it is 0.

    Raises:
        OSError: The port cannot be opened.
    """
    is_dual = socket.has_dualstack_ipv6()
    listener = TlsListener(socket.AF_INET6 if is_dual else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_dual:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("", port))
    except OSError:
        listener.close()
        raise
    return listener


def _hang_up(connection: socket.socket) -> None:
    """End the connection, so that asyncio closes it; it may have done so before."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
