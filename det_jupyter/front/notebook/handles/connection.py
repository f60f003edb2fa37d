"""This kernel's clients of the master, created at first use."""

from __future__ import annotations

import functools

from det_jupyter.client import Client
from det_jupyter.connection import Session, connect, require_master
from det_jupyter.contract.values.reader import NOTEBOOK


@functools.cache
def client() -> Client:
    """Return this kernel's client; it starts the master if none runs."""
    session = connect()
    line = f"{NOTEBOOK.experiment} list"
    locate = functools.partial(require_master, line, may_revive=True)
    return Client(session, watching=Client(Session(session.info, locate=locate)))
