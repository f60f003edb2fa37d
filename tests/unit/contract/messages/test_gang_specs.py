"""What the fork server is told of a gang."""

from __future__ import annotations

from det_jupyter.contract.messages import (
    Capsule,
    ForkGang,
    GangPlan,
    RankPlace,
    RankSpec,
    SlotView,
)
from det_jupyter.contract.values.lengths import Length

NUM_RANKS = 8
CAPSULE = Capsule(entrypoint="Digits", payload="a" * 64, sources="b", buffers=["c" * 64] * 1000)


def specs() -> list[RankSpec]:
    plan = GangPlan(
        allocation_id="1.1.1", experiment_id=1, trial_id=1, run=1, python="python", cwd="/",
        slots=[SlotView(id=i, kind="cpu", index=i, name="CPU") for i in range(NUM_RANKS)],
        config={}, hparams={}, seed=0, capsule=CAPSULE, target=Length("batches", 1),
    )  # fmt: skip
    return [
        RankSpec(
            plan=plan, run_dir="/run", data_dir="/data", socket_dir="/s", store="/s/store",
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
