"""What the sidebar, its meters and the Running panel are drawn from."""

from __future__ import annotations

import math
from typing import Any

import pytest

from det_jupyter.contract.messages import (
    AgentStatus,
    AllocationState,
    RoomWait,
    Series,
    SeriesPage,
    SlotStatus,
    SlotView,
    State,
)
from det_jupyter.contract.values.text import short_time
from det_jupyter.view import build_view_state
from det_jupyter.view.forms.notebook_output import place_key
from det_jupyter.view.making.sidebar_lines import (
    IN_LINE,
    NO_GPU,
    NO_SAMPLE,
    build_cluster_state,
    build_row,
    build_trials,
    build_usage,
    first_entries,
)
from tests.unit.front.verbs.finding_samples import row
from tests.unit.view.view_cluster_samples import (
    NOW,
    agent,
    cluster,
    entry,
    every_kind_of_slot,
    pool,
    reason,
    slot_status,
)
from tests.unit.view.view_samples import allocation, experiment, trial

RUNNING, STOPPING = AllocationState.RUNNING, AllocationState.STOPPING


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "queued"),
        ({"gangs": [AllocationState.STARTING]}, "starting"),
        ({"gangs": [AllocationState.STARTING, RUNNING]}, "running"),
        ({"gangs": [STOPPING]}, "pausing"),
        ({"gangs": [STOPPING], "num_trials": 9}, "running"),
        ({"gangs": [STOPPING], "state": State.PAUSING, "num_trials": 9}, "pausing"),
        ({"state": State.PAUSED}, "paused"),
        ({"state": State.STOPPING_KILLED, "gangs": [RUNNING]}, "stopping"),
        ({"state": State.DELETING}, "stopping"),
        ({"state": State.COMPLETED}, "completed"),
        ({"state": State.ERROR}, "error"),
    ],
)
def test_a_line_has_the_status_of_a_view(changes: dict[str, Any], status: str) -> None:
    assert build_row(row(7, **changes), None, NOW).status == status


def test_a_line_says_why_its_first_trial_waits_and_what_would_start_it() -> None:
    queue = [entry(9, 7, position=4), entry(3, 7, position=2, reason=reason(3)), entry(4, 5)]
    first = first_entries(cluster(pool(), queue=queue))
    assert {number: each.trial_id for number, each in first.items()} == {7: 3, 5: 4}
    line = build_row(row(7), first[7], NOW)
    assert line.wait.startswith("needs 4 slots; 2 of 8 are free")
    assert line.queue_place == 2
    assert [remedy["button"] for remedy in line.remedies] == ["", "Pause", "Change"]
    running = build_row(row(7, gangs=[RUNNING]), first[7], NOW)
    assert (running.wait, running.remedies, running.queue_place) == ("", [], None)


def test_a_line_of_one_that_is_over_has_no_buttons_and_says_why_it_failed() -> None:
    line = build_row(row(7, state=State.ERROR, failure="rank 1: " + "x" * 999), None, NOW)
    assert line.actions == []
    assert line.failure.startswith("rank 1: x")
    assert len(line.failure) <= 400
    living = build_row(row(7, best_metric=math.nan, progress=math.nan), None, NOW)
    assert [action["verb"] for action in living.actions] == ["pause", "activate", "kill"]
    assert (living.best_metric, living.progress) == (None, 0.0)


def test_a_line_has_the_key_of_the_experiments_places() -> None:
    state = build_view_state(experiment(trial()), [], [], NOW)
    line = build_row(row(state["id"], created_at=state["created_at"]), None, NOW)
    assert line.key == place_key(state["id"], state["created_at"])


def test_slots_are_listed_with_who_is_on_them_and_counted() -> None:
    rows = [row(1, gangs=[RUNNING]), row(2), row(3), row(4, state=State.COMPLETED)]
    news = build_cluster_state(cluster(every_kind_of_slot()), rows, NOW)
    assert (news["num_running"], news["num_waiting"]) == (1, 2)
    assert (news["num_slots"], news["num_slots_used"]) == (8, 4)
    (local,) = news["agents"]
    states = [slot["state"] for slot in local["slots"]]
    assert states == ["used", "leaving", "used", "leaving", "occupied", "occupied", "disabled",
                      "free"]  # fmt: skip
    assert local["slots"][4]["who"] == "python train.py --big"
    assert (local["slots"][0]["experiment_id"], local["slots"][7]["experiment_id"]) == (7, None)


def test_an_agent_that_is_away_says_so() -> None:
    away = agent("node", [slot_status(0)], connected=False, problem="ssh to it and look")
    news = build_cluster_state(cluster(pool(away)), [], NOW)
    assert news["agents"][0]["note"] == "not connected; ssh to it and look"


def test_agents_elsewhere_that_left_are_listed_with_the_time_the_latest_first() -> None:
    def lost(number: int) -> AgentStatus:
        left = {"connected": False, "left_at": NOW - 60 * number, "num_left_slots": 4}
        return agent(f"n{number}", [], hostname="host", **left)

    near = agent("near", [slot_status(0)], hostname="node-b", address="10.0.0.2",
                 versions={"torch": "2.9.1"}, is_remote=True)  # fmt: skip
    several = pool(near).model_copy(update={"lost": [lost(number) for number in range(10, 0, -1)]})
    news = build_cluster_state(cluster(several), [], NOW)
    assert [line["id"] for line in news["agents"]] == ["near", *(f"n{i}" for i in range(1, 9))]
    assert news["agents"][0]["note"] == "on node-b"
    assert news["agents"][0]["facts"] == [
        "near", "computer node-b", "address 10.0.0.2", "torch 2.9.1",
    ]  # fmt: skip
    at = short_time(NOW - 60, NOW)
    assert news["agents"][1]["note"] == f"left at {at}, on host, had 4 slots"
    assert news["more_lost"] == "2 more agents left"
    assert news["num_slots"] == 1


def device(number: int, memory_bytes: int = 100) -> SlotStatus:
    view = SlotView(id=number, kind="cuda", index=number, name="H100", uuid=f"GPU-{number}",
                    memory_bytes=memory_bytes)  # fmt: skip
    return SlotStatus(slot=view, state="free")


def series(source: str, name: str, points: dict[float, float], missing: str = "") -> Series:
    values = list(points.values())
    return Series(source=source, name=name, title="", x=list(points), low=values, mid=values,
                  high=values, missing=missing)  # fmt: skip


def test_of_slots_and_computers_the_newest_values_are_shown() -> None:
    page = SeriesPage(
        began_at=1.0,
        series=[
            series("host", "cpu_util_simple", {9.5: 40.0, 11.5: 60.0}),
            series("gpu:GPU-0", "gpu_util", {10.0: 90.0, 11.0: 91.0, 12.0: math.nan}),
            series("gpu:GPU-1", "gpu_util", {10.0: 10.0}),
            series("gpu:GPU-0", "gpu_free_memory", {10.0: 60.0, 11.0: 50.0, 12.0: 40.0}),
        ],
    )
    assert build_usage(agent("a", [device(0), device(1)]), page) == {
        "cpu": 60.0,
        "slots": {
            "0": {"utilization": 91.0, "used": 60.0, "total": 100.0, "missing": ""},
            "1": {"utilization": 10.0, "used": None, "total": 100.0, "missing": ""},
        },
    }


def test_what_slots_did_before_stays_until_there_are_newer_samples() -> None:
    def samples(*more: Series) -> SeriesPage:
        return SeriesPage(began_at=1.0, series=[*more])

    slots = agent("a", [device(0)])
    first = samples(
        series("gpu:GPU-0", "gpu_util", {10.0: 90.0}),
        series("gpu:GPU-0", "gpu_free_memory", {10.0: 60.0}),
        series("host", "cpu_util_simple", {10.0: 7.0}),
    )
    before = build_usage(slots, first)
    assert build_usage(slots, samples(), before) == before
    newer = build_usage(slots, samples(series("gpu:GPU-0", "gpu_util", {40.0: 20.0})), before)
    assert newer["slots"]["0"] == {
        "utilization": 20.0,
        "used": 40.0,
        "total": 100.0,
        "missing": "",
    }
    hangs = samples(series("gpu:GPU-0", "gpu_util", {}, "the driver hangs"))
    after = build_usage(slots, hangs, newer)["slots"]["0"]
    assert (after["utilization"], after["missing"]) == (None, "the driver hangs")


@pytest.mark.parametrize(
    ("slot", "said", "missing"),
    [
        (device(0), "the GPU driver does not answer", "the GPU driver does not answer"),
        (device(0, memory_bytes=0), "", NO_SAMPLE),
        (slot_status(0, cuda=False), "", NO_GPU),
    ],
)
def test_a_missing_value_says_why(slot: SlotStatus, said: str, missing: str) -> None:
    page = SeriesPage(began_at=None, series=[series("gpu:GPU-0", "gpu_util", {}, said)])
    used = build_usage(agent("a", [slot]), page)["slots"]["0"]
    assert (used["utilization"], used["missing"]) == (None, missing)


def test_a_trial_that_waits_for_room_on_a_disk_does_not_wait_for_its_turn() -> None:
    room = RoomWait(folder="/data", since=NOW)
    waiting = row(7, status="queued", alarm=room.sentence, alarm_kind="waits for room")
    line = build_row(waiting, None, NOW)
    assert line.status_word == "Queued, waits for room"
    assert (line.alarm, line.wait) == (room.sentence, "")
    assert build_row(row(7, status="queued"), None, NOW).wait == IN_LINE
    news = build_trials([trial(allocation=allocation(), room=room)], {7: row(7)})
    assert news["trials"][0]["status_word"] == "Running, waits for room"


def test_trials_that_hold_slots_are_listed_with_their_ranks() -> None:
    up, coming = allocation(), allocation(is_up=False)
    up.ranks[0].connection_file = "/run/kernel-1.json"
    news = build_trials([trial(allocation=up), trial(id=2, allocation=coming)], {7: row(7)})
    first, second = news["trials"]
    assert (first["experiment"], first["status_word"], first["alarm"]) == ("digits", "Running", "")
    assert [rank["has_kernel"] for rank in first["ranks"]] == [True, False]
    assert [rank["status"] for rank in second["ranks"]] == ["starting", "starting"]
