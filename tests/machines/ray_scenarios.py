"""Faults of the programs and nodes of a Ray cluster while a trial trains on it."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable

from tests.machines.ray_world import AutoscaledWorld, RayWorld
from tests.machines.scenario import Fault, Scenario
from tests.machines.world import World
from tests.processes import wait_until

_IN_ORDER_S = (-1.0, 20.0)
_GCS_LOST_S = (20.0, 100.0)  # nodes end when they have not reached the control store for 60 s


def _on_ray(fault: Callable[[RayWorld], None]) -> Fault:
    def checked(world: World) -> None:
        assert isinstance(world, RayWorld)
        fault(world)

    return checked


def _nothing(world: World) -> None:
    time.sleep(1)


def _with_spare(world: RayWorld) -> None:
    world.num_spare = 1


def _with_long_pauses(world: World) -> None:
    world.pause_s = 5.0  # slow, because the trial must not be over when nodes end


def _raylet_killed(which: int = 0) -> Fault:
    def fault(world: RayWorld) -> None:
        machine = world.machines()[which]
        world.kill_program(machine, "raylet")
        world.wait_for_end(machine)
        world.start_node(machine)
        world.wait_until_connected(machine)

    return _on_ray(fault)


def _node_lost(world: RayWorld) -> None:
    world.machines()[0].switch_off()
    time.sleep(34)


def _bridge_killed(world: RayWorld) -> None:
    world.kill_bridge()
    wait_until(lambda: world.cluster().state != "connected", "the bridge is missed")
    wait_until(lambda: world.cluster().state == "connected", "it is connected")
    time.sleep(5)  # to detect another agent that is started needlessly


def _replaced(world: RayWorld) -> None:
    leaves, comes = world.place.agents
    world.stop_node(leaves)
    world.wait_for_reason("left at")
    world.start_node(comes)
    world.wait_until_connected(comes)


def _head_lost(seconds: float) -> Fault:
    """Return the fault that the head's control store ends; after `seconds` a new one starts."""

    def fault(world: RayWorld) -> None:
        master = world.place.master
        world.kill_program(master, "gcs_server")
        began = time.monotonic()
        wait_until(lambda: world.cluster().state == "not connected", "it is missed")
        time.sleep(max(0.0, seconds - (time.monotonic() - began)))
        if seconds > 100:
            world.wait_for_reason("cluster ray: ")
        world.stop_node(master)
        world.start_head()
        for machine in world.place.agents:
            world.wait_for_end(machine)
            world.start_node(machine)
        for machine in world.place.agents:
            world.wait_until_connected(machine)

    return _on_ray(fault)


def _is_given_back(world: RayWorld) -> None:
    wait_until(lambda: world.cluster().num_nodes == 1, "the node is given back")
    wait_until(lambda: not world.place.agents[0].pids(), "its machine is off")
    assert world.cluster().num_asked == 0


_PLAYED = [
    Scenario(name="Ray: nothing happens", fault=_nothing, gangs=1, world=RayWorld),
    Scenario(
        name="Ray: a raylet killed",
        fault=_raylet_killed(),
        gangs=2,
        leaves=True,
        ends_s=_IN_ORDER_S,
        world=RayWorld,
    ),
    Scenario(
        name="Ray: a node lost for good",
        fault=_on_ray(_node_lost),
        gangs=2,
        leaves=True,
        world=RayWorld,
    ),
    Scenario(
        name="Ray: a node leaves, another comes",
        fault=_on_ray(_replaced),
        gangs=2,
        leaves=True,
        ends_s=_IN_ORDER_S,
        before=_on_ray(_with_spare),
        world=RayWorld,
    ),
    Scenario(
        name="Ray: the bridge killed", fault=_on_ray(_bridge_killed), gangs=1, world=RayWorld
    ),
    Scenario(
        name="Ray: GCS killed, a new head after 10 s",
        fault=_head_lost(10),
        gangs=2,
        agents=1,
        ends_s=_GCS_LOST_S,
        before=_with_long_pauses,
        world=RayWorld,
    ),
    Scenario(
        name="Ray: GCS killed, a new head after 120 s",
        fault=_head_lost(120),
        gangs=2,
        agents=1,
        ends_s=_GCS_LOST_S,
        before=_with_long_pauses,
        world=RayWorld,
    ),
    Scenario(
        name="Ray: a node comes for a trial, and is given back",
        fault=_nothing,
        gangs=1,
        after=_on_ray(_is_given_back),
        world=AutoscaledWorld,
    ),
    Scenario(
        name="Ray, 2 machines: a raylet killed",
        fault=_raylet_killed(1),
        gangs=2,
        slots=4,
        agents=3,
        leaves=True,
        ends_s=_IN_ORDER_S,
        world=RayWorld,
    ),
]
_HAS_RAY = importlib.util.find_spec("ray") is not None
SCENARIOS = _PLAYED if _HAS_RAY else []
NOT_PLAYED = {} if _HAS_RAY else {"Ray": "it is not installed: pip install 'det-jupyter[ray]'"}
