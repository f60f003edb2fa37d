"""What an agent tells its master and what it does with orders; the link itself is played."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.agent.devices.offered_slots import Offer
from det_jupyter.agent.link import agent_service
from det_jupyter.agent.link.agent_service import AgentService
from det_jupyter.agent.link.console_tunnels import ConsoleTunnels
from det_jupyter.agent.runs.run import new_run
from det_jupyter.agent.runs.runner import Runner
from det_jupyter.agent.starting.launcher import Launcher
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import (
    AgentCommand,
    AgentCredentials,
    AgentReports,
    CheckConnections,
    CloseRun,
    DeviceFault,
    DeviceProcess,
    DevicesSeen,
    DisksSeen,
    GangExited,
    GangLink,
    KillGang,
    Offsets,
    OpenTunnel,
    RegisterAgent,
    RunReport,
    SlotView,
    StartGang,
)
from det_jupyter.errors import AgentDismissed, MasterUnreachable
from tests.integration.agent_support import make_plan, remote_master

CREDENTIALS = AgentCredentials(agent="b", url="https://127.0.0.1:1", certificate="", token="t")
SLOT = SlotView(id=0, kind="cpu", index=0, name="CPU")
LOST = DeviceFault(index=0, at=1.0, xid=79)
STRANGER = DeviceProcess(pid=7, command="python", user="ann", memory_bytes=1)


class Master:
    """The master at the other end of each link: what was told, and what it orders next."""

    def __init__(self) -> None:
        self.registered: list[RegisterAgent] = []
        self.reports: list[AgentReports] = []
        self.orders: asyncio.Queue[AgentCommand | None] = asyncio.Queue()  # None: it closes
        self.offsets: dict[str, dict[str, int]] = {}
        self.failures: list[Exception] = []  # of the next registrations
        self.places: list[dict[str, Any]] = []
        self.checked: list[tuple[CheckConnections, str]] = []
        self.checks_end = asyncio.Event()

    @asynccontextmanager
    async def open(self, **place: Any) -> AsyncIterator[Master]:
        """Open a link."""
        self.places.append(place)
        yield self

    async def clock_ahead_s(self) -> float:
        return 1.5

    async def register(self, registration: RegisterAgent) -> Offsets:
        if self.failures:
            raise self.failures.pop(0)
        self.registered.append(registration)
        return Offsets(offsets=self.offsets)

    async def report(self, reports: AgentReports) -> Offsets:
        self.reports.append(reports)
        return Offsets(offsets=self.offsets)

    async def commands(self) -> AsyncIterator[AgentCommand]:
        while (command := await self.orders.get()) is not None:
            yield command

    async def announce(self, kernel: Any) -> str:
        return ""

    async def check(self, command: CheckConnections, *, agent: str, listener: object) -> None:
        self.checked.append((command, agent))
        await self.checks_end.wait()

    def told(self, kind: str) -> list[Any]:
        """Return the reports of a kind."""
        return [one for batch in self.reports for one in batch.reports if one.kind == kind]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.setattr(agent_service, "_PAUSES_S", (0.0, 0.0))
    return tmp_path


def make_runner(folder: Path) -> Runner:
    return Runner(
        agents=["b"],
        adopted=[],
        launcher=cast(Launcher, None),
        lifeline_fd=-1,
        socket_dir=folder,
        num_threads=1,
    )


Scenario = Callable[[AgentService, Master, Runner], Awaitable[None]]


def play(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    scenario: Scenario,
    *,
    is_served: bool = True,
    **options: Any,
) -> Master:
    """Play a scenario with a linked agent; return its master."""

    async def act() -> Master:
        master, runner = Master(), make_runner(folder)
        monkeypatch.setattr(agent_service, "open_link", master.open)
        offer = Offer(agent_id="b", slots=[SLOT], problems=("a setting is odd",))
        service = AgentService(offer=offer, session="s", runner=runner, **options)
        linking = asyncio.create_task(service.keep_linked()) if is_served else None
        await scenario(service, master, runner)
        service.close()
        if linking is not None:
            linking.cancel()
            await asyncio.gather(linking, return_exceptions=True)
        return master

    return asyncio.run(act())


class Patched:
    """The module asyncio with another `sleep`."""

    def __init__(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        self.sleep = sleep

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


async def until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def add_run(runner: Runner, folder: Path, *, code: int | None = None, id: str = "1.1.1") -> None:
    """Give the agent a run, which has ended with this exit code."""
    run = new_run(make_plan(id, []), sockets=folder / id)
    run.prepare()
    if code is not None:
        run.note_exited(GangExited(allocation_id=id, at=1.0, exit_codes={0: code, 1: 0}))
    cast(dict[str, Any], runner.runs_of("b"))[id] = run


@pytest.mark.parametrize("is_remote", [True, False])
def test_an_agent_registers_with_all_that_the_master_has_to_know(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_remote: bool
) -> None:
    async def scenario(service: AgentService, master: Master, runner: Runner) -> None:
        add_run(runner, folder, code=0)
        service.note_devices(DevicesSeen(at=1.0, processes={0: [STRANGER]}, lost={0: LOST}))
        assert service.unlinked_s >= 0
        await until(lambda: master.registered)
        assert service.unlinked_s == 0.0

    remote: dict[str, Any] = {}
    if is_remote:
        elsewhere = remote_master()
        elsewhere.listener.port = 41000
        remote = {"credentials": CREDENTIALS, "remote": elsewhere, "address": "10.0.0.2"}
    master = play(folder, monkeypatch, scenario, is_watched=True, **remote)
    (told,) = master.registered
    assert (told.session, told.slots, told.problems) == ("s", [SLOT], ["a setting is odd"])
    assert told.runs == [RunReport(allocation_id="1.1.1", alive=False)]
    assert (told.devices, told.lost) == ({0: [STRANGER]}, {0: LOST})
    (place,) = master.places
    assert (place["agent_id"], place["session"]) == ("b", "s")
    if is_remote:
        assert (told.address, told.port, told.clock_ahead_s) == ("10.0.0.2", 41000, 1.5)
        assert "python" in told.versions
        assert (place["credentials"], place["on_answer"] is None) == (CREDENTIALS, False)
    else:
        assert (told.address, told.port, told.clock_ahead_s, told.versions) == ("", 0, 0.0, {})
        assert (place["credentials"], place["on_answer"]) == (None, None)


def test_registration_waits_for_the_first_look_at_the_devices_but_not_for_ever(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_service, "_DEVICES_S", 0.01)

    async def scenario(service: AgentService, master: Master, runner: Runner) -> None:
        await asyncio.sleep(0)
        assert master.registered == []
        await until(lambda: master.registered)
        assert master.registered[0].devices == {}

    play(folder, monkeypatch, scenario, is_watched=True)


def test_an_order_that_fails_ends_neither_the_link_nor_the_next_order(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    carried: list[str] = []

    def carry_out(_: Runner, command: Any, *, agent_id: str) -> None:
        carried.append(f"{command.kind} {agent_id}")
        if isinstance(command, KillGang):
            raise RuntimeError("a fault of ours")

    monkeypatch.setattr(Runner, "carry_out", carry_out)

    async def scenario(service: AgentService, master: Master, runner: Runner) -> None:
        master.orders.put_nowait(KillGang(allocation_id="1.1.1"))
        master.orders.put_nowait(CloseRun(allocation_id="1.1.1"))
        await until(lambda: len(carried) == 2)
        assert len(master.registered) == 1

    play(folder, monkeypatch, scenario)
    assert carried == ["kill_gang b", "close_run b"]
    assert "the command kill_gang failed" in caplog.text


@pytest.mark.parametrize("is_remote", [True, False])
def test_a_gang_is_started_by_the_interpreter_of_its_computer(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_remote: bool
) -> None:
    pythons: list[str] = []

    def carry_out(_: Runner, command: Any, *, agent_id: str) -> None:
        pythons.append(command.plan.python)

    monkeypatch.setattr(Runner, "carry_out", carry_out)

    async def scenario(service: AgentService, master: Master, runner: Runner) -> None:
        master.orders.put_nowait(StartGang(plan=make_plan("1.1.1", [], python="/theirs")))
        await until(lambda: pythons)

    play(folder, monkeypatch, scenario, credentials=CREDENTIALS if is_remote else None)
    assert pythons == [sys.executable if is_remote else "/theirs"]


def test_tunnels_and_checks_are_begun_as_ordered(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[OpenTunnel] = []
    monkeypatch.setattr(ConsoleTunnels, "open", lambda self, command: opened.append(command))
    link = GangLink(agents=["b"], addresses=[""], ports=[0], certificate="", secret="s")
    tunnel = OpenTunnel(id="x", allocation_id="1.1.1", rank=0, socket=1)
    check = CheckConnections(check_id="c", link=link)

    async def scenario(service: AgentService, master: Master, runner: Runner) -> None:
        for command in (tunnel, check):
            master.orders.put_nowait(command)
        await until(lambda: master.checked)
        assert len(service._checks) == 1  # else it could be collected as garbage
        master.checks_end.set()
        await until(lambda: not service._checks)

    master = play(folder, monkeypatch, scenario, credentials=CREDENTIALS, remote=remote_master())
    assert (opened, master.checked) == ([tunnel], [(check, "b")])

    async def alone(service: AgentService, master: Master, runner: Runner) -> None:
        for command in (check, tunnel):
            master.orders.put_nowait(command)
        await until(lambda: len(opened) == 2)

    assert play(folder, monkeypatch, alone).checked == []  # other agents do not connect to it


def test_a_link_that_is_lost_is_opened_again_and_why_is_said_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(service: AgentService, master: Master, runner: Runner) -> None:
        master.failures = [MasterUnreachable("it starts"), MasterUnreachable("it starts")]
        await until(lambda: master.registered)
        master.orders.put_nowait(None)
        await until(lambda: len(master.registered) == 2)
        assert service.unlinked_s == 0.0

    with caplog.at_level(logging.INFO, logger="det_jupyter.agent.link.agent_service"):
        play(folder, monkeypatch, scenario)
    assert [record.getMessage() for record in caplog.records] == [
        "no master: it starts",
        "agent=b linked to the master",
        "no master: the master closed the connection",
        "agent=b linked to the master",
    ]


def test_a_master_that_is_away_is_asked_more_and_more_rarely_until_it_has_stayed_for_a_while(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="det_jupyter.agent.link.agent_service")
    now, pauses, lasts_s = [100.0], list[float](), [0.0] * 7 + [5.0, 5.1, 0.0]
    enough = asyncio.Event()

    async def serve_connection(_: AgentService) -> None:
        now[0] += lasts_s.pop(0)
        raise ExceptionGroup("", [MasterUnreachable("gone")])

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if not lasts_s:
            enough.set()
            await asyncio.Event().wait()

    async def scenario(service: AgentService, master: Master, runner: Runner) -> None:
        await enough.wait()

    monkeypatch.setattr(agent_service, "_PAUSES_S", (0.1, 1.0))
    monkeypatch.setattr(agent_service, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(AgentService, "_serve_connection", serve_connection)
    monkeypatch.setattr(agent_service, "asyncio", Patched(sleep))
    play(folder, monkeypatch, scenario)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0, 0.1, 0.2]
    told = [record.getMessage() for record in caplog.records]
    assert told == ["no master: gone"] * 2  # and again after a connection that lasted


def test_an_agent_beats_every_three_seconds_if_there_is_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, sent_at = [100.0], list[float]()

    async def await_news(_: AgentService, timeout_s: float) -> None:
        now[0] += timeout_s
        await asyncio.sleep(0)

    async def report(_: Master, reports: AgentReports) -> Offsets:
        sent_at.append(now[0])
        return Offsets(offsets={})

    async def scenario(service: AgentService, master: Master, runner: Runner) -> None:
        add_run(runner, folder)
        await until(lambda: len(sent_at) > 2)

    monkeypatch.setattr(agent_service, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(AgentService, "_await_news", await_news)
    monkeypatch.setattr(Master, "report", report)
    play(folder, monkeypatch, scenario)
    # After each batch it rests for a tenth of a second.
    assert sent_at[:3] == [pytest.approx(103.0), pytest.approx(106.0), pytest.approx(109.0)]


def test_a_lost_connection_counts_from_when_it_was_lost(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])

    async def scenario(service: AgentService, master: Master, runner: Runner) -> None:
        await until(lambda: master.registered)
        now[0] = 150.0
        assert service.unlinked_s == 0.0
        master.failures = [MasterUnreachable("gone")] * 10**6
        master.orders.put_nowait(None)
        await until(lambda: len(master.places) > 3)
        now[0] = 157.0
        assert service.unlinked_s == 7.0

    monkeypatch.setattr(agent_service, "time", clock)
    play(folder, monkeypatch, scenario)


def test_an_agent_that_the_master_does_not_know_any_more_leaves_for_good(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: AgentService, master: Master, runner: Runner) -> None:
        master.failures = [AgentDismissed("this token is of no agent")]
        await runner.leave_ordered.wait()
        assert service.dismissal == "this token is of no agent"
        await service.report_exits()
        assert master.registered == []

    play(folder, monkeypatch, scenario, credentials=CREDENTIALS)


def test_news_of_devices_and_disks_are_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = DevicesSeen(at=1.0, processes={0: [STRANGER]})
    disks = DisksSeen(at=2.0, disks=[])

    async def scenario(service: AgentService, master: Master, runner: Runner) -> None:
        await until(lambda: master.registered)
        service.note_devices(devices)
        await until(lambda: master.told("devices_seen"))
        service.note_disks(disks)
        runner.news.set()
        await until(lambda: master.told("disks_seen"))

    master = play(folder, monkeypatch, scenario)
    assert master.told("devices_seen") == [devices]
    assert master.told("disks_seen") == [disks]
    assert {batch.session for batch in master.reports} == {"s"}


def test_an_agent_with_nothing_to_say_shows_that_it_lives(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_service, "BEAT_S", 0.01)

    async def scenario(service: AgentService, master: Master, runner: Runner) -> None:
        await until(lambda: len(master.reports) > 1)

    master = play(folder, monkeypatch, scenario)
    assert all(batch.reports == [] for batch in master.reports)


def test_a_master_that_stores_nothing_is_given_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(agent_service, "_WAIT_S", 0.001)

    async def scenario(service: AgentService, master: Master, runner: Runner) -> None:
        add_run(runner, folder)
        run = runner.runs_of("b")["1.1.1"]
        run.dir.journal(0).write_text('{"kind":"started"}\n')
        await until(lambda: "the master's offsets do not move" in caplog.text)
        master.offsets = {"1.1.1": {"journal-0": run.dir.journal(0).stat().st_size}}
        await until(lambda: master.reports and not service._outbox.next_batch(0.0).reports)

    play(folder, monkeypatch, scenario)


def test_an_agent_waits_until_the_end_of_its_runs_is_stored(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: AgentService, master: Master, runner: Runner) -> None:
        await until(lambda: master.registered)
        add_run(runner, folder, code=0)
        add_run(runner, folder, code=0, id="2.1.1")
        runner.runs_of("b")["2.1.1"].exit_sent_at = 1.0  # the master has that one already
        ending = asyncio.create_task(service.report_exits())
        for _ in range(3):
            await asyncio.sleep(0)
        assert not ending.done()
        runner.news.set()
        await ending
        assert "1.1.1" in [exited.allocation_id for exited in master.told("gang_exited")]

    play(folder, monkeypatch, scenario)


def test_an_agent_without_a_master_reports_to_nobody(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: AgentService, master: Master, runner: Runner) -> None:
        add_run(runner, folder, code=0)
        service.leave()  # its master is on this computer: it may register as it is
        await service.report_exits()

    play(folder, monkeypatch, scenario, is_served=False)
