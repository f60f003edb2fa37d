"""The call of a verb from a shell: it connects to the master when the verb first asks for it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from det_jupyter.client.client import Client
from det_jupyter.connection.autostart import connect, require_master
from det_jupyter.connection.session import Session
from det_jupyter.contract.values.reader import SHELL
from det_jupyter.front.verbs.grammar import Call

if TYPE_CHECKING:
    from det_jupyter.client.experiment import Experiment

START = "det master start"


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

    return Call(options=options, client=client, experiment=experiment, reader=SHELL)


def connect_to_running() -> Session:
    """Return a session with the master that runs, if one does; it revives one that was killed."""
    locate = partial(require_master, START, may_revive=True)
    return Session(require_master(START), locate=locate)
