"""A free port. Imports only `socket`, since launchers use it."""

from __future__ import annotations

import socket


def free_port(host: str = "127.0.0.1") -> int:
    """Return a TCP port that is free now on the interface `host` ("": all interfaces)."""
    with socket.socket() as server:
        server.bind((host, 0))
        port: int = server.getsockname()[1]
    return port
