"""Which notebook a process belongs to, by the Jupyter servers' files; the servers are played."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import psutil
import pytest

from det_jupyter.agent.devices.identify import Notebooks, identify
from det_jupyter.contract.messages import DeviceProcess


class Computer:
    """Its processes, and the Jupyter servers with their sessions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder = folder
        self.sessions: dict[str, Any] = {}  # by url; an exception is raised
        self.asked: list[tuple[str, str]] = []
        self.environ: dict[str, str] | None = {}
        monkeypatch.setattr(psutil, "pid_exists", lambda pid: pid == 1)
        monkeypatch.setattr(psutil, "Process", self._process)
        monkeypatch.setattr(httpx, "get", self._get)

    def _process(self, pid: int) -> Any:
        if self.environ is None:
            raise psutil.AccessDenied(pid)
        environ = self.environ
        return SimpleNamespace(environ=lambda: environ)

    def _get(
        self, url: str, *, headers: dict[str, str], timeout: float, trust_env: bool
    ) -> httpx.Response:
        assert (timeout, trust_env) == (0.5, False)  # an agent waits for it
        self.asked.append((url, headers["Authorization"]))
        sessions = self.sessions[url]
        if isinstance(sessions, Exception):
            raise sessions
        request = httpx.Request("GET", url)
        if isinstance(sessions, int):
            return httpx.Response(sessions, request=request)
        return httpx.Response(200, json=sessions, request=request)

    def add_server(self, name: str, sessions: Any, **changes: Any) -> None:
        """Let a server have these sessions."""
        server = {"pid": 1, "url": f"http://{name}/", "token": "t", "root_dir": f"/{name}"}
        file = self.folder / f"jpserver-{name}.json"
        file.write_text(json.dumps({**server, **changes}))
        self.sessions[f"http://{name}/api/sessions"] = sessions

    def open(self) -> Notebooks:
        return Notebooks(self.folder)


@pytest.fixture
def computer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Computer:
    return Computer(monkeypatch, tmp_path)


def session(kernel: str, path: str, kind: str = "notebook") -> dict[str, Any]:
    return {"type": kind, "path": path, "kernel": {"id": kernel}}


def test_the_notebook_of_a_kernel_is_that_of_its_servers_session(computer: Computer) -> None:
    computer.add_server("a", [session("k1", "x/one.ipynb"), session("k2", "con", "console")])
    computer.add_server("b", [session("k3", "two.ipynb")], token="other")
    found = computer.open()
    names = [found.notebook_of(kernel, 7, 100.0) for kernel in ("k1", "k2", "k3")]
    assert names == ["/a/x/one.ipynb", None, "/b/two.ipynb"]
    assert computer.asked == [
        ("http://a/api/sessions", "token t"), ("http://b/api/sessions", "token other"),
    ]  # fmt: skip


def test_servers_are_asked_for_a_new_kernel_at_most_once_a_look_and_every_30_seconds(
    computer: Computer,
) -> None:
    computer.add_server("a", [])
    found = computer.open()

    def num_asked(kernel: str, now: float) -> int:
        before = len(computer.asked)
        found.notebook_of(kernel, 7, now)
        return len(computer.asked) - before

    assert [num_asked("k1", 100.0), num_asked("k2", 100.0)] == [1, 0]
    assert [num_asked("k1", 101.0), num_asked("k3", 102.0), num_asked("k3", 131.9)] == [0, 1, 0]
    computer.add_server("a", [session("k3", "new.ipynb")])
    assert num_asked("k3", 132.0) == 1
    assert found.notebook_of("k3", 7, 133.0) == "/a/new.ipynb"
    computer.add_server("a", [])
    found.notebook_of("k3", 7, 170.0)
    assert found.notebook_of("k3", 7, 171.0) == "/a/new.ipynb"  # it is known for good


@pytest.mark.parametrize(
    ("sessions", "changes"),
    [
        ([session("k1", "old.ipynb")], {"pid": 2}),  # it has ended
        (httpx.ConnectError("refused"), {}),
        (403, {}),
        ({"message": "no list"}, {}),
        ([{"type": "notebook"}], {}),
    ],
)
def test_a_server_that_does_not_answer_hides_no_other(
    computer: Computer, sessions: Any, changes: dict[str, Any]
) -> None:
    computer.add_server("a", sessions, **changes)
    (computer.folder / "jpserver-broken.json").write_text("{")
    computer.add_server("c", [session("k2", "two.ipynb")])
    found = computer.open()
    assert found.notebook_of("k2", 7, 100.0) == "/c/two.ipynb"
    assert found.notebook_of("k1", 7, 100.0) is None


@pytest.mark.parametrize(
    ("environ", "notebook"),
    [
        ({"JPY_SESSION_NAME": "/home/ann/a.ipynb"}, "/home/ann/a.ipynb"),
        ({"JPY_SESSION_NAME": "/home/ann/3f2a"}, None),
        ({}, None),
        (None, None),  # the process is another user's
    ],
)
def test_a_kernel_of_no_known_server_may_tell_its_notebook_itself(
    computer: Computer, environ: dict[str, str] | None, notebook: str | None
) -> None:
    computer.environ = environ
    assert computer.open().notebook_of("k1", 7, 100.0) == notebook


def hidden(*_: object) -> Any:
    raise psutil.AccessDenied


def nameless(*_: object) -> Any:
    raise KeyError("uid 4000")


KERNEL = ["/opt/bin/python3", "-m", "ipykernel_launcher", "-f", "/r/kernel-k1.json"]


@pytest.mark.parametrize(
    ("cmdline", "username", "command", "user", "notebook"),
    [
        (lambda: KERNEL, lambda: "ann", "python3 -m ipykernel_launcher -f /r/kernel-k1.json",
         "ann", "/nb/k1 of 7"),
        (lambda: ["/bin/train", "--lr", "1"], nameless, "train --lr 1", "", None),
        (lambda: [], lambda: "ann", "kworker", "ann", None),
        (hidden, lambda: "ann", "kworker", "ann", None),
    ],
)  # fmt: skip
def test_a_process_is_described_as_far_as_it_may_be_seen(
    monkeypatch: pytest.MonkeyPatch,
    cmdline: Any,
    username: Any,
    command: str,
    user: str,
    notebook: str | None,
) -> None:
    seen = SimpleNamespace(cmdline=cmdline, username=username, name=lambda: "kworker")
    monkeypatch.setattr(psutil, "Process", lambda pid: seen)
    found = identify(7, memory_bytes=5, notebook_of=lambda kernel, pid: f"/nb/{kernel} of {pid}")
    assert found == DeviceProcess(
        pid=7,
        command=command,
        user=user,
        memory_bytes=5,
        kernel_id="k1" if notebook else None,
        notebook=notebook,
    )
    monkeypatch.setattr(psutil, "Process", hidden)
    assert identify(7, memory_bytes=5, notebook_of=lambda kernel, pid: None) is None


def test_a_process_of_which_nothing_is_known_has_a_name_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        psutil, "Process", lambda pid: SimpleNamespace(cmdline=hidden, name=hidden)
    )
    found = identify(7, memory_bytes=5, notebook_of=lambda kernel, pid: None)
    assert found == DeviceProcess(pid=7, command="unknown process", user="", memory_bytes=5)
