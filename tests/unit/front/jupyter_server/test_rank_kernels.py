"""Ranks as kernels: which names are theirs, where a rank is, and why one has ended."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.messages import AgentStatus, AllocationState, State, TrialView
from det_jupyter.errors import Conflict, MasterUnreachable
from det_jupyter.front.jupyter_server import provisioner
from det_jupyter.front.jupyter_server import rank_kernels as module
from det_jupyter.front.jupyter_server.provisioner import RankProvisioner
from det_jupyter.front.jupyter_server.rank_kernels import (
    RunningRank,
    add_rank_specs,
    find_rank,
    spec_of,
    why_ended,
)
from tests.unit.view.view_cluster_samples import cluster, pool
from tests.unit.view.view_samples import allocation, failure, trial


def has(monkeypatch: pytest.MonkeyPatch, view: TrialView) -> None:
    monkeypatch.setattr(module, "_fetch_trial", lambda trial_id: view)


def running(pid: int, *, agents: tuple[str, ...] = ("left", "right")) -> TrialView:
    held = allocation(num_ranks=2)
    here = asdict(ProcessIdentity.of(pid))
    ranks = [rank.model_copy(update=here) for rank in held.ranks]
    return trial(
        id=7, allocation=held.model_copy(update={"ranks": ranks, "agent_ids": list(agents)})
    )


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("det-trial-12-rank-3", {"trial_id": 12, "rank": 3}),
        ("det-trial-0-rank-0", {"trial_id": 0, "rank": 0}),
        ("det-trial-12-rank-3 ", None),
        ("xdet-trial-12-rank-3", None),
        ("det-trial--1-rank-3", None),
        ("det-trial-12-rank-", None),
        (f"det-trial-{'9' * 16}-rank-3", None),
        ("python3", None),
    ],
)
def test_the_name_of_a_kernel_says_which_rank_it_is(
    name: str, config: dict[str, int] | None
) -> None:
    spec = spec_of(name)
    if config is None:
        assert spec is None
        return
    assert spec is not None
    provisioner = spec.metadata["kernel_provisioner"]
    assert provisioner == {"provisioner_name": "det-rank", "config": config}
    assert spec.display_name == f"Trial {config['trial_id']}, rank {config['rank']}"


def test_a_server_finds_ranks_by_name_and_lists_none() -> None:
    specs = KernelSpecManager(kernel_dirs=[], ensure_native_kernel=False)
    add_rank_specs(specs)
    assert specs.get_kernel_spec("det-trial-1-rank-0").display_name == "Trial 1, rank 0"
    assert specs.find_kernel_specs() == {}
    with pytest.raises(NoSuchKernel):
        specs.get_kernel_spec("another")


@pytest.mark.parametrize(
    ("agents", "agent_id"), [(("left", "right"), "right"), (("left",), ""), ((), "")]
)
def test_a_rank_that_runs_here(
    monkeypatch: pytest.MonkeyPatch, agents: tuple[str, ...], agent_id: str
) -> None:
    has(monkeypatch, running(os.getpid(), agents=agents))
    found = find_rank(7, 1)
    assert found.name == "rank 1 of trial 7"
    assert found.process == ProcessIdentity.of(os.getpid())
    assert found.agent_id == agent_id


@pytest.mark.parametrize(
    ("view", "rank", "problem"),
    [
        (
            running(2**22 + 7),
            1,
            r"rank 1 of trial 7 has no process on .+ \(agent right\)",
        ),
        (running(1), 5, "trial 7 has no rank 5: its ranks are 0 to 1"),
        (trial(allocation=None), 0, "rank 0 of trial 7 does not run now: the trial is"),
        (
            trial(
                allocation=allocation(AllocationState.QUEUED, num_ranks=0),
                waiting_for="needs 4 slots",
            ),
            0,
            "rank 0 of trial 7 does not run now: needs 4 slots",
        ),
    ],
)
def test_a_rank_that_cannot_be_attached_to_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, view: TrialView, rank: int, problem: str
) -> None:
    has(monkeypatch, view)
    with pytest.raises(Conflict, match=f"^{problem}"):
        find_rank(7, rank)


def test_a_process_of_another_computer_with_a_pid_of_this_one_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = running(os.getpid())
    assert view.allocation is not None
    other = asdict(ProcessIdentity(os.getpid(), "7@another start", "other"))
    ranks = [rank.model_copy(update=other) for rank in view.allocation.ranks]
    far = view.allocation.model_copy(update={"ranks": ranks})
    has(monkeypatch, view.model_copy(update={"allocation": far}))
    with pytest.raises(Conflict, match=r"no process on this computer \(agent right\)"):
        find_rank(7, 1)


def test_rank_of_an_agent_elsewhere_is_found_whatever_has_its_pid_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = find_elsewhere(monkeypatch, tmp_path)
    assert (found.is_remote, found.agent_id, found.is_reachable) == (True, "right", False)
    (tmp_path / "kernel.json").touch()
    assert found.is_reachable


def find_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunningRank:
    view = running(2**22 + 7)
    assert view.allocation is not None
    changes = {"is_remote": True, "connection_file": str(tmp_path / "kernel.json")}
    ranks = [rank.model_copy(update=changes) for rank in view.allocation.ranks]
    far = view.allocation.model_copy(update={"ranks": ranks})
    has(monkeypatch, view.model_copy(update={"allocation": far}))
    return find_rank(7, 1)


def has_agent(monkeypatch: pytest.MonkeyPatch, *, connected: bool) -> None:
    agent = AgentStatus(
        id="right", hostname="node", pid=1, pool="default", connected=connected, slots=[]
    )
    view = cluster(pool(agent))
    monkeypatch.setattr(module, "_fetch", lambda path, limit: view.model_dump())


def test_rank_that_cannot_be_reached_for_long_is_dead_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = find_elsewhere(monkeypatch, tmp_path)
    console = RankProvisioner(trial_id=7, rank=1)
    has_agent(monkeypatch, connected=False)
    assert console._why_dead(found) == ""  # the master may be restarted
    monkeypatch.setattr(provisioner, "_AWAY_S", 0.0)
    cannot = "rank 1 of trial 7 cannot be reached"
    assert console._why_dead(found) == f"{cannot}: agent right is not connected"
    has_agent(monkeypatch, connected=True)
    assert console._why_dead(found) == f"{cannot}: its kernel does not answer"
    has(monkeypatch, trial(allocation=None, state=State.COMPLETED))
    assert console._why_dead(found) == "rank 1 of trial 7 has ended: the trial is over (completed)"


def test_rank_elsewhere_is_dead_when_no_master_runs_for_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = find_elsewhere(monkeypatch, tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(module, "find_master", lambda: None)
    console = RankProvisioner(trial_id=7, rank=1)
    assert console._why_dead(found) == ""
    monkeypatch.setattr(provisioner, "_AWAY_S", 0.0)
    assert "cannot be reached: no det_jupyter master runs" in console._why_dead(found)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"state": State.ERROR, "failure": failure(error="no memory"), "allocation": None},
            "the trial failed: no memory",
        ),
        ({"state": State.COMPLETED, "allocation": None}, "the trial is over (completed)"),
        ({"waiting_for": "paused", "allocation": None}, "the trial waits: paused"),
        (
            {"allocation": allocation()},
            "the trial goes on in new processes; restart the kernel to attach to the new one",
        ),
        # A failure from which it started again is not why it is over.
        (
            {"state": State.CANCELED, "failure": failure(error="once"), "allocation": None},
            "the trial is over (canceled)",
        ),
    ],
)
def test_why_a_rank_has_ended(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], why: str
) -> None:
    has(monkeypatch, trial(**changes))
    assert why_ended(7, 1) == f"rank 1 of trial 7 has ended: {why}"


def test_no_master_is_started_to_find_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_master", lambda: None)
    with pytest.raises(MasterUnreachable, match="no det_jupyter master runs"):
        find_rank(7, 1)
