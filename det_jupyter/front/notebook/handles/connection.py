"""This kernel's clients of the master, created at first use."""

from __future__ import annotations

import functools

from det_jupyter.client import Client
from det_jupyter.connection import Session, connect, ensure_master, require_master
from det_jupyter.contract.values.reader import NOTEBOOK


@functools.cache
def client() -> Client:
    """Return this kernel's client; it starts the master if none runs."""
    return Client(connect())


@functools.cache
def watching_client() -> Client:
    """Return the client of live views: it does not start a master that was stopped."""
    line = f"{NOTEBOOK.experiment} list"
    locate = functools.partial(require_master, line, may_revive=True)
    return Client(Session(ensure_master(), locate=locate))
