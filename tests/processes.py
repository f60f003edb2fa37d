"""A private det_jupyter for a test: master, agent and their processes; none is left afterwards.

`det_home` sets `DET_JUPYTER_HOME` to an empty folder. At the end it stops the processes of that
home, and fails if a process, a socket or a temporary file of it is left.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from det_jupyter.client import Client
from det_jupyter.connection import connect, find_master
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import Kill
from tests.homes import find as find
from tests.homes import is_gone as is_gone
from tests.homes import processes_below as processes_below
from tests.homes import processes_of as processes_of
from tests.waiting import StillError
from tests.waiting import wait_until as wait_until
from tests.waiting import wait_until_gone as wait_until_gone

# Extensions that Jupyter Server would load for seconds, unless they are disabled.
OTHER_EXTENSIONS = (
    "jupyter_lsp",
    "jupyter_server_terminals",
    "jupyterlab",
    "notebook",
    "notebook_shim",
)


class DetHome:
    """A private master and agent."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def client(self) -> Client:
        """Return a client; starts the master."""
        return Client(connect())

    def master(self) -> psutil.Process:
        """Return the master's process."""
        info = wait_until(find_master, "a master runs")
        return psutil.Process(info.pid)

    def agent(self) -> psutil.Process:
        """Return the agent's process."""
        return wait_until(lambda: find(self.path, "det_jupyter.agent"), "an agent runs")

    def end_work(self) -> None:
        """Kill all running and waiting trials, and wait until their slots are free."""
        if find_master() is None:
            return
        client = Client(connect())
        for view in client.experiments():
            if not view.state.is_terminal:
                client.change(Kill(experiment_id=view.id))
        wait_until(lambda: not any(agent.used for agent in client.agents()), "slots are free")
        client.session.close()

    def stop(self) -> None:
        """End all processes in order."""
        if find_master() is not None:
            client = Client(connect())
            client.session.post("/master/stop", {"everything": True})
            client.session.close()

    def end(self) -> None:
        """End all processes; fail if a process or a socket is left."""
        sockets = socket_folders(self.path)
        self.stop()
        self.assert_nothing_left()
        left = [folder for folder in sockets if folder.exists()]
        assert not left, f"sockets were left behind in {left}"

    def assert_nothing_left(self) -> None:
        """Fail if a process is left; kill it, so that later tests do not fail too."""
        with suppress(StillError):
            wait_until(lambda: not processes_of(self.path), "all processes have ended")
        left = processes_of(self.path)
        names = [f"{p.pid}: {' '.join(p.cmdline())[:100]}" for p in left]
        for process in left:
            process.kill()
        assert not names, "processes left behind:\n" + "\n".join(names)


def socket_folders(home: Path) -> list[Path]:
    """Return the folders of the agent's and the master's sockets, if they exist."""
    notes = home.glob("runtime/*.sockets")
    return [Path(note.read_text()) for note in notes]


@contextmanager
def det_home(path: Path, variables: Mapping[str, str]) -> Iterator[DetHome]:
    """Run a private det_jupyter with these environment variables; nothing is left afterwards."""
    with at_home(path, variables) as home:
        try:
            yield home
        finally:
            home.end()


@contextmanager
def at_home(path: Path, variables: Mapping[str, str]) -> Iterator[DetHome]:
    """Set this home and these environment variables for new processes; end no process."""
    settings = {paths.HOME_VARIABLE: str(path), **variables}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield DetHome(path)
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
