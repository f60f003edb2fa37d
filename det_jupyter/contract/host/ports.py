"""Ports for programs that have to be given one. Light to import: launchers use it."""

from __future__ import annotations

import socket


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that is free at this moment, on the host's interface; "" means all."""
    with socket.socket() as server:
        server.bind((host, 0))
        port: int = server.getsockname()[1]
    return port
