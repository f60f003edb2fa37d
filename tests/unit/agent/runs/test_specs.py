"""Where the ranks of gangs on simulated agents are, and which devices each rank sees."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.agent.runs.run import new_run
from det_jupyter.agent.runs.specs import make_specs, rank_places
from det_jupyter.contract.messages import Capsule, GangPlan, RankSpec, SlotView
from det_jupyter.contract.values.lengths import Length
from det_jupyter.rank.process import environment
from det_jupyter.rank.rendezvous import choose_backend, choose_device


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


def test_plan_without_agents_is_on_this_process_and_others_are_divided() -> None:
    slots = [cpu(index) for index in range(3)]
    assert plan_on([], slots).ranks_on(["here"]) == [0, 1, 2]
    assert plan_on(["b", "a", "b"], slots).ranks_on({"b", "x"}) == [0, 2]


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


def specs(tmp_path: Path, *, num_slots: int = 1, program: bool = False) -> list[RankSpec]:
    config = {"entrypoint": "python3 train.py"} if program else {}
    plan = plan_on([], [cpu(index) for index in range(num_slots)])
    run = new_run(plan.model_copy(update={"config": config}), sockets=tmp_path / "sockets")
    return make_specs(run, lifeline_fd=3, num_threads=2)


def test_each_attempt_to_start_ranks_has_a_store_and_a_secret_of_its_own(tmp_path: Path) -> None:
    attempts = [specs(tmp_path, num_slots=2) for _ in range(2)]
    for key in ("store", "secret"):
        found = [{getattr(spec, key) for spec in attempt} for attempt in attempts]
        assert [len(each) for each in found] == [1, 1]  # all ranks share it
        assert found[0] != found[1]
    spec = attempts[0][1]
    assert re.fullmatch(
        "store-[0-9a-f]{8}", Path(spec.store).name
    )  # the paths of sockets are short
    assert re.fullmatch("[0-9a-f]{64}", spec.secret)
    assert (spec.place.rank, spec.place.lifeline_fd, spec.place.num_threads) == (1, 3, 2)


@pytest.mark.parametrize(
    ("num_slots", "program", "has_port"),
    [(1, False, False), (2, False, True), (1, True, True)],
)
def test_ranks_that_may_connect_have_a_port(
    tmp_path: Path, num_slots: int, program: bool, has_port: bool
) -> None:
    place = specs(tmp_path, num_slots=num_slots, program=program)[0].place
    assert (place.master_addr, place.master_port > 0) == ("127.0.0.1", has_port)
