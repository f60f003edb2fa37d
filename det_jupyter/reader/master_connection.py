"""The feeder's connection to the master: finds it and reports its state to pages.

A master that was killed has left its file behind and is restarted, as by every program that
watches it (`connection.require_master`). One that was stopped is not. Whether one is started when
the feeder starts is a setting of the Jupyter Server's administrator.
"""

from __future__ import annotations

import logging
import threading

from det_jupyter.client import Client
from det_jupyter.connection import Session, ensure_master, find_master, must_be_awake
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import MasterInfo
from det_jupyter.contract.messages.pages import ABSENT, MasterState
from det_jupyter.errors import DetError, MasterUnreachable, ProtocolMismatch

logger = logging.getLogger(__name__)


class MasterConnection:
    """The connection to the user's master. Thread-safe.

    Args:
        may_start: Whether the first `check` starts a master if none runs.
    """

    def __init__(self, *, may_start: bool) -> None:
        self._may_start = may_start
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._start_problem = ""
        self._starting: threading.Thread | None = None

    def client(self) -> Client:
        """Return the client of the master.

        Raises:
            MasterUnreachable: No master of this protocol runs.
        """
        with self._lock:
            if self._client is None:
                self._client = Client(Session(_locate(), locate=_locate))
            return self._client

    def check(self) -> MasterState:
        """Return the state of the master; start it in the background where that is due."""
        try:
            info = find_master()
            if info is None:
                return self._absent()
            must_be_awake(info)
            self.client()
        except ProtocolMismatch as error:
            return MasterState(state="mismatch", problem=str(error), command=error.command)
        except MasterUnreachable as error:
            return MasterState(state="silent", problem=str(error), command=error.command)
        except (DetError, OSError) as error:  # the master's folder cannot be read
            return MasterState(state="stopped", problem=f"the master cannot be found: {error}")
        self._may_start, self._start_problem = False, ""
        return MasterState(state="running", version=info.version)

    def _absent(self) -> MasterState:
        if self._starting is not None and self._starting.is_alive():
            return MasterState(state="starting")
        # A master that stops removes its file; ours was killed if the file is there.
        was_connected = self._client is not None and not self._start_problem
        if self._may_start or (was_connected and paths.master_file().exists()):
            self._may_start = False
            self._starting = threading.Thread(target=self._start, name="det-start", daemon=True)
            self._starting.start()
            return MasterState(state="starting")
        return MasterState(state="stopped", problem=self._start_problem)

    def _start(self) -> None:
        try:
            ensure_master()
        except (DetError, OSError) as error:
            self._start_problem = str(error)
            logger.warning("%s", error)


def _locate() -> MasterInfo:
    """Return the running master's address.

    Raises:
        MasterUnreachable: None runs, or its folder cannot be read: callers retry.
    """
    try:
        info = find_master()
    except (DetError, OSError) as error:
        raise MasterUnreachable(str(error)) from None
    if info is None:
        raise MasterUnreachable(ABSENT)
    return info
