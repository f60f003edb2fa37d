"""The feeder's line to the master: finds it, says what is wrong with it, and never starts one
that was stopped.

A master that was killed has left its file behind: it is started again, as every program that
watches does (`autostart.require_master`). Whether one is started at first is for the Jupyter
server's administrator to say.
"""

from __future__ import annotations

import logging
import threading

from det_jupyter.client import Client
from det_jupyter.connection.autostart import ensure_master, find_master
from det_jupyter.connection.session import Session, must_be_awake
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import MasterInfo
from det_jupyter.contract.messages.pages import ABSENT, MasterState
from det_jupyter.errors import DetError, MasterUnreachable, ProtocolMismatch

logger = logging.getLogger(__name__)


class MasterLine:
    """The line to the user's master; for any thread. The first `look` starts one, if it may."""

    def __init__(self, *, may_start: bool) -> None:
        self._may_start = may_start
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._start_problem = ""
        self._starting: threading.Thread | None = None

    def client(self) -> Client:
        """Return what talks to the master.

        Raises:
            MasterUnreachable: There is none that could be talked to.
        """
        with self._lock:
            if self._client is None:
                self._client = Client(Session(_locate(), locate=_locate))
            return self._client

    def look(self) -> MasterState:
        """Return the state of the master; starts it in the background where that is due."""
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
        except (DetError, OSError) as error:  # its folder cannot be used
            return MasterState(state="stopped", problem=f"the master cannot be found: {error}")
        self._may_start, self._start_problem = False, ""
        return MasterState(state="running", version=info.version)

    def _absent(self) -> MasterState:
        if self._starting is not None and self._starting.is_alive():
            return MasterState(state="starting")
        # A master that is stopped takes its file away; ours was killed if the file is there.
        is_ours_gone = self._client is not None and not self._start_problem
        if self._may_start or (is_ours_gone and paths.master_file().exists()):
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
    """Return where the master is.

    Raises:
        MasterUnreachable: There is none that could be talked to: what follows it waits for another
            one, or for its folder to come back.
    """
    try:
        info = find_master()
    except (DetError, OSError) as error:
        raise MasterUnreachable(str(error)) from None
    if info is None:
        raise MasterUnreachable(ABSENT)
    return info
