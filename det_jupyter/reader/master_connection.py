"""The reader's connection to the master, for questions and changes; documents need none."""

from __future__ import annotations

import threading

from det_jupyter.client import Client
from det_jupyter.connection import Session, find_master
from det_jupyter.contract.messages import MasterInfo
from det_jupyter.contract.messages.pages import ABSENT
from det_jupyter.errors import DetError, MasterUnreachable


class MasterConnection:
    """The connection to the user's master, made when it is needed. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._client: Client | None = None

    def client(self) -> Client:
        """Return the client of the master.

        Raises:
            MasterUnreachable: No master of this protocol runs.
        """
        with self._lock:
            if self._client is None:
                self._client = Client(Session(_locate(), locate=_locate))
            return self._client


def _locate() -> MasterInfo:
    """Return the running master's address.

    Raises:
        MasterUnreachable: No master runs, or its folder cannot be read; callers retry.
    """
    try:
        info = find_master()
    except (DetError, OSError) as error:
        raise MasterUnreachable(str(error)) from None
    if info is None:
        raise MasterUnreachable(ABSENT)
    return info
