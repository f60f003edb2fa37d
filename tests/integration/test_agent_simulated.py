"""Several simulated agents in one process: each has a link and runs of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import GangPlan, KillGang, Leave, SlotView
from det_jupyter.engine.local import start_agent
from tests.integration.agent_support import (
    AgentProcess,
    FakeMaster,
    agent_with_master,
    assert_gone,
    files_of,
    make_plan,
    remove_sockets,
)
from tests.processes import wait_until, wait_until_gone

FOREVER: list[list[Any]] = [["sleep", 3600]]
TWO_AGENTS = ["--agent", "left=cpu:2", "--agent", "right=cpu:3"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AgentProcess, FakeMaster]]:
    home = tmp_path_factory.mktemp("agent") / "home"
    with agent_with_master(home, options=TWO_AGENTS, num_agents=2) as pair:
        yield pair


@pytest.fixture
def agent(pair: tuple[AgentProcess, FakeMaster]) -> AgentProcess:
    return pair[0]


@pytest.fixture
def master(pair: tuple[AgentProcess, FakeMaster]) -> FakeMaster:
    return pair[1]


def plan_over(allocation_id: str, acts: Any, agent_ids: list[str], **changes: Any) -> GangPlan:
    """Return the plan of a gang with a rank on each of these agents, in that order."""
    indices = [agent_ids[:rank].count(agent_id) for rank, agent_id in enumerate(agent_ids)]
    slots = [SlotView(id=i, kind="cpu", index=i, name="CPU") for i in indices]
    return make_plan(allocation_id, acts, slots=slots, agent_ids=agent_ids, **changes)


def facts_of(path: Path, rank: int) -> dict[str, Any]:
    file = path.with_name(f"{path.name}-{rank}")
    wait_until(file.exists, f"rank {rank} has told")
    facts: dict[str, Any] = json.loads(file.read_text())
    return facts


def runs_of(master: FakeMaster, agent_id: str) -> list[tuple[str, bool]]:
    """Return what an agent has said of its runs when it registered last."""
    return [(run.allocation_id, run.alive) for run in master.registered[agent_id][-1].runs]


def test_each_agent_registers_its_own_slots_and_all_are_one_process(
    agent: AgentProcess, master: FakeMaster
) -> None:
    left, right = (master.registered[name][0] for name in ("left", "right"))
    assert [slot.id for slot in left.slots] == [0, 1]
    assert [slot.id for slot in right.slots] == [0, 1, 2]
    assert {slot.kind for slot in [*left.slots, *right.slots]} == {"cpu"}
    assert left.pid == right.pid == agent.process.pid
    assert left.session == right.session


def test_gang_over_two_agents_meets_over_gloo(
    agent: AgentProcess, master: FakeMaster, tmp_path: Path
) -> None:
    note = tmp_path / "meeting"
    plan = plan_over("both", [["meet", str(note)]], ["left", "left", "right", "right"])
    started = master.begin(plan)
    assert [rank.rank for rank in started.ranks] == [0, 1, 2, 3]
    ended = master.end_of("both")
    assert ended.exit_codes == {0: 0, 1: 0, 2: 0, 3: 0}, files_of(agent.home, "both").path
    assert master.told_by["both"] == "left"
    for rank, (group, local) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        facts = facts_of(note, rank)
        assert facts["backend"] == "gloo"
        assert facts["local"] == [local, 2]
        assert facts["cross"] == [group, 2]
        assert facts["agents"] == 2
        assert facts["everyone"] == [0, 1, 2, 3]
        assert facts["neighbours"] == [2 * group, 2 * group + 1]
        assert facts["local_chief"] == 2 * group
        assert facts["sum"] == 6.0
        assert facts["interface"] == "lo"
        assert facts["environ"] == {"GROUP_RANK": str(group), "LOCAL_RANK": str(local)}


def test_ranks_share_the_cores_among_all_slots_of_the_process(
    master: FakeMaster, tmp_path: Path
) -> None:
    note = tmp_path / "facts"
    master.begin(plan_over("threads", [["tell", str(note)]], ["right"]))
    cores = len(os.sched_getaffinity(0))
    assert facts_of(note, 0)["place"]["num_threads"] == max(1, cores // 5)
    master.end_of("threads")


def test_trial_without_slots_is_one_rank_that_sees_no_device(
    master: FakeMaster, tmp_path: Path
) -> None:
    note = tmp_path / "facts"
    nowhere = SlotView(id=-1, kind="cpu", index=0, name="CPU")
    master.begin(make_plan("aux", [["tell", str(note)]], slots=[nowhere], agent_ids=["right"]))
    facts = facts_of(note, 0)
    assert (facts["place"]["rank"], facts["place"]["world_size"]) == (0, 1)
    assert facts["environ"]["CUDA_VISIBLE_DEVICES"] == ""
    assert master.end_of("aux").exit_codes == {0: 0}


def test_orders_reach_a_run_through_its_agent_and_leave_the_others_alone(
    agent: AgentProcess, master: FakeMaster
) -> None:
    mine = master.begin(plan_over("mine", FOREVER, ["right", "left"]))
    other = master.begin(plan_over("other", FOREVER, ["left"]))
    master.order(KillGang(allocation_id="mine"), to="right")
    assert master.end_of("mine").killed
    assert master.told_by["mine"] == "right"
    wait_until_gone(*(rank.pid for rank in mine.ranks))
    master.close("mine")
    run = files_of(agent.home, "mine").path
    wait_until(lambda: not run.exists(), "the run is closed")
    assert "other" not in master.exited
    assert master.kill("other").exit_codes == {0: -9}
    wait_until_gone(*(rank.pid for rank in other.ranks))


def test_an_agent_that_comes_back_tells_of_its_own_runs_only(
    agent: AgentProcess, master: FakeMaster
) -> None:
    master.begin(plan_over("of-left", FOREVER, ["left", "right"]))
    master.begin(plan_over("of-right", FOREVER, ["right"]))
    master.stop()
    master.start()
    wait_until(lambda: master.linked == ["left", "right"], "both agents are linked again")
    assert ("of-left", True) in runs_of(master, "left")
    assert ("of-right", True) in runs_of(master, "right")
    assert "of-right" not in dict(runs_of(master, "left"))
    assert "of-left" not in dict(runs_of(master, "right"))
    for run in ("of-left", "of-right"):
        assert master.kill(run).killed


@pytest.mark.usefixtures("light_torch")
def test_one_agent_that_is_told_to_leave_takes_all_along(tmp_path: Path) -> None:
    with agent_with_master(tmp_path / "home", options=TWO_AGENTS, num_agents=2) as (agent, master):
        master.begin(plan_over("1.1.1", FOREVER, ["left", "right"]))
        master.begin(plan_over("2.2.1", FOREVER, ["right"]))
        master.order(Leave(), to="right")
        assert [master.end_of(run).lost for run in ("1.1.1", "2.2.1")] == [True, True]
        assert agent.process.wait() == 0
        assert master.told_by == {"1.1.1": "left", "2.2.1": "right"}


@pytest.mark.usefixtures("light_torch")
def test_successor_gives_each_run_to_its_agent_and_those_of_lost_agents_to_the_first(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    master = FakeMaster(home)
    master.start()
    try:
        three = [*TWO_AGENTS, "--agent", "third=cpu:1"]
        with AgentProcess(home, {}, three) as agent:
            wait_until(lambda: len(master.linked) == 3, "the agents are linked")
            for name in ("left", "right", "third"):
                master.begin(plan_over(f"of-{name}", FOREVER, [name]))
            agent.crash()
        registered_before = len(master.registrations)
        with AgentProcess(home, {"DET_JUPYTER_AGENTS": "left=cpu:2 right=cpu:2"}, []):
            wait_until(lambda: len(master.registrations) == registered_before + 2, "both are back")
            for name in ("left", "right", "third"):
                assert master.end_of(f"of-{name}").lost
            assert runs_of(master, "left") == [("of-left", False), ("of-third", False)]
            assert runs_of(master, "right") == [("of-right", False)]
            assert (master.told_by["of-right"], master.told_by["of-third"]) == ("right", "left")
    finally:
        master.stop()
        assert_gone(home)
        remove_sockets(home)


@pytest.mark.usefixtures("light_torch")
def test_bad_agents_are_told_once_and_ignored(tmp_path: Path) -> None:
    options = ["--agent", "left=gpu:2", "--agent", "good=cpu:1"]
    with agent_with_master(tmp_path / "home", options=options) as (agent, master):
        assert master.linked == ["good"]
        said = [line for line in agent.log.read_text().splitlines() if " ERROR " in line]
        assert [line.split(" ERROR ")[1] for line in said] == [
            "det_jupyter.agent.devices.offered_slots: --agent: got 'left=gpu:2', expected "
            "NAME=cpu:N, such as left=cpu:8; ignored"
        ]


@pytest.mark.usefixtures("light_torch")
def test_engine_starts_the_agents_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv(paths.HOME_VARIABLE, str(home))
    master = FakeMaster(home)
    master.start()
    try:
        process = start_agent(["left=cpu:1", "right=cpu:2"])
        wait_until(lambda: master.linked == ["left", "right"], "both agents are linked")
        master.order(Leave())
        assert process.wait() == 0
    finally:
        master.stop()
        assert_gone(home)
        remove_sockets(home)
