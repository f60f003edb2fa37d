"""Consoles of ranks on other computers, at the master: what is made, for whom, and until when."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.connection_files import read_connection_file
from det_jupyter.contract.host.versions import installed_versions
from det_jupyter.contract.messages import RankKernel
from det_jupyter.errors import Conflict, NotFound
from det_jupyter.master.service.consoles import Consoles
from tests.integration.master_support import (
    AGENT,
    RUN,
    Bench,
    bench_with_trial,
    gang_exited,
    gang_started,
    make_registration,
    make_request,
)
from tests.processes import socket_folders
from tests.waiting import until

KEY, OTHER_KEY = "0" * 64, "1" * 64


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Return a master whose first trial has its two ranks on an agent of another computer."""
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    bench = Bench(tmp_path / "db")
    registration = make_registration("first").model_copy(update={"versions": installed_versions()})
    bench.service.register(AGENT, registration, is_remote=True)
    asyncio.run(bench.service.submit(make_request()))
    bench.report(gang_started())
    yield bench
    bench.service.close()


def kernel(rank: int = 0, key: str = KEY, run: str = RUN) -> RankKernel:
    return RankKernel(allocation_id=run, rank=rank, key=key)


def play(bench: Bench, scenario: Callable[[Consoles], Awaitable[None]]) -> None:
    """Run a scenario with consoles that are kept current."""

    async def run() -> None:
        consoles = Consoles(bench.service)
        keeping = asyncio.create_task(consoles.keep_current())
        await asyncio.sleep(0)
        try:
            await scenario(consoles)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await consoles.close()

    asyncio.run(run())


def sockets(tmp_path: Path) -> list[Path]:
    (folder,) = socket_folders(tmp_path)
    return [path for path in folder.rglob("*") if path.is_socket()]


def test_views_name_the_file_on_this_computer_of_remote_ranks_only(
    bench: Bench, tmp_path: Path
) -> None:
    held = bench.service.views.trial(1).allocation
    assert held is not None
    assert [rank.connection_file for rank in held.ranks] == [
        str(tmp_path / "runtime" / "consoles" / f"{RUN}-rank-{rank}.json") for rank in (0, 1)
    ]
    assert all(rank.is_remote for rank in held.ranks)
    with bench_with_trial(tmp_path / "other") as other:
        held = other.service.views.trial(1).allocation
        assert held is not None
        assert [(r.is_remote, r.connection_file) for r in held.ranks] == [(False, "c")] * 2


def test_kernel_gets_private_sockets_and_a_file_until_the_run_is_over(
    bench: Bench, tmp_path: Path
) -> None:
    async def scenario(consoles: Consoles) -> None:
        await consoles.open(AGENT, "first", kernel(1))
        file = paths.console_file(RUN, 1)
        connection = read_connection_file(file)
        assert (connection["transport"], connection["key"]) == ("ipc", KEY)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(Path(connection["ip"]).parent.parent.stat().st_mode) == 0o700
        assert sorted(map(str, sockets(tmp_path))) == [
            f"{connection['ip']}-{i}" for i in range(1, 6)
        ]
        before = os.stat(file)
        await consoles.open(AGENT, "first", kernel(1))  # sent again after a reconnection
        assert os.stat(file) == before
        await consoles.open(AGENT, "first", kernel(1, OTHER_KEY))
        assert json.loads(file.read_text())["key"] == OTHER_KEY
        bench.report(gang_exited())
        await until(lambda: not file.exists(), "it is removed")
        assert sockets(tmp_path) == []

    play(bench, scenario)
    assert socket_folders(tmp_path) == []


@pytest.mark.parametrize(
    ("agent", "session", "which", "error"),
    [
        (AGENT, "second", kernel(), Conflict),
        ("other", "first", kernel(), Conflict),
        (AGENT, "first", kernel(2), NotFound),
        (AGENT, "first", kernel(run="1.1.2"), NotFound),
    ],
)
def test_agent_gets_no_sockets_for_ranks_that_it_does_not_have(
    bench: Bench, agent: str, session: str, which: RankKernel, error: type[Exception]
) -> None:
    async def scenario(consoles: Consoles) -> None:
        with pytest.raises(error):
            await consoles.open(agent, session, which)
        assert list(paths.consoles_dir().iterdir()) == []

    play(bench, scenario)


def test_what_is_no_key_is_refused() -> None:
    with pytest.raises(ValueError, match="pattern"):
        kernel(key="../" * 21 + "x")


def test_agent_that_is_not_connected_any_more_has_no_consoles_until_it_sends_them_again(
    bench: Bench, tmp_path: Path
) -> None:
    async def scenario(consoles: Consoles) -> None:
        await consoles.open(AGENT, "first", kernel())
        link = paths.console_file(RUN, 0)
        prefix = read_connection_file(link)["ip"]
        bench.service.links.drop(AGENT)
        await until(lambda: not link.exists(), "it is removed")
        assert sockets(tmp_path) == []
        bench.service.links.open(AGENT, "first")
        await consoles.open(AGENT, "first", kernel())
        assert read_connection_file(link)["ip"] == prefix  # for programs that are attached

    play(bench, scenario)


def test_next_master_removes_what_is_left_and_uses_the_same_paths(
    bench: Bench, tmp_path: Path
) -> None:
    async def first(consoles: Consoles) -> None:
        await consoles.open(AGENT, "first", kernel())

    play(bench, first)
    (before,) = socket_folders(tmp_path)
    with socket.socket(socket.AF_UNIX) as left:  # of a master that was killed
        left.bind(str(before / RUN / "0-1"))
    (before / "9.9.9").mkdir()  # of a run that has ended since
    for run in (RUN, "9.9.9"):
        paths.console_file(run, 0).touch()

    async def scenario(consoles: Consoles) -> None:
        assert list(paths.consoles_dir().iterdir()) == []
        await consoles.open(AGENT, "first", kernel())
        await until(lambda: not (before / "9.9.9").exists(), "it is removed")
        assert len(sockets(tmp_path)) == 5

    play(bench, scenario)
    assert socket_folders(tmp_path) == [before]  # the run goes on


def test_connection_becomes_the_command_to_open_a_tunnel(bench: Bench, tmp_path: Path) -> None:
    async def scenario(consoles: Consoles) -> None:
        await consoles.open(AGENT, "first", kernel())
        prefix = read_connection_file(paths.console_file(RUN, 0))["ip"]
        reader, writer = await asyncio.open_unix_connection(f"{prefix}-2")
        await asyncio.sleep(0.05)
        command = bench.service.links.get(AGENT, "first")._queue[-1]
        assert command is not None
        assert command.kind == "open_tunnel"
        assert (command.allocation_id, command.rank, command.socket) == (RUN, 0, 2)
        assert command.id not in repr(command)
        consoles.tunnels.join(AGENT, command.id, "up")
        await consoles.close()
        assert await reader.read() == b""
        writer.close()

    play(bench, scenario)
