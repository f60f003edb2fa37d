"""What is said of full disks, of agents and of changed values."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.messages.disks import DiskStatus, RoomForecast, RoomWait
from det_jupyter.contract.messages.resources import AgentStatus, SlotStatus
from det_jupyter.contract.messages.views import SlotView
from det_jupyter.contract.values.nested import describe_changes, flattened
from det_jupyter.contract.values.reader import SHELL

GB = 10**9


@pytest.mark.parametrize(
    ("facts", "where"),
    [
        ({}, "a full disk"),
        ({"folder": "/data"}, "/data"),
        ({"agent_id": "b"}, "a full disk of agent b"),
        ({"folder": "/data", "agent_id": "b"}, "/data of agent b"),
        ({"folder": "/data", "needs_bytes": 3 * GB}, "/data (needs about 3.0 GB)"),
    ],
)
def test_a_trial_that_waits_for_room_says_where(facts: dict[str, Any], where: str) -> None:
    sentence = RoomWait(since=1.0, **facts).sentence
    assert sentence == f"waits for room on {where} and goes on when there is some"


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({}, "/data: 2.0 GB free, which is little"),
        ({"agent_id": "b"}, "agent b: /data: 2.0 GB free, which is little"),
        ({"free_files": 999}, "/data: 2.0 GB free and 999 more files possible, which is little"),
        ({"free_files": 1000}, "/data: 2.0 GB free, which is little"),
        (
            {"state": "full", "full_in_s": 60.0},
            "/data: 2.0 GB free; what trains here waits for room and goes on when there is some",
        ),
        (
            {"full_in_s": 3600.0, "lost_bytes": GB, "over_s": 600.0},
            "/data: 2.0 GB free; 1.0 GB were written in 10 min, so it is full in about 60 min",
        ),
        (
            {
                "full_in_s": 3600.0,
                "lost_bytes": GB,
                "over_s": 600.0,
                "writes": {1: 10**6, 2: 4 * 10**6, 3: 3 * 10**6, 4: 2 * 10**6},
            },
            "/data: 2.0 GB free; 1.0 GB were written in 10 min (experiment 2: 4.0 MB, "
            "experiment 3: 3.0 MB, experiment 4: 2.0 MB), so it is full in about 60 min",
        ),
    ],
)
def test_the_state_of_a_disk_is_one_sentence(facts: dict[str, Any], sentence: str) -> None:
    status = DiskStatus(folder="/data", total_bytes=100 * GB, free_bytes=2 * GB, **facts)
    assert status.sentence(SHELL) == f"{sentence}; `det disk` shows what takes it"


@pytest.mark.parametrize(
    ("free", "fits"), [(None, True), (12 * GB, True), (12 * GB - 1, False), (0, False)]
)
def test_checkpoints_fit_if_there_is_room_for_all_of_them(free: int | None, fits: bool) -> None:
    forecast = RoomForecast(free_bytes=free, checkpoint_bytes=3 * GB, num_checkpoints=4, like=7)
    assert forecast.fits is fits
    if free == 0:
        assert forecast.sentence == (
            "checkpoint_storage: 4 checkpoints of 3.0 GB (as experiment 7 wrote) take 12 GB until "
            "the experiment ends, and  has 0 B free."
        )


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ({"connected": True}, "connected"),
        ({"connected": False}, "not connected"),
        ({"connected": False, "left_at": 90_000.0, "slots": 1}, "not connected since "),
        ({"connected": True, "left_at": 90_000.0, "slots": 1}, "connected"),
        ({"connected": True, "left_at": 90_000.0}, "left at "),
    ],
)
def test_an_agent_is_connected_or_not_since_a_time(facts: dict[str, Any], state: str) -> None:
    slot = SlotStatus(slot=SlotView(id=0, kind="cpu", index=0, name="CPU"), state="free")
    slots = [slot] * facts.pop("slots", 0)
    agent = AgentStatus(id="a", hostname="h", pool="p", slots=slots, **facts)
    found = agent.state(90_060.0)
    assert found.startswith(state)
    assert (found == state) is not state.endswith(" ")


def test_changes_of_nested_values_are_told_by_their_paths() -> None:
    old = {"lr": 0.1, "net": {"depth": 2, "extra": {}}, "gone": 1, "same": None}
    new = {"lr": 0.1, "net": {"depth": 3, "extra": {}}, "same": None, "more": True}
    assert dict(flattened(old)) == {
        "lr": 0.1, "net.depth": 2, "net.extra": {}, "gone": 1, "same": None,
    }  # fmt: skip
    assert describe_changes(old, new) == ["net.depth 2 → 3", "gone 1 → none", "more none → True"]
    assert describe_changes(new, new) == []
