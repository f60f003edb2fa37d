"""How verbs of `det` reach the master: when they send their first request."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from det_jupyter.client.client import Client
from det_jupyter.connection import Session, connect, require_master
from det_jupyter.contract.values.reader import SHELL
from det_jupyter.errors import NotFound
from det_jupyter.front.verbs.grammar import Call

if TYPE_CHECKING:
    from det_jupyter.client.handles.experiment import Experiment

START = "det master start"


class LazyClient(Client):
    """A client that opens its session with its first request."""

    def __init__(self, connect: Callable[[], Session], watching: Client | None = None) -> None:
        self._connect = connect
        self._unanswered = {}
        self.watching = watching or self

    def __getattr__(self, name: str) -> Session:
        if name != "session":
            raise AttributeError(name)
        self.session = self._connect()
        return self.session


def shell_call(options: argparse.Namespace) -> Call:
    """Return the `Call` of a parsed line, with a client that connects lazily."""
    client = LazyClient(connect_to_running)
    if options.verb.starts_master:
        client = LazyClient(connect, watching=client)

    def experiment(number: int) -> Experiment:
        from det_jupyter.client.handles.experiment import Experiment  # imports what few verbs need

        return Experiment(client, number)

    return Call(options=options, client=client, experiment=experiment, reader=SHELL)


def carry_out(call: Call) -> Any:
    """Run the verb of a call; return its exit status, text or handle.

    Raises:
        DetError: It was refused or failed; what does not exist is named with what there is.
    """
    try:
        return call.options.verb.run(call)
    except NotFound as error:
        from det_jupyter.front.verbs.experiment_list import with_existing

        raise with_existing(error, call.client, call.reader) from None


def connect_to_running() -> Session:
    """Return a session with the running master; restart one that was killed.

    Raises:
        MasterUnreachable: No master runs, and none was killed.
    """
    locate = partial(require_master, START, may_revive=True)
    return Session(require_master(START), locate=locate)
