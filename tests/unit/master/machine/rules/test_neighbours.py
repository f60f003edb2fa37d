"""Slots that other masters of a computer have claimed, and what their agents see of the queue."""

from __future__ import annotations

from det_jupyter.contract.messages import (
    AllocationState,
    DeviceProcess,
    GangExited,
    Loss,
    SetPools,
    SwitchSlots,
    WantSlots,
)
from det_jupyter.master.machine.machine import Command, ToAgent
from det_jupyter.master.machine.model.events import DevicesReported
from tests.unit.master.machine_world import World, registered, submitted

ANNA = DeviceProcess(pid=5, command="", user="anna", claim="held", since=1.0)
BEN = DeviceProcess(pid=6, command="", user="ben", claim="next", since=2.0)
SCRIPT = DeviceProcess(pid=7, command="python")


def shared(**claims: DeviceProcess) -> DevicesReported:
    """Return the report of an agent with neighbours: claims by `slot0` and so on."""
    processes = {int(name[4:]): [one] for name, one in claims.items()}
    return DevicesReported(agent_id="box", processes=processes, is_shared=True)


def wants(commands: list[Command]) -> list[tuple[list[int], list[int]]]:
    """Return what an agent is to publish: sizes and slots."""
    return [
        (each.command.sizes, each.command.slot_ids)
        for each in commands
        if isinstance(each, ToAgent) and isinstance(each.command, WantSlots)
    ]


def test_trial_gets_no_slot_that_another_master_has_or_is_next_to_get() -> None:
    world = World()
    world.tell(registered(slots=3), shared(slot0=ANNA, slot2=BEN), submitted(slots=1))
    assert [slot.id for slot in world.allocation().slots] == [1]
    world.tell(submitted(slots=1))
    assert world.allocation_state(2) is AllocationState.QUEUED


def test_what_waits_for_slots_of_others_is_published_once_and_withdrawn() -> None:
    world = World()
    world.tell(registered(slots=4), shared(slot0=ANNA, slot1=ANNA))
    world.tell(SwitchSlots(agent_id="box", slots=[3], enabled=False))
    assert wants(world.tell(submitted(slots=2))) == [([2], [0, 1, 2])]
    assert wants(world.tell(shared(slot0=ANNA))) == [([], [])]
    assert [slot.id for slot in world.allocation().slots] == [1, 2]


def test_of_an_elastic_trial_only_its_fewest_slots_are_published() -> None:
    world = World()
    world.tell(registered(slots=2), shared(slot0=ANNA, slot1=ANNA))
    elastic = submitted(resources={"slots_per_trial": {"min": 1, "max": 8}})
    assert wants(world.tell(elastic)) == [([1], [0, 1])]


def test_nothing_is_published_without_neighbours() -> None:
    world = World()
    world.tell(registered(slots=1))
    assert wants(world.tell(submitted(slots=1), submitted(slots=1))) == []


def test_pool_that_shares_devices_gives_out_those_of_strangers_but_no_claimed_ones() -> None:
    world = World()
    world.tell(SetPools(pools=[{"pool_name": "default", "share_devices": True}]))
    world.tell(registered(slots=2), shared(slot0=SCRIPT, slot1=ANNA), submitted(slots=1))
    assert [slot.id for slot in world.allocation().slots] == [0]
    world.tell(submitted(slots=1))
    assert world.allocation_state(2) is AllocationState.QUEUED


def test_trial_whose_slots_were_taken_in_the_same_moment_waits_and_has_not_failed() -> None:
    world = World()
    world.tell(registered(slots=1), submitted(slots=1))
    for run in range(1, 9):
        exited = GangExited(
            allocation_id=f"1.1.{run}", at=5.0, exit_codes={0: None}, lost=True, loss=Loss.TAKEN
        )
        world.tell(shared(slot0=ANNA), exited)
        assert world.allocation_state() is AllocationState.QUEUED
        world.tell(shared())
    assert world.trial().restarts == 0
