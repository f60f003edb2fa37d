"""Which agents a process is, where the ranks of their gangs are, and what each rank is shown."""

from __future__ import annotations

import logging
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.agent.devices.slots import offered_agents
from det_jupyter.agent.runs.specs import check_agents, rank_places
from det_jupyter.contract.messages import Capsule, GangPlan, SlotView
from det_jupyter.contract.values.lengths import Length
from det_jupyter.errors import LaunchError
from det_jupyter.rank.process import environment
from det_jupyter.rank.rendezvous import choose_backend, choose_device


def offered(options: list[str], **environ: str) -> list[tuple[str, int]]:
    offers = offered_agents(options, environ, hostname="here")
    return [(offer.agent_id, len(offer.slots)) for offer in offers]


@pytest.fixture(autouse=True)
def _two_cores_and_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})


def test_without_a_word_there_is_one_agent_of_the_computers_name() -> None:
    assert offered([]) == [("here", 2)]
    assert offered([], DET_JUPYTER_CPU_SLOTS="5") == [("here", 5)]
    assert offered([], DET_JUPYTER_AGENTS=" ") == [("here", 2)]


def test_agents_come_from_the_command_line_or_else_the_variable() -> None:
    variable = "left=cpu:8  right=cpu:4"
    assert offered([], DET_JUPYTER_AGENTS=variable) == [("left", 8), ("right", 4)]
    assert offered(["a-1.b_2=cpu:1"], DET_JUPYTER_AGENTS=variable) == [("a-1.b_2", 1)]
    assert offered([], DET_JUPYTER_AGENTS="a=cpu:3", DET_JUPYTER_CPU_SLOTS="5") == [("a", 3)]


@pytest.mark.parametrize(
    "word", ["left", "left=cpu", "=cpu:1", "left=cpu:0", "left=cuda:1", "a/b=cpu:1", "a=cpu:-1"]
)
def test_bad_agent_is_an_error_in_the_log_and_ignored(
    word: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert offered([], DET_JUPYTER_AGENTS=word) == [("here", 2)]
    assert offered([word, "good=cpu:1"]) == [("good", 1)]
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    expected = f"got {word!r}, expected NAME=cpu:N, such as left=cpu:8; ignored"
    assert said == [f"DET_JUPYTER_AGENTS: {expected}", f"--agent: {expected}"]


def test_all_problems_go_along_for_people() -> None:
    (offer,) = offered_agents(["a=cpu:1", "b", "a=cpu:2"], {}, hostname="here")
    assert offer.problems == (
        "--agent: got 'b', expected NAME=cpu:N, such as left=cpu:8; ignored",
        "--agent: got 'a=cpu:2', but there is an agent a already; ignored",
    )


def plan_on(agent_ids: list[str], slots: list[SlotView]) -> GangPlan:
    return GangPlan(
        allocation_id="1.1.1",
        experiment_id=1,
        trial_id=1,
        run=1,
        python="python",
        cwd="/",
        slots=slots,
        agent_ids=agent_ids,
        config={},
        hparams={},
        seed=0,
        capsule=Capsule(entrypoint="T", payload="", sources=""),
        target=Length("batches", 100),
    )


def cpu(index: int) -> SlotView:
    return SlotView(id=index, kind="cpu", index=index, name="CPU")


def gpu(index: int, uuid: str) -> SlotView:
    return SlotView(id=index, kind="cuda", index=index, name="GPU", uuid=uuid)


def places(agent_ids: list[str], num_slots: int) -> list[tuple[int, int, int, int, int, int]]:
    """Return (rank, world size, local rank, local size, group rank, group size) of each rank."""
    plan = plan_on(agent_ids, [cpu(index) for index in range(num_slots)])
    return [
        (
            place.rank,
            place.world_size,
            place.local_rank,
            place.local_world_size,
            place.group_rank,
            place.group_world_size,
        )
        for place in rank_places(plan, lifeline_fd=3, num_threads=2, master_port=29500)
    ]


def test_ranks_of_one_agent_are_one_group() -> None:
    expected = [(0, 2, 0, 2, 0, 1), (1, 2, 1, 2, 0, 1)]
    assert places([], 2) == places(["left", "left"], 2) == expected


def test_each_agent_is_a_group_in_the_order_of_ranks() -> None:
    assert places(["b", "b", "a"], 3) == [
        (0, 3, 0, 2, 0, 2),
        (1, 3, 1, 2, 0, 2),
        (2, 3, 0, 1, 1, 2),
    ]


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=12))
def test_local_ranks_count_the_ranks_of_an_agent_whatever_their_order(homes: list[str]) -> None:
    found = places(homes, len(homes))
    for name in set(homes):
        group = [place for place, home in zip(found, homes, strict=True) if home == name]
        assert [local_rank for _, _, local_rank, _, _, _ in group] == list(range(len(group)))
        assert {(size, rank) for _, _, _, size, rank, _ in group} == {(len(group), group[0][4])}
    assert {place[4] for place in found} == set(range(len(set(homes))))


def test_rank_sees_the_gpus_of_the_gang_on_its_own_agent() -> None:
    slots = [gpu(0, "GPU-a"), gpu(0, "GPU-x"), gpu(1, "GPU-b")]
    plan = plan_on(["left", "right", "left"], slots)
    shown = []
    for place in rank_places(plan, lifeline_fd=3, num_threads=1, master_port=29500):
        visible = environment(plan, place)["CUDA_VISIBLE_DEVICES"].split(",")
        index = choose_device(plan, place).index
        shown.append((visible, visible[index]))
    assert shown == [
        (["GPU-a", "GPU-b"], "GPU-a"),
        (["GPU-x"], "GPU-x"),
        (["GPU-a", "GPU-b"], "GPU-b"),
    ]


def test_trial_without_slots_is_one_rank_on_the_cpu() -> None:
    plan = plan_on(["left"], [SlotView(id=-1, kind="cpu", index=0, name="CPU")])
    (place,) = rank_places(plan, lifeline_fd=3, num_threads=1, master_port=29500)
    assert environment(plan, place)["CUDA_VISIBLE_DEVICES"] == ""
    assert str(choose_device(plan, place)) == "cpu"
    assert choose_backend(plan) == "gloo"


def test_gang_that_lies_on_other_processes_is_refused() -> None:
    plan = plan_on(["left", "right", "left"], [cpu(0), cpu(0), cpu(1)])
    check_agents(plan, {"left", "right"})
    check_agents(plan_on([], [cpu(0)]), {"here"})
    with pytest.raises(LaunchError) as refusal:
        check_agents(plan, {"left"})
    assert str(refusal.value) == (
        "gangs over several computers are not possible yet: of the 3 ranks some are on right, "
        "which the agent process of left cannot start; ask for no more "
        "resources.slots_per_trial than one computer has"
    )
