"""A kernel manager is attached to a rank: when it is, how it is lost, and what is left."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import zmq
from jupyter_client.session import Session
from tornado.web import HTTPError
from traitlets.config import Configurable

from det_jupyter.contract.host.connection_files import NUMBERS, write_connection_file
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.errors import Conflict, MasterUnreachable, NotFound
from det_jupyter.front.jupyter_server import provisioner as module
from det_jupyter.front.jupyter_server.provisioner import RankProvisioner
from det_jupyter.front.jupyter_server.rank_kernels import RunningRank, spec_of


class Kernel:
    """A rank's kernel: its sockets, its connection file, and what the master says of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "kernel.json"
        self.prefix = str(folder / "k")
        self.sockets: list[socket.socket] = []
        self.is_remote = False
        self.pid = os.getpid()
        self.problem: Exception | None = None
        self.silent = ""

    def listen(self) -> None:
        write_connection_file(self.file, prefix=self.prefix, key="secret")
        for number in NUMBERS:
            self.sockets.append(socket.socket(socket.AF_UNIX))
            self.sockets[-1].bind(f"{self.prefix}-{number}")

    def find(self, trial_id: int, rank: int) -> RunningRank:
        assert (trial_id, rank) == (3, 1)
        if self.problem is not None:
            raise self.problem
        process = ProcessIdentity.of(self.pid)
        name = "rank 1 of trial 3"
        return RunningRank(name, process, self.is_remote, "left", str(self.file))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    with tempfile.TemporaryDirectory() as folder:  # short: sockets have paths of 100 characters
        kernel = Kernel(Path(folder))
        monkeypatch.setattr(module, "find_rank", kernel.find)
        monkeypatch.setattr(module, "why_unreachable", lambda agent: kernel.silent)
        monkeypatch.setattr(module, "why_ended", lambda trial, rank: "it is over")
        monkeypatch.setattr(module, "_KERNEL_UP_S", 0.0)
        yield kernel
        for each in kernel.sockets:
            each.close()


class Server(Configurable):
    """Has the kernel among those that start."""

    _pending_kernels: Any = None


class Manager(Configurable):
    """What the provisioner needs of a kernel's manager."""

    shutting_down = False
    reason = ""
    _restarter: Any = None


def attached_to(kernel: Kernel) -> Any:
    server = Server()
    server._pending_kernels = {"0123456789": 1}
    manager = Manager(parent=server)
    manager._restarter = SimpleNamespace(restart_limit=5)
    return RankProvisioner(trial_id=3, rank=1, kernel_id="0123456789", parent=manager)


def links(kernel: Kernel) -> list[str]:
    return sorted(path.name for path in kernel.folder.iterdir() if path.is_symlink())


def test_an_attachment_starts_no_process_of_its_own(kernel: Kernel) -> None:
    made = attached_to(kernel)
    made.kernel_spec = spec_of("det-trial-3-rank-1")
    assert asyncio.run(made.pre_launch())["cmd"] == []


@pytest.mark.parametrize(
    ("signum", "is_shutting_down", "is_attached", "is_sent"),
    [
        (signal.SIGINT, False, True, True),
        (signal.SIGTERM, False, True, False),
        (signal.SIGINT, True, True, False),
        (signal.SIGINT, False, False, False),
    ],
)
def test_only_an_interrupt_of_the_user_reaches_the_running_cell(
    signum: int, is_shutting_down: bool, is_attached: bool, is_sent: bool, kernel: Kernel
) -> None:
    kernel.listen()
    made = attached_to(kernel)
    asyncio.run(made.launch_kernel([]))
    path = Path(f"{made.connection_info['ip']}-{made.connection_info['control_port']}")
    path.unlink()  # the link; a kernel of zmq is there instead
    made.parent.session, made.parent.shutting_down = Session(key=b"secret"), is_shutting_down
    if not is_attached:
        asyncio.run(made.kill())
    control: zmq.Socket[bytes]
    with zmq.Context.instance().socket(zmq.ROUTER) as control:
        control.bind(f"ipc://{path}")
        asyncio.run(made.send_signal(signum))
        assert bool(control.poll(2000 if is_sent else 0)) is is_sent
        if is_sent:
            _, parts = Session().feed_identities(control.recv_multipart())
            assert b"interrupt_request" in cast(bytes, parts[1])


def test_an_attachment_has_links_to_the_sockets_until_it_is_cleaned_up(kernel: Kernel) -> None:
    kernel.listen()
    made = attached_to(kernel)
    assert not made.has_process
    info: Any = asyncio.run(made.launch_kernel([]))
    assert made.has_process
    assert (info["transport"], info["key"]) == ("ipc", b"secret")
    assert info["ip"] == str(kernel.folder / "01234567")
    names = [f"01234567-{number}" for number in NUMBERS]
    assert links(kernel) == names
    assert all((kernel.folder / name).is_socket() for name in names)
    asyncio.run(made.launch_kernel([]))
    assert links(kernel) == names, "also after a restart of the manager"
    asyncio.run(made.cleanup())
    assert (links(kernel), made.has_process) == ([], False)
    assert len(list(kernel.folder.glob("k-*"))) == 5, "the rank's own stay"


def test_a_rank_is_not_started_again(kernel: Kernel) -> None:
    made = attached_to(kernel)
    asyncio.run(made.post_launch())
    assert made.parent._restarter.restart_limit == 0
    made.parent._restarter = None
    asyncio.run(made.post_launch())
    assert made.get_shutdown_wait_time() < 1.0


@pytest.mark.parametrize(
    ("is_remote", "silent", "words"),
    [
        (False, "", "the kernel of rank 1 of trial 3 is not up yet"),
        (True, "", "the kernel of rank 1 of trial 3 is not up yet"),
        (True, "no route", "rank 1 of trial 3 cannot be reached: no route"),
    ],
)
def test_a_kernel_that_does_not_listen_is_told(
    kernel: Kernel, is_remote: bool, silent: str, words: str
) -> None:
    kernel.is_remote, kernel.silent = is_remote, silent
    made = attached_to(kernel)
    with pytest.raises(HTTPError, match=words) as caught:
        asyncio.run(made.launch_kernel([]))
    assert caught.value.status_code == 409
    assert made.parent.parent._pending_kernels == {}
    assert not made.has_process


def test_an_attachment_lasts_as_long_as_the_process(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.listen()
    made = attached_to(kernel)
    assert asyncio.run(made.poll()) == 0, "not attached"
    asyncio.run(made.launch_kernel([]))
    assert asyncio.run(made.poll()) is None
    monkeypatch.setattr(ProcessIdentity, "is_alive", property(lambda process: False))
    assert asyncio.run(made.poll()) == 1
    assert made.parent.reason == "it is over"
    assert (links(kernel), made.has_process) == ([], False)


@pytest.mark.parametrize(
    ("problem", "silent", "why"),
    [
        (None, "", "rank 1 of trial 3 cannot be reached: its kernel does not answer"),
        (None, "no route", "rank 1 of trial 3 cannot be reached: no route"),
        (MasterUnreachable("no master"), "", "rank 1 of trial 3 cannot be reached: no master"),
    ],
)
def test_a_remote_rank_may_be_away_for_some_seconds(
    kernel: Kernel,
    problem: Exception | None,
    silent: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel.listen()
    kernel.is_remote = True
    made = attached_to(kernel)
    asyncio.run(made.launch_kernel([]))
    now = [1000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    kernel.file.rename(kernel.folder / "away")
    kernel.problem, kernel.silent = problem, silent
    assert asyncio.run(made.poll()) is None
    now[0] += 9
    assert asyncio.run(made.poll()) is None
    (kernel.folder / "away").rename(kernel.file)
    assert asyncio.run(made.poll()) is None
    kernel.file.unlink()
    now[0] += 9
    assert asyncio.run(made.poll()) is None, "it was there meanwhile"
    now[0] += 11
    assert asyncio.run(made.poll()) == 1
    assert made.parent.reason == why


def test_a_remote_rank_that_has_ended_is_told_at_once(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.listen()
    kernel.is_remote = True
    made = attached_to(kernel)
    asyncio.run(made.launch_kernel([]))
    kernel.file.unlink()
    kernel.problem = NotFound("there is no trial 3")
    assert asyncio.run(made.poll()) == 1
    assert made.parent.reason == "it is over"

    def unknown(trial: int, rank: int) -> str:
        raise Conflict("the master is gone")

    monkeypatch.setattr(module, "why_ended", unknown)
    assert made._why_dead(kernel_rank(kernel)) == (
        "rank 1 of trial 3 has ended (the master is gone)"
    )


def kernel_rank(kernel: Kernel) -> RunningRank:
    return RunningRank(
        "rank 1 of trial 3",
        ProcessIdentity.of(kernel.pid),
        kernel.is_remote,
        "left",
        str(kernel.file),
    )


@pytest.mark.parametrize(
    ("number", "shutting_down", "is_attached", "interrupts"),
    [
        (signal.SIGINT, False, True, 1),
        (signal.SIGINT, True, True, 0),
        (signal.SIGINT, False, False, 0),
        (signal.SIGTERM, False, True, 0),
    ],
)
def test_only_an_interrupt_that_is_meant_reaches_the_cell(
    number: int,
    shutting_down: bool,
    is_attached: bool,
    interrupts: int,
    kernel: Kernel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel.listen()
    made = attached_to(kernel)
    if is_attached:
        asyncio.run(made.launch_kernel([]))
    made.parent.shutting_down = shutting_down
    sent: list[int] = []
    monkeypatch.setattr(made, "_interrupt_cell", lambda: sent.append(1))
    asyncio.run(made.send_signal(number))
    assert len(sent) == interrupts


@pytest.mark.parametrize("how", ["kill", "terminate", "shutdown_requested", "wait"])
def test_a_shutdown_only_detaches(how: str, kernel: Kernel) -> None:
    kernel.listen()
    made = attached_to(kernel)
    asyncio.run(made.launch_kernel([]))
    assert asyncio.run(getattr(made, how)()) == (0 if how == "wait" else None)
    assert not made.has_process
    assert len(links(kernel)) == 5
