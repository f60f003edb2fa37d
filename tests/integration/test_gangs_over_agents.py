"""A master and the agents of a gang on two computers: their links, and which reports count."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from det_jupyter.contract.host.versions import installed_versions
from det_jupyter.contract.messages import (
    AgentCommand,
    AgentReport,
    AgentReports,
    CloseRun,
    Cut,
    GangExited,
    GangLink,
    GangStarted,
    KillGang,
    Offsets,
    RankProcess,
    RegisterAgent,
    RunReport,
    SetPools,
    StartGang,
    State,
)
from det_jupyter.errors import ConfigError
from det_jupyter.master.http.agent_listener import AgentListener
from det_jupyter.master.machine.model.events import AgentLost, AgentRemoved, AgentsReachable
from tests.integration.master_support import (
    RUN,
    Bench,
    make_chunk,
    make_registration,
    make_request,
    started,
)
from tests.unit.master.machine_invariants import check_machine

ADDRESSES = {"b": "10.0.0.5", "c": "10.0.0.6", "d": "10.0.0.7"}


def registration(agent_id: str, runs: list[RunReport] | None = None) -> dict[str, Any]:
    own = {"versions": installed_versions(), "port": 7000 + ord(agent_id), "hostname": agent_id}
    return make_registration(agent_id, runs=runs).model_copy(update=own).model_dump(mode="json")


class Cluster(Bench):
    """A master without HTTP, and agents b and c on other computers."""

    def join(self, agent_id: str, runs: list[RunReport] | None = None, **own: Any) -> Offsets:
        """Register an agent, whose session is its name."""
        message = RegisterAgent.model_validate(registration(agent_id, runs) | own)
        peer = ADDRESSES[agent_id]
        return self.service.register(agent_id, message, is_remote=True, peer=peer)

    def send(self, agent_id: str, *reports: AgentReport) -> Offsets:
        batch = AgentReports(session=agent_id, reports=list(reports))
        return self.service.take_reports(agent_id, batch)

    def sent(self, agent_id: str) -> list[AgentCommand]:
        """Return the commands for an agent that it has not received, and remove them."""
        waiting = self.service.links.get(agent_id, agent_id)._queue
        commands = [command for command in waiting if command is not None]
        waiting.clear()
        return commands

    def link(self, agent_id: str) -> GangLink:
        """Return the link in the start that was sent to an agent."""
        (start,) = self.sent(agent_id)
        assert isinstance(start, StartGang)
        assert start.link is not None
        return start.link


def submit(cluster: Cluster, slots: int = 4, **changes: Any) -> None:
    request = make_request(resources={"slots_per_trial": slots}, **changes)
    asyncio.run(cluster.service.submit(request))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Return a master with two agents of two slots each."""
    cluster = Cluster(tmp_path / "db")
    try:
        cluster.join("b")
        cluster.join("c")
        yield cluster
        check_machine(cluster.service.machine)
    finally:
        cluster.service.close()


def part_started(*ranks: int) -> GangStarted:
    processes = [
        RankProcess(rank=rank, pid=10 + rank, connection_file="c", output_file="o")
        for rank in ranks
    ]
    return GangStarted(allocation_id=RUN, at=1.0, ranks=processes)


def part_exited(*ranks: int, code: int = 0, **facts: Any) -> GangExited:
    return GangExited(allocation_id=RUN, at=2.0, exit_codes=dict.fromkeys(ranks, code), **facts)


# Links


def test_agents_that_accept_others_get_the_same_link(cluster: Cluster) -> None:
    submit(cluster)
    chief, other = cluster.link("b"), cluster.link("c")
    assert chief.addresses == ["10.0.0.5", "10.0.0.6"]
    assert (chief.agents, chief.ports) == (["b", "c"], [7000 + ord("b"), 7000 + ord("c")])
    assert "PRIVATE KEY" in chief.key
    assert other == chief
    assert len(bytes.fromhex(chief.secret)) == 32
    context = ssl.create_default_context(cadata=chief.certificate)
    assert context.get_ca_certs()


def test_address_that_an_agent_has_sent_comes_before_that_of_its_connection(
    cluster: Cluster,
) -> None:
    cluster.join("c", address="fd00::7")
    submit(cluster)
    assert cluster.link("b").addresses == ["10.0.0.5", "fd00::7"]


def test_link_has_the_network_interface_of_the_pool(cluster: Cluster) -> None:
    defaults = {"dtrain_network_interface": "ib0"}
    pool = {"pool_name": "default", "task_container_defaults": defaults}
    cluster.service.apply(SetPools(pools=[pool]))
    submit(cluster)
    assert (cluster.link("b").interface, cluster.link("c").interface) == ("ib0", "ib0")


def test_start_that_is_repeated_by_the_next_master_has_the_same_link(
    cluster: Cluster, tmp_path: Path
) -> None:
    submit(cluster)
    before = cluster.link("c")
    cluster.service.close()
    again = Cluster(tmp_path / "db")
    again.join("c")
    assert again.link("c") == before
    again.service.close()


def test_secrets_of_gangs_differ_and_are_in_no_event(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    submit(cluster)
    link = cluster.link("b")
    cluster.sent("c")
    cluster.send("b", part_exited(0, 1, code=-9, first_failed=0))
    cluster.send("c", part_exited(2, 3, killed=True))
    second = next(c for c in cluster.sent("c") if isinstance(c, StartGang))
    assert second.link is not None
    assert second.link.secret != link.secret
    cluster.service.store._db.execute("PRAGMA wal_checkpoint")
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("db*"))
    for secret in (link.secret, link.key.splitlines()[1]):
        assert secret.encode() not in stored
        assert secret not in caplog.text
        assert secret not in repr(link)


def test_gang_whose_chief_cannot_be_reached_ends_with_the_reason(cluster: Cluster) -> None:
    cluster.join("b", port=0)
    cluster.join("c", port=0)
    submit(cluster)
    trial = cluster.service.machine.state.trials[1]
    assert trial.state is State.ERROR
    assert "agent b accepts no connections of the others; its log says why" in trial.message


def test_gang_on_one_computer_has_no_link(cluster: Cluster) -> None:
    submit(cluster, slots=2)
    (start,) = cluster.sent("b")
    assert isinstance(start, StartGang)
    assert start.link is None


def test_address_of_an_agent_is_that_of_its_connection(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "db")
    access = bench.service.access
    token = access.add("b")

    async def register() -> None:
        listener = AgentListener(bench.service, access, str(tmp_path))
        port = await listener.open()
        context = ssl.create_default_context(cadata=access.certificate.read_text())
        context.check_hostname = False
        async with httpx.AsyncClient(verify=context) as http:
            answer = await http.post(
                f"https://127.0.0.1:{port}/api/v1/agents/b/register",
                json=registration("b"),
                headers={"Authorization": f"Bearer {token}"},
            )
        await listener.close()
        assert answer.status_code == 200, answer.text

    try:
        asyncio.run(register())
        assert bench.service.machine.state.agents["b"].address == "127.0.0.1"
    finally:
        bench.service.close()


# Reports


def test_agent_reports_only_about_its_own_ranks(cluster: Cluster) -> None:
    submit(cluster)
    cluster.send("b", part_started(2, 3))
    cluster.send("b", make_chunk([started()], rank=2))
    assert cluster.store.offsets_of(RUN) == {}
    allocation = cluster.service.machine.state.trials[1].allocation
    assert allocation is not None
    assert (allocation.ranks, allocation.ranks_up) == ([], {})
    chunk = make_chunk([started()], rank=2)
    offsets = cluster.send("c", part_started(2, 3), chunk)
    assert offsets.offsets == {RUN: {"journal-2": chunk.size_bytes}}
    assert [*allocation.ranks_up] == [2]


def test_end_that_an_agent_reports_is_that_of_its_own_ranks(cluster: Cluster) -> None:
    submit(cluster)
    cluster.send("b", part_started(0, 1))
    cluster.sent("b")
    cluster.send("c", part_exited(0, 1, 2, 3, code=1, first_failed=2))
    assert cluster.sent("b") == [KillGang(allocation_id=RUN)]
    allocation = cluster.service.machine.state.trials[1].allocation
    assert allocation is not None
    assert [part.ranks for part in allocation.living_parts] == [[0, 1]]


def test_agent_gets_the_offsets_of_its_own_files(cluster: Cluster) -> None:
    submit(cluster)
    first, second = make_chunk([started()], rank=0), make_chunk([started()], rank=3)
    cluster.send("b", part_started(0, 1), first)
    cluster.send("c", part_started(2, 3), second)
    run = [RunReport(allocation_id=RUN, alive=True)]
    assert cluster.join("b", run).offsets == {RUN: {"journal-0": first.size_bytes}}
    assert cluster.join("c", run).offsets == {RUN: {"journal-3": second.size_bytes}}


def test_agent_without_a_part_of_the_run_is_told_to_close_it(cluster: Cluster) -> None:
    submit(cluster, slots=2)
    cluster.send("c", part_exited(0, 1, code=1))
    assert cluster.sent("c") == [CloseRun(allocation_id=RUN)]
    assert cluster.service.machine.state.trials[1].holds_slots


def test_process_of_an_agent_whose_part_is_over_can_be_replaced(cluster: Cluster) -> None:
    submit(cluster)
    cluster.send("c", part_exited(2, 3, code=1, first_failed=2))
    cluster.join("c", session="another")
    assert cluster.service.machine.state.agents["c"].session == "another"


def test_local_agent_reports_for_its_own_part_when_that_of_a_removed_one_is_over(
    cluster: Cluster,
) -> None:
    cluster.register()
    submit(cluster, slots=6)
    cluster.service.take(AgentRemoved(agent_id="c"))
    cluster.service.take(AgentLost(agent_id="c"))
    cluster.report(part_exited(4, 5, code=-9, killed=True))
    allocation = cluster.service.machine.state.trials[1].allocation
    assert allocation is not None
    assert [part.agent_id for part in allocation.living_parts] == ["b"]


# Sizes


@pytest.mark.parametrize(
    ("slots", "changes", "problem"),
    [
        (3, {}, "got 3, but pool default has 2 agents with 2 slots each; "
                "values that can run: 1, 2, 4"),
        (4, {"entrypoint": "python3 train.py"},
         "got 4 on one agent (its entrypoint is a program, and launchers start ranks on one "
         "computer; `entrypoint: model_def:Trial`, or a class or function of a notebook, can be "
         "on several), but pool default has 2 agents with 2 slots each; values that can run "
         "on one agent: 1, 2"),
    ],
)  # fmt: skip
def test_what_cannot_span_computers_is_refused(
    cluster: Cluster, slots: int, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        submit(cluster, slots, **changes)
    assert problem in str(refused.value)


def test_program_waits_for_slots_of_one_computer(cluster: Cluster) -> None:
    submit(cluster, slots=1)
    submit(cluster, slots=1, entrypoint="python3 train.py")
    submit(cluster, slots=2, entrypoint="python3 train.py")
    places = [
        trial.allocation.agent_ids
        for trial in cluster.service.machine.state.trials.values()
        if trial.allocation is not None
    ]
    assert places == [["b"], ["b"], ["c", "c"]]


# Computers that do not reach each other

CUT = Cut(from_agent="c", to_agent="b", why="no answer at 10.0.0.5 port 7098 for 25 s")


def places(cluster: Cluster) -> list[str]:
    """Return the agents of the trial's gang; [] if it waits."""
    allocation = cluster.service.machine.state.trials[1].allocation
    assert allocation is not None
    return list(dict.fromkeys(allocation.agent_ids))


def cut_apart(cluster: Cluster) -> None:
    """End the gang of the trial, because `c` cannot reach `b`."""
    cluster.send("b", part_started(0, 1))
    cluster.send("c", part_started(2, 3), part_exited(2, 3, code=-9, lost=True, cut=CUT))
    cluster.send("b", part_exited(0, 1, code=-9, killed=True))


def test_cut_between_two_computers_is_no_failure_and_the_trial_waits_until_it_is_over(
    cluster: Cluster,
) -> None:
    submit(cluster, max_restarts=0)
    cut_apart(cluster)
    trial = cluster.service.machine.state.trials[1]
    assert (trial.state, trial.restarts, places(cluster)) == (State.ACTIVE, 0, [])
    assert trial.notices == [f"run 1 ended, which is no failure: {CUT.sentence}"]
    reason = cluster.service.views.reason(trial.id)
    assert reason.cause == "cut"
    assert reason.sentence.startswith("needs 4 slots of computers that reach each other; since ")
    assert reason.sentence.endswith(
        "cannot reach the computer of agent b from that of agent c: no answer at 10.0.0.5 port "
        "7098 for 25 s"
    )
    cluster.service.take(AgentsReachable(agents=["b", "c"]))
    assert places(cluster) == ["b", "c"]
    assert cluster.service.machine.state.cuts == []


def test_trial_goes_to_computers_that_reach_each_other(cluster: Cluster) -> None:
    cluster.join("d")
    submit(cluster)
    cut_apart(cluster)
    assert places(cluster) == ["b", "d"]


@pytest.mark.parametrize(
    "event",
    [AgentRemoved(agent_id="c"), AgentLost(agent_id="c"), None],
)
def test_cut_is_forgotten_with_its_agent(cluster: Cluster, event: AgentLost | None) -> None:
    submit(cluster)
    cut_apart(cluster)
    if event is not None:
        cluster.service.take(event)
    else:
        cluster.join("c", session="another")
    assert cluster.service.machine.state.cuts == []
