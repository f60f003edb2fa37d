"""A rank's console needs a process of this computer: its pid alone may be another one's."""

from __future__ import annotations

import os

import pytest

from det_jupyter.contract.host.processes import Process
from det_jupyter.contract.messages import (
    AllocationState,
    AllocationView,
    RankView,
    SlotView,
    State,
    TrialView,
)
from det_jupyter.errors import Conflict
from det_jupyter.front.jupyter_server import ranks


def trial_with(process: Process) -> TrialView:
    slot = SlotView(id=0, kind="cpu", index=0, name="CPU")
    rank = RankView(
        rank=0, pid=process.pid, birth=process.birth, host=process.host, slot=slot,
        connection_file="kernel.json", output_file="output",
    )  # fmt: skip
    allocation = AllocationView(
        id="1.1.1", run=1, state=AllocationState.RUNNING, agent_ids=["far"], ranks=[rank]
    )
    return TrialView(
        id=1,
        experiment_id=1,
        state=State.ACTIVE,
        hparams={},
        seed=1,
        created_at=0.0,
        allocation=allocation,
    )


def test_a_rank_of_this_computer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process.of(os.getpid())
    monkeypatch.setattr(ranks, "_fetch_trial", lambda trial_id: trial_with(process))
    found = ranks.find_rank(1, 0)
    assert (found.process, found.connection_file) == (process, "kernel.json")


def test_a_rank_of_another_computer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(os.getpid(), "7@another start", "other")
    monkeypatch.setattr(ranks, "_fetch_trial", lambda trial_id: trial_with(process))
    with pytest.raises(Conflict, match=r"no process on this computer \(agent far\)"):
        ranks.find_rank(1, 0)
