"""What the rules that judge a run are told of its places and its configuration."""

from __future__ import annotations

from typing import Any

from det_jupyter.contract.messages import DeviceProcess, SlotView
from det_jupyter.diagnosis import RankSite
from det_jupyter.master.service.reports.run_verdicts import setting_of
from tests.unit.master.machine_world import World, registered, submitted

STRANGER = DeviceProcess(pid=9, command="python other.py")


def test_a_setting_has_the_places_of_its_ranks() -> None:
    world = World()
    gpu = SlotView(id=0, kind="cuda", index=0, name="H100", uuid="GPU-0")
    box = registered(slots=2)
    world.tell(box.model_copy(update={"slots": [gpu, box.slots[1]]}), submitted())
    world.machine.state.agents["box"].occupied = {1: [STRANGER]}
    allocation = world.allocation()
    assert setting_of(world.machine.state, 1, allocation).places == (
        RankSite(agent_id="box", gpu="GPU-0", kind="H100"),
        RankSite(agent_id="box", kind="CPU", other_processes=("python other.py",)),
    )
    world.machine.state.agents.clear()  # it is lost
    places = setting_of(world.machine.state, 1, allocation).places
    assert [(place.agent_id, place.other_processes) for place in places] == [("box", ())] * 2


def test_a_setting_has_the_part_of_the_configuration_that_costs_time() -> None:
    world = World()
    world.tell(registered(), submitted())
    usual = setting_of(world.machine.state, 1, world.allocation())
    assert not any((usual.has_tuned_fusion, usual.mixed_precision, usual.is_compiled))
    assert (usual.min_checkpoint_period, usual.min_validation_period) == ("", "")
    changes: dict[str, Any] = {
        "min_checkpoint_period": {"epochs": 1},
        "checkpoint_policy": "all",
        "optimizations": {
            "aggregation_frequency": 4,
            "mixed_precision": "O1",
            "compile": True,
            "gradient_compression": True,
            "average_training_metrics": False,
        },
    }
    world.tell(submitted(**changes))
    found = setting_of(world.machine.state, 2, world.allocation(2))
    assert found.min_checkpoint_period == "1 epochs"
    assert found.checkpoint_policy == "all"
    assert found.aggregation_frequency == 4
    assert found.mixed_precision
    assert found.is_compiled
    assert found.gradient_compression
    assert not found.average_training_metrics
    for tuned in ({"auto_tune_tensor_fusion": True}, {"tensor_fusion_threshold": 8}):
        world = World()
        world.tell(registered(), submitted(optimizations=tuned))
        assert setting_of(world.machine.state, 1, world.allocation()).has_tuned_fusion
