"""What a rank's process is given before any code runs in it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from det_jupyter.contract.messages import Capsule, GangPlan, RankPlace, SlotView
from det_jupyter.contract.values.lengths import Length
from det_jupyter.rank.process import environment
from det_jupyter.rank.rendezvous import choose_backend, choose_device
from det_jupyter.rank.zygote import HELPFUL, NEEDED


def plan(slots: list[SlotView], **config: Any) -> GangPlan:
    return GangPlan(
        allocation_id="1.1.1",
        experiment_id=1,
        trial_id=1,
        run=1,
        python="python",
        cwd="/",
        slots=slots,
        config=config,
        hparams={},
        seed=0,
        capsule=Capsule(entrypoint="T", payload="", sources=""),
        target=Length("batches", 100),
    )


def gpu(index: int, uuid: str = "") -> SlotView:
    return SlotView(id=index, kind="cuda", index=index, name="GPU", uuid=uuid)


def cpu(index: int) -> SlotView:
    return SlotView(id=index, kind="cpu", index=index, name="CPU")


def place(rank: int, world_size: int, *, local: tuple[int, int] | None = None) -> RankPlace:
    local_rank, local_world_size = local or (rank, world_size)
    return RankPlace(
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        local_world_size=local_world_size,
        master_addr="127.0.0.1",
        master_port=29500,
    )


def test_every_module_that_the_fork_server_preloads_is_there() -> None:
    assert [name for name in NEEDED + HELPFUL if not is_there(name)] == []


def is_there(module: str) -> bool:
    """Return whether a module has a file or a folder; nothing is imported, as torch is slow."""
    top, *inner = module.split(".")
    spec = find_spec(top)
    assert spec is not None
    assert spec.submodule_search_locations
    path = Path(spec.submodule_search_locations[0], *inner)
    return path.is_dir() or path.with_suffix(".py").exists()


def test_a_rank_sees_its_gangs_devices_in_the_order_of_ranks() -> None:
    slots = [gpu(3, "GPU-c"), gpu(1, "GPU-a")]
    for rank in (0, 1):
        variables = environment(plan(slots), place(rank, 2))
        assert variables["CUDA_VISIBLE_DEVICES"] == "GPU-c,GPU-a"
        assert str(choose_device(plan(slots), place(rank, 2))) == f"cuda:{rank}"
    assert environment(plan([gpu(3)]), place(0, 1))["CUDA_VISIBLE_DEVICES"] == "3"
    assert environment(plan([gpu(3)]), place(0, 1))["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert choose_backend(plan(slots)) == "nccl"


def test_on_several_computers_a_rank_sees_its_own_computers_devices() -> None:
    slots = [gpu(0, "GPU-a"), gpu(1, "GPU-b"), gpu(0, "GPU-x"), gpu(1, "GPU-y")]
    both = plan(slots).model_copy(update={"agent_ids": ["a", "a", "b", "b"]})
    variables = environment(both, place(3, 4, local=(1, 2)))
    assert variables["CUDA_VISIBLE_DEVICES"] == "GPU-x,GPU-y"


def test_a_cpu_slot_shows_no_device() -> None:
    slots = [cpu(0), cpu(1)]
    assert environment(plan(slots), place(1, 2))["CUDA_VISIBLE_DEVICES"] == ""
    assert str(choose_device(plan(slots), place(1, 2))) == "cpu"
    assert choose_backend(plan(slots)) == choose_backend(plan([gpu(0), cpu(1)])) == "gloo"


def test_the_users_variables_are_set_but_for_the_devices() -> None:
    mine = ["NCCL_DEBUG=INFO", "EMPTY=", "EQUALS=a=b", "CUDA_VISIBLE_DEVICES=7"]
    variables = environment(
        plan([gpu(0, "GPU-a")], environment={"environment_variables": mine}), place(0, 1)
    )
    assert (variables["NCCL_DEBUG"], variables["EMPTY"]) == ("INFO", "")
    assert variables["EQUALS"] == "a=b"
    assert variables["CUDA_VISIBLE_DEVICES"] == "GPU-a"


def test_variables_are_those_for_the_kind_of_the_ranks_device() -> None:
    by_kind = {"cpu": ["A=cpu", "B=1"], "cuda": ["A=cuda"]}
    config = {"environment": {"environment_variables": by_kind}}
    on_cpu = environment(plan([cpu(0), gpu(0)], **config), place(0, 2))
    on_gpu = environment(plan([cpu(0), gpu(0)], **config), place(1, 2))
    without_slots = environment(plan([cpu(-1)], **config), place(0, 1))
    assert (on_cpu["A"], on_cpu["B"]) == ("cpu", "1")
    assert (on_gpu["A"], "B" in on_gpu) == ("cuda", False)
    assert without_slots["A"] == "cpu"


def test_a_variable_without_a_value_gets_the_one_that_was_taken_along() -> None:
    config = {"environment": {"environment_variables": ["HF_TOKEN", "UNSET", "A=1"]}}
    values = {"HF_TOKEN": "secret", "OTHER": "x"}
    variables = environment(plan([cpu(0)], **config), place(0, 1), values)
    assert variables["HF_TOKEN"] == "secret"
    assert not {"UNSET", "OTHER"} & variables.keys()


def test_torchruns_variables_are_there() -> None:
    variables = environment(plan([cpu(0), cpu(1)]), place(1, 2))
    assert (variables["RANK"], variables["WORLD_SIZE"]) == ("1", "2")
    assert (variables["MASTER_ADDR"], variables["MASTER_PORT"]) == ("127.0.0.1", "29500")
