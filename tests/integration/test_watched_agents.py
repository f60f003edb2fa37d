"""How a master watches its agents, and ends them; their starter does as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import cast

import pytest

from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.host.versions import installed_versions
from det_jupyter.contract.messages import Kill, RunReport
from det_jupyter.master.background import agent_supervisor
from det_jupyter.master.background.agent_supervisor import AgentSupervisor, shut_down
from det_jupyter.master.background.clusters import Clusters
from det_jupyter.master.machine.model.events import Event
from det_jupyter.master.service.agents.cluster_nodes import AgentNode
from det_jupyter.master.service.agents.links import SILENT_S
from tests.integration.master_support import (
    AGENT,
    RUN,
    Bench,
    bench_with_trial,
    gang_exited,
    make_registration,
)

LOST_S = 30.0


class Engine:
    """A starter whose agents are what the test says of them."""

    def __init__(self) -> None:
        self.problem = ""
        self.why = {AGENT: "agent here is frozen"}  # of those that run
        self.kept: list[list[str]] = []
        self.runs = True
        self.num_dismissed = 0
        self.raises = False

    def keep(self, connected: Collection[str]) -> list[str]:
        self.kept.append(list(connected))
        if self.raises:
            self.raises = False
            raise OSError(28, "No space left on device")
        return []

    def is_running(self) -> bool:
        return self.runs

    def why_silent(self, agent_id: str, process: ProcessIdentity) -> str | None:
        return self.why.get(agent_id)

    def dismiss(self) -> None:
        self.num_dismissed += 1

    def end_all(self, patience_s: float) -> tuple[list[str], list[str]]:
        raise NotImplementedError


class Watch:
    """A supervisor, whose agents are silent for as long as the test says."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench, self.service = bench, bench.service
        self.engine = Engine()
        self.supervisor = AgentSupervisor(self.service, self.engine, lost_s=LOST_S)
        self.silent_s = 0.0
        monkeypatch.setattr(self.service.links, "silent_s", lambda _: self.silent_s)
        monkeypatch.setattr(self.service.links, "drop_silent", list)
        monkeypatch.setattr(agent_supervisor, "CHECK_S", 0.0)

    def look(self, silent_s: float) -> None:
        """Have the agents looked after while they are silent for so long."""
        self.silent_s = silent_s

        async def run() -> None:
            watching = asyncio.create_task(self.supervisor.run())
            num = len(self.engine.kept)
            while len(self.engine.kept) < num + 3:
                await asyncio.sleep(0)
            watching.cancel()

        asyncio.run(run())

    @property
    def is_lost(self) -> bool:
        return AGENT in self.service.machine.state.lost_agents

    @property
    def problem(self) -> str:
        return self.service.machine.state.agents[AGENT].problem

    @property
    def is_away(self) -> bool:
        return self.service.machine.state.agents[AGENT].is_away

    def make_remote(self, hostname: str = AGENT) -> None:
        """Let the agent be one of another computer."""
        registration = make_registration(
            "first", runs=[RunReport(allocation_id=RUN, alive=True)]
        ).model_copy(update={"hostname": hostname, "versions": installed_versions()})
        self.service.register(AGENT, registration, is_remote=True)


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        yield Watch(bench, monkeypatch)


def test_an_agent_is_away_after_a_second_and_its_problem_is_told_after_ten(watch: Watch) -> None:
    watch.look(1.0)
    assert not watch.is_away
    watch.look(1.1)
    assert (watch.is_away, watch.problem) == (True, "")
    watch.look(SILENT_S - 0.1)
    assert watch.problem == ""
    watch.look(SILENT_S)
    assert watch.problem == "agent here is frozen"
    seq = watch.service.machine.state.seq
    watch.look(SILENT_S + 1)
    assert watch.service.machine.state.seq == seq  # it is noted once
    assert not watch.is_lost  # it runs


def test_an_agent_of_which_no_process_runs_is_lost_after_a_while(watch: Watch) -> None:
    watch.look(5.0)
    watch.engine.why = {}
    watch.look(40.0)  # it has been found to have ended only now
    assert not watch.is_lost
    watch.look(69.0)
    assert not watch.is_lost
    watch.look(70.0)
    assert watch.is_lost
    seq = watch.service.machine.state.seq
    watch.look(200.0)
    assert watch.service.machine.state.seq == seq


def test_an_agent_that_has_come_back_has_all_of_the_time_again(watch: Watch) -> None:
    watch.engine.why = {}
    watch.look(2.0)
    watch.look(20.0)
    watch.bench.register(runs=[RunReport(allocation_id=RUN, alive=True)])
    watch.look(0.0)
    assert not watch.is_away
    watch.look(2.0)
    watch.look(31.9)
    assert not watch.is_lost
    watch.look(32.0)
    assert watch.is_lost


def test_an_agent_that_is_lost_again_counts_as_lost_again(watch: Watch) -> None:
    watch.engine.why = {}
    for _ in range(2):
        watch.look(2.0)
        watch.look(32.0)
        assert watch.is_lost
        watch.bench.register()
        watch.look(0.0)
        assert not watch.is_lost


def test_an_agent_whose_loss_could_not_be_stored_is_lost_at_the_next_look(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch.engine.why = {}
    watch.look(2.0)
    take, failures = watch.service.take, [OSError(28, "No space left on device")]

    def fail_once(event: Event) -> None:
        if failures:
            raise failures.pop()
        take(event)

    monkeypatch.setattr(watch.service, "take", fail_once)
    watch.look(32.0)
    assert watch.is_lost


def test_why_no_agent_can_be_started_is_the_masters_problem_and_that_of_its_agents(
    watch: Watch,
) -> None:
    watch.engine.problem = "the interpreter is gone"
    watch.look(2.0)
    assert watch.service.problems == ["the interpreter is gone"]
    assert watch.problem == "the interpreter is gone"
    watch.engine.problem = ""
    watch.look(2.0)
    assert watch.service.problems == []


def test_a_failure_of_this_computer_ends_no_watching(watch: Watch) -> None:
    watch.engine.raises = True
    watch.look(2.0)
    assert watch.is_away


def test_an_agent_of_another_computer_is_lost_when_its_ranks_have_ended_there(
    watch: Watch,
) -> None:
    watch.make_remote(hostname="node7")
    watch.engine.problem = "the interpreter is gone"  # which concerns those of this one
    watch.look(SILENT_S)
    assert watch.problem == (
        "agent here on node7 cannot be reached; it ends what runs there when that lasts 25 s"
    )
    watch.look(LOST_S - 0.1)
    assert not watch.is_lost
    watch.look(LOST_S)
    assert watch.is_lost


def test_an_agent_of_a_cluster_is_shown_with_what_is_wrong_with_that(watch: Watch) -> None:
    watch.make_remote()
    node = watch.service.nodes.of_agents[AGENT] = AgentNode(cluster="ray", node_id="a")
    watch.service.nodes.notes["ray"] = "cluster ray does not answer"
    watch.look(SILENT_S)
    assert watch.problem == (
        "cluster ray does not answer; agent here cannot be reached; it ends what runs there when "
        "that lasts 25 s"
    )
    node.exited_at = -1000.0  # long ago, so nothing runs there
    watch.look(SILENT_S)
    assert watch.is_lost


def test_only_agents_of_this_computer_are_kept_by_the_starter(watch: Watch) -> None:
    watch.service.links.get(AGENT, "first").is_streaming = True
    watch.look(0.0)
    assert watch.engine.kept[-1] == [AGENT]
    watch.make_remote()
    watch.service.links.get(AGENT, "first").is_streaming = True
    watch.look(0.0)
    assert watch.engine.kept[-1] == []


# the end


class NoClusters:
    """The clusters of a master that has none."""

    def __init__(self) -> None:
        self.closed: list[bool] = []

    async def close(self, *, end_hosts: bool) -> None:
        self.closed.append(end_hosts)


def end(
    watch: Watch, *, everything: bool, meanwhile: Callable[[], None] = lambda: None
) -> list[bool]:
    """Shut a master down; call something after a while. Return how its clusters were closed."""
    clusters = NoClusters()

    async def run() -> None:
        ending = asyncio.create_task(
            shut_down(
                watch.service, watch.supervisor, cast(Clusters, clusters), everything=everything
            )
        )
        for _ in range(5):
            await asyncio.sleep(0)
        meanwhile()
        await ending

    asyncio.run(run())
    assert watch.service.is_leaving
    return clusters.closed


def connect(watch: Watch) -> None:
    watch.service.links.get(AGENT, "first").is_streaming = True


def test_a_master_that_ends_leaves_running_trials_to_their_agents(watch: Watch) -> None:
    connect(watch)
    assert end(watch, everything=False) == [False]
    assert "leave" not in watch.bench.commands()
    assert watch.engine.num_dismissed == 0
    assert watch.service.commits.is_closed


def test_a_master_without_running_trials_ends_its_agents(watch: Watch) -> None:
    watch.bench.report(gang_exited(code=1))
    watch.service.apply(Kill(experiment_id=1))
    watch.bench.report(gang_exited("1.1.2", code=1))
    connect(watch)

    def exit_soon() -> None:
        assert watch.bench.commands()[-1] == "leave"
        watch.engine.runs = False

    assert end(watch, everything=False, meanwhile=exit_soon) == [True]
    assert watch.bench.commands().count("leave") == 1
    assert watch.engine.num_dismissed == 0


def test_with_everything_trials_are_killed_before_the_agents_leave(watch: Watch) -> None:
    connect(watch)

    def exit_soon() -> None:
        commands = watch.bench.commands()
        assert "leave" not in commands
        assert "signal_gang" in commands or "kill_gang" in commands
        watch.bench.report(gang_exited(code=137))
        watch.engine.runs = False

    assert end(watch, everything=True, meanwhile=exit_soon) == [True]
    assert watch.service.machine.state.experiment(1).state == "CANCELED"
    assert watch.bench.commands().count("leave") == 1


def test_agents_and_ranks_that_do_not_end_are_waited_for_only_for_a_while(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_supervisor, "_GANGS_S", 0.01)
    monkeypatch.setattr(agent_supervisor, "_AGENT_S", 0.01)
    connect(watch)
    assert end(watch, everything=True) == [True]
    assert watch.engine.num_dismissed == 1


def test_ranks_of_agents_that_are_away_are_not_waited_for(watch: Watch) -> None:
    watch.engine.runs = False
    assert end(watch, everything=True) == [True]
