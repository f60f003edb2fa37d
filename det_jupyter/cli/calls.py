"""The call of a verb from a shell: it connects to the master when the verb first asks for it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from det_jupyter.autostart import connect, ensure_master, find_master
from det_jupyter.client.client import Client
from det_jupyter.errors import MasterUnreachable
from det_jupyter.session import Session
from det_jupyter.system import paths
from det_jupyter.verbs.grammar import Call
from det_jupyter.wire import MasterInfo

if TYPE_CHECKING:
    from det_jupyter.client.experiment import Experiment


class LateClient(Client):
    """A client whose session is opened when something is first asked."""

    def __init__(self, connect: Callable[[], Session]) -> None:
        self._connect = connect
        self._unanswered = {}

    def __getattr__(self, name: str) -> Session:
        if name != "session":
            raise AttributeError(name)
        self.session = self._connect()
        return self.session


def shell_call(options: argparse.Namespace) -> Call:
    """Return the call that a line makes."""
    client = LateClient(connect if options.verb.starts_master else connect_to_running)

    def experiment(number: int) -> Experiment:
        from det_jupyter.client.experiment import Experiment  # imports what few verbs need

        return Experiment(client, number)

    return Call(options=options, client=client, experiment=experiment, is_shell=True)


def connect_to_running() -> Session:
    """Return a session with the master that runs, if one does."""
    return Session(require_master(), locate=_find_again)


def _find_again() -> MasterInfo:
    """Return where the master is now: started anew if it was killed, not if it was stopped."""
    if paths.master_file().exists():  # one that is stopped takes its file away
        return ensure_master()
    return require_master()


def require_master() -> MasterInfo:
    """Return where the running master is, or raise that none runs."""
    if info := find_master():
        return info
    raise MasterUnreachable("no det_jupyter master runs; `det master start` starts it")
