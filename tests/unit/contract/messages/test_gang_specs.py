"""The plan of a gang, and the request to the fork server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import (
    Capsule,
    CheckpointRef,
    ContextRef,
    ForkGang,
    GangPlan,
    RankPlace,
    RankSpec,
    SlotView,
)
from det_jupyter.contract.values.lengths import Length

NUM_RANKS = 8
CAPSULE = Capsule(entrypoint="Digits", payload="a" * 64, sources="b", buffers=["c" * 64] * 1000)


def make_plan(**others: Any) -> GangPlan:
    values = {
        "allocation_id": "1.2.3", "experiment_id": 1, "trial_id": 2, "run": 3, "python": "python",
        "cwd": "/notebooks", "config": {}, "hparams": {}, "seed": 0, "capsule": CAPSULE,
        "slots": [SlotView(id=i, kind="cpu", index=i, name="CPU") for i in range(NUM_RANKS)],
        "target": Length("batches", 1),
    }  # fmt: skip
    return GangPlan.model_validate(values | others)


def specs() -> list[RankSpec]:
    return [
        RankSpec(
            plan=make_plan(), run_dir="/run", data_dir="/data", socket_dir="/s", store="/s/store",
            secret="5e",
            place=RankPlace(
                rank=rank, world_size=NUM_RANKS, local_rank=rank, local_world_size=NUM_RANKS,
                master_addr="127.0.0.1", master_port=1,
            ),
        )
        for rank in range(NUM_RANKS)
    ]  # fmt: skip


def test_a_gang_is_sent_with_one_plan_and_every_rank_gets_it_whole() -> None:
    line = ForkGang.of(specs(), until=1.0).model_dump_json()
    assert line.count(CAPSULE.payload) == 1
    assert ForkGang.model_validate_json(line).specs() == specs()


@pytest.mark.parametrize(
    ("entrypoint", "started"),
    [
        ("Digits", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("python3 -m det_jupyter.launch.torch_distributed train.py", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("python3 train.py", [0, 2, 5]),
        ("./train.sh | tee log", [0, 2, 5]),
    ],
)
def test_an_entrypoint_is_started_for_each_slot_or_for_the_first_rank_of_each_computer(
    entrypoint: str, started: list[int]
) -> None:
    plan = make_plan(config={"entrypoint": entrypoint}, agent_ids=[*"aabbaccc"])
    assert plan.process_ranks() == started
    assert [slot.id for slot in plan.slots_beside(3)] == [2, 3]


def test_a_plan_without_agents_is_for_one_computer() -> None:
    plan = make_plan(config={"entrypoint": "python3 train.py"})
    assert plan.process_ranks() == [0]
    assert plan.slots_beside(5) == plan.slots


def test_ranks_work_in_the_copy_of_the_context_or_in_the_notebooks_folder() -> None:
    run = RunDir(Path("/runs/1.2.3"))
    context = ContextRef(blob="c", num_files=1, size_bytes=1)
    copied = make_plan(capsule=CAPSULE.model_copy(update={"context": context}))
    assert make_plan().workplace(run) == Path("/notebooks")
    assert copied.workplace(run) == run.work


def test_a_trials_own_checkpoint_goes_before_that_of_another_trial() -> None:
    own = CheckpointRef(uuid="own", path="/own", steps_completed=5)
    other = CheckpointRef(uuid="other", path="/other", steps_completed=9)
    assert make_plan(checkpoint=own, warm_start=other).starting_point == own
    warm = make_plan(warm_start=other)
    assert (warm.starting_point, warm.steps_completed) == (other, 0)
    assert (make_plan().task_id, make_plan(allocation_id="x").task_id) == ("1.2", "x")
