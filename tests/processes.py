"""A private det_jupyter for a test: master, agent and everything below them; none is left after.

`det_home` points `DET_JUPYTER_HOME` at an empty folder. At the end it stops what was started there
and fails if a process, a socket or a temporary file of it is left.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psutil

from det_jupyter.client import Client
from det_jupyter.connection import connect, find_master
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import Kill
from tests.forks import homes_of_forks

T = TypeVar("T")

# Extensions that a Jupyter Server loads, for seconds, unless it is told not to.
OTHER_EXTENSIONS = (
    "jupyter_lsp",
    "jupyter_server_terminals",
    "jupyterlab",
    "notebook",
    "notebook_shim",
)

_HAS_PROC = Path("/proc/self/environ").exists()


def wait_until(condition: Callable[[], T | None], what: str, timeout_s: float = 60.0) -> T:
    """Return the first true value of `condition`; fail when it has none in time."""
    began = time.monotonic()
    while (waited_s := time.monotonic() - began) < timeout_s:
        if value := condition():
            return value
        # Longer where it takes long: to ask may cost 10 ms CPU, here and in a master.
        time.sleep(min(0.1, max(0.02, waited_s / 10)))
    raise AssertionError(f"timed out after {timeout_s:g} s waiting until {what}")


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that waits to be reaped has."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return True


def wait_until_gone(*pids: int) -> None:
    """Wait until these processes have ended."""
    wait_until(lambda: all(map(is_gone, pids)), f"{pids} are gone")


def processes_of(home: Path) -> list[psutil.Process]:
    """Return every live process that was started under this home, whoever its parent is now."""
    return _processes(lambda other: other == str(home))


def _processes(is_ours: Callable[[str], bool]) -> list[psutil.Process]:
    found = []
    forks = {
        each.pid: home
        for each, home in homes_of_forks.items()
        if each.is_running() or not psutil.pid_exists(each.pid)  # what it forked may go on
    }
    for pid in psutil.pids():
        try:
            home = forks.get(os.getsid(pid)) or _home_of(pid)
            if pid == os.getpid() or not home or not is_ours(home):
                continue
            if (process := psutil.Process(pid)).status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (FileNotFoundError, ProcessLookupError, PermissionError, psutil.Error):
            continue
    return found


def _home_of(pid: int) -> str:
    """Return the home that a process was started under; read straight from /proc where there is
    one, as tests poll this ([m] 1 instead of 5 ms CPU for 115 processes).
    """
    if not _HAS_PROC:
        return psutil.Process(pid).environ().get(paths.HOME_VARIABLE, "")
    with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
        environ = b"\0" + file.read()
    _, is_set, rest = environ.partition(os.fsencode(f"\0{paths.HOME_VARIABLE}="))
    return os.fsdecode(rest.partition(b"\0")[0]) if is_set else ""


def find(home: Path, module: str) -> psutil.Process | None:
    """Return the process that runs `python -m <module>` under this home."""
    for process in processes_of(home):
        try:
            line = process.cmdline()
        except psutil.NoSuchProcess:
            continue
        if module in line:
            return process
    return None


def processes_below(folder: Path) -> list[psutil.Process]:
    """Return every live process whose home is somewhere below this folder."""
    return _processes(lambda home: Path(home).is_relative_to(folder))


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
        """Kill what still trains or waits, and have its slots free."""
        if find_master() is None:
            return
        client = Client(connect())
        for view in client.experiments():
            if not view.state.is_terminal:
                client.change(Kill(experiment_id=view.id))
        wait_until(lambda: not any(agent.used for agent in client.agents()), "slots are free")
        client.session.close()

    def stop(self) -> None:
        """End everything, by asking first."""
        if find_master() is not None:
            client = Client(connect())
            client.session.post("/master/stop", {"everything": True})
            client.session.close()

    def end(self) -> None:
        """End everything; fail if a process or a socket is left."""
        sockets = socket_folders(self.path)
        self.stop()
        self.assert_nothing_left()
        left = [folder for folder in sockets if folder.exists()]
        assert not left, f"sockets were left behind in {left}"

    def assert_nothing_left(self) -> None:
        """Fail if a process is left; end it, so that one failure does not become many."""
        deadline = time.monotonic() + 10
        while (left := processes_of(self.path)) and time.monotonic() < deadline:
            time.sleep(0.05)
        names = [f"{p.pid}: {' '.join(p.cmdline())[:100]}" for p in left]
        for process in left:
            process.kill()
        assert not names, "processes left behind:\n" + "\n".join(names)


def socket_folders(home: Path) -> list[Path]:
    """Return the folders of the agent's sockets and of the master's, if there are any."""
    notes = home.glob("runtime/*.sockets")
    return [Path(note.read_text()) for note in notes]


@contextmanager
def det_home(path: Path, variables: Mapping[str, str]) -> Iterator[DetHome]:
    """Run a private det_jupyter with these environment variables; nothing of it is left after."""
    with at_home(path, variables) as home:
        try:
            yield home
        finally:
            home.end()


@contextmanager
def at_home(path: Path, variables: Mapping[str, str]) -> Iterator[DetHome]:
    """Have what is started use this home and these environment variables; end nothing."""
    settings = {paths.HOME_VARIABLE: str(path), **variables}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield DetHome(path)
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
