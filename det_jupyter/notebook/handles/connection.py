"""This kernel's clients of the master; each is made when it is first needed, and kept."""

from __future__ import annotations

import functools

from det_jupyter.autostart import connect, connect_to_watch
from det_jupyter.client import Client


@functools.cache
def client() -> Client:
    """Return this kernel's client; starts the master if there is none."""
    return Client(connect())


@functools.cache
def watching_client() -> Client:
    """Return the client of live views: it does not start a master that was stopped."""
    return Client(connect_to_watch())
