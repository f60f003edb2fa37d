"""The process on a node that runs an agent, without Ray: its class is plain Python."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.engine.ray import agent_host
from det_jupyter.engine.ray.agent_host import AgentHost
from tests.processes import wait_until

AGENT = """#!{python}
import os, sys, time
if sys.argv[1] == "-c":
    os.execv(sys.argv[0], [sys.argv[0], *sys.argv[4:]])
print(sys.stdin.read(), *sys.argv[1:], flush=True)
print(*(f"{{n}}={{os.environ.get(n)}}" for n in {names}), flush=True)
if "stays" in os.environ: time.sleep(60)
"""
NAMES = ["RAY_AUTH_TOKEN", "DET_JUPYTER_CPU_SLOTS", "DET_JUPYTER_HOME"]


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a program that stands for the interpreter, and the agent in it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(AgentHost, "_watch", lambda self: None)  # it would end this process
    file = tmp_path / "python"
    file.write_text(AGENT.format(python=sys.executable, names=NAMES))
    file.chmod(0o700)
    return str(file)


def start(host: AgentHost, python: str, home: str = "m-ray-n-1", **more: str) -> None:
    host.start("ray-n-1", "secret", home, python, {"DET_JUPYTER_CPU_SLOTS": "2", **more})


def ended(host: AgentHost) -> dict[str, Any]:
    wait_until(lambda: host.state()["code"] is not None, "the agent has ended")
    return host.state()


def test_the_agent_gets_credentials_by_stdin_and_nothing_of_ray(
    python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of the cluster")
    host = AgentHost()
    start(host, python)
    state = ended(host)
    folder = tmp_path / f"det-agent-{os.geteuid()}" / "m-ray-n-1"
    assert state["agent"] == "ray-n-1"
    assert state["output"].splitlines() == [
        "secret -m det_jupyter.agent --credentials --grace-s 20",
        f"RAY_AUTH_TOKEN=None DET_JUPYTER_CPU_SLOTS=2 DET_JUPYTER_HOME={folder}",
    ]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_an_agent_ends_as_ordered_and_is_started_once(python: str) -> None:
    host = AgentHost()
    start(host, python, stays="yes")
    assert host.state() == {"agent": "ray-n-1", "code": None, "output": ""}
    start(host, "/none")
    host.end()
    assert ended(host)["code"] == -15


STUB = """
import pathlib, signal, sys, time
def leave(*_): pathlib.Path("left").touch(); sys.exit()
signal.signal(signal.SIGTERM, leave)
pathlib.Path("ready").touch()
time.sleep(60)
"""


@pytest.mark.usefixtures("python")
def test_an_agent_leaves_in_order_when_ray_kills_what_the_actor_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "path" / "det_jupyter"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "agent.py").write_text(STUB)
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start_and_keep(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*args, **kwargs))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start_and_keep)
    start(AgentHost(), sys.executable, PYTHONPATH=str(package.parent))
    folder = tmp_path / f"det-agent-{os.geteuid()}" / "m-ray-n-1"
    wait_until((folder / "ready").exists, "the agent runs")
    started[0].kill()
    started[0].wait()
    wait_until((folder / "left").exists, "it has left")


@pytest.mark.usefixtures("python")
def test_an_interpreter_that_is_missing_is_named() -> None:
    host = AgentHost()
    start(host, "/none/python")
    assert host.state()["code"] == 1
    assert "/none/python" in host.state()["output"]


@pytest.mark.parametrize("kind", ["link", "of another user"])
def test_nothing_is_written_to_a_folder_that_another_user_has_made(
    python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    parent, target = tmp_path / f"det-agent-{os.geteuid()}", tmp_path / "target"
    target.mkdir()
    if kind == "link":
        parent.symlink_to(target)
    else:
        uid = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: uid)
        parent = tmp_path / f"det-agent-{uid}"
        parent.mkdir()
    host = AgentHost()
    start(host, python)
    assert host.state()["output"] == f"{parent} is not a folder of this user; remove it there"
    assert list(parent.iterdir()) == []


def test_folders_of_a_nodes_former_ids_are_removed_unless_in_use(tmp_path: Path) -> None:
    for name in ("m-ray-n-1", "m-ray-n-2", "m-ray-n-3", "m-ray-n-b-2", "k-ray-n-2"):
        (tmp_path / name / "data").mkdir(parents=True)
        (tmp_path / name / "data" / "agent.lock").touch()
    with open(tmp_path / "m-ray-n-3" / "data" / "agent.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        agent_host._remove_siblings(tmp_path / "m-ray-n-1")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["k-ray-n-2", "m-ray-n-1", "m-ray-n-3", "m-ray-n-b-2"]


class Ended(BaseException):
    """The process has ended."""


class Watched:
    """The watch of an actor, at a clock that only sleeping moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.raylet = 7
        self.sent: list[tuple[float, int]] = []
        self.runs_until = 0.0  # the agent; 0.0: there is none
        self.obeys = True
        self._watch = AgentHost._watch
        monkeypatch.setattr(AgentHost, "_watch", lambda host: None)
        self._clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(agent_host, "time", self._clock)
        monkeypatch.setattr(os, "getppid", lambda: self.raylet)
        monkeypatch.setattr(os, "_exit", self._exit)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def _exit(self, status: int) -> None:
        assert status == 0
        raise Ended

    def poll(self) -> int | None:
        """Return the agent's exit status."""
        return None if self.now < self.runs_until else 0

    def send_signal(self, number: int) -> None:
        """Send the agent a signal."""
        self.sent.append((self.now, number))
        if self.obeys:
            self.runs_until = self.now + 1.0

    def ends_at(self, *, raylet_ends_at: float = float("inf")) -> float:
        """Return when the actor ends."""
        host = AgentHost()
        if self.runs_until:
            host._process = self  # type: ignore[assignment]
        sleep = self._sleep

        def tick(seconds: float) -> None:
            sleep(seconds)
            if self.now >= raylet_ends_at:
                self.raylet = 1

        self._clock.sleep = tick
        with pytest.raises(Ended):
            self._watch(host)
        return self.now


def test_an_actor_without_an_agent_stays_for_a_while_to_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Watched(monkeypatch).ends_at() == agent_host.LINGER_S


def test_an_actor_ends_a_while_after_its_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    watched.runs_until = 1000.5
    assert watched.ends_at() == 1000.0 + agent_host.LINGER_S
    assert watched.sent == []


@pytest.mark.parametrize(("obeys", "ends_at"), [(True, 501.0), (False, 520.0)])
def test_an_agent_leaves_in_order_when_the_raylet_has_ended(
    monkeypatch: pytest.MonkeyPatch, obeys: bool, ends_at: float
) -> None:
    watched = Watched(monkeypatch)
    watched.runs_until, watched.obeys = 10.0**6, obeys
    assert watched.ends_at(raylet_ends_at=500.0) == pytest.approx(ends_at, abs=0.11)
    assert watched.sent == [(500.0, signal.SIGTERM)]
