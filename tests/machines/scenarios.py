"""Faults of machines, links and programs while a trial trains. See scenario.py."""

from __future__ import annotations

import signal
import time

from tests.machines import ray_scenarios
from tests.machines.scenario import Fault, Scenario
from tests.machines.world import World

_FENCED_S = (15.0, 29.0)  # 25 or 26 s after the last answered request
_GIVEN_UP_S = (15.0, 32.0)  # after 30 s the master ends the part of the gang that it can reach
_CUT_APART_S = (20.0, 36.0)  # 25 s after a connection attempt, which is made every 5 s
_CHIEF, _OTHER = 0, 1  # index of the machine in the gang


def _nothing(world: World) -> None:
    time.sleep(1)


def _agent_killed(which: int) -> Fault:
    def fault(world: World) -> None:
        machine = world.machines()[which]
        world.kill(machine.name)
        time.sleep(2)
        world.start_agent(machine)

    return fault


def _agent_terminated(world: World) -> None:
    machine = world.machines()[_CHIEF]
    world.signal(machine.name, signal.SIGTERM)
    time.sleep(4)
    world.start_agent(machine)


def _machine_lost(which: int) -> Fault:
    def fault(world: World) -> None:
        world.machines()[which].switch_off()
        time.sleep(34)

    return fault


def _cut(seconds: float, *which: int) -> Fault:
    def fault(world: World) -> None:
        machines, master = world.machines(), world.place.master
        for one in which:
            world.cut(machines[one], master)
        time.sleep(seconds)
        for one in which:
            world.heal(machines[one], master)
        _wait_for_agents(world)
        time.sleep(12)  # to detect a gang that is ended needlessly

    return fault


def _cut_again_and_again(world: World) -> None:
    machine, master = world.machines()[_CHIEF], world.place.master
    for _ in range(4):
        world.cut(machine, master)
        time.sleep(7)
        world.heal(machine, master)
        time.sleep(4)


def _cut_between(seconds: float, *, for_good: bool = False) -> Fault:
    def fault(world: World) -> None:
        chief, other = world.machines()
        world.cut(chief, other)
        time.sleep(seconds)
        if not for_good:
            world.heal(chief, other)
        time.sleep(12)

    return fault


def _cut_off(seconds: float, which: int) -> Fault:
    def fault(world: World) -> None:
        machine = world.machines()[which]
        others = [m for m in (world.place.master, *world.place.agents) if m is not machine]
        for other in others:
            world.cut(machine, other)
        time.sleep(seconds)
        for other in others:
            world.heal(machine, other)
        _wait_for_agents(world)

    return fault


def _lost_to_master(seconds: float) -> Fault:
    def fault(world: World) -> None:
        machine, master = world.machines()[_CHIEF], world.place.master
        machine.drop(master)
        time.sleep(seconds)
        machine.deliver(master)
        _wait_for_agents(world)
        time.sleep(12)

    return fault


def _lost_from_master(world: World) -> None:
    machine, master = world.machines()[_CHIEF], world.place.master
    master.drop(machine)
    time.sleep(40)
    master.deliver(machine)
    _wait_for_agents(world)


def _master_killed(seconds: float) -> Fault:
    def fault(world: World) -> None:
        world.kill("master")
        time.sleep(seconds)
        world.start_master()
        _wait_for_agents(world)

    return fault


def _master_stopped(seconds: float) -> Fault:
    return lambda world: _stop(world, "master", seconds)


def _agent_stopped(seconds: float, which: int = _CHIEF) -> Fault:
    return lambda world: _stop(world, world.machines()[which].name, seconds)


def _stop(world: World, name: str, seconds: float) -> None:
    world.signal(name, signal.SIGSTOP)
    time.sleep(seconds)
    world.signal(name, signal.SIGCONT)
    _wait_for_agents(world)


def _machine_frozen(world: World) -> None:
    machine = world.machines()[_CHIEF]
    machine.freeze(True)
    world.watch.frozen.add(machine.name)
    time.sleep(40)
    world.watch.frozen.clear()
    machine.freeze(False)
    _wait_for_agents(world)


def _slow_link(world: World) -> None:
    for machine in (world.place.master, *world.place.agents):
        machine.slow_down("512kbit", "400ms")


def _wait_for_agents(world: World) -> None:
    for machine in world.place.agents:
        world.wait_until_connected(machine)


_ON_ONE_MACHINE = [
    Scenario(name="undisturbed", fault=_nothing, gangs=1),
    Scenario(name="agent killed, back after 2 s", fault=_agent_killed(_CHIEF), gangs=2),
    Scenario(name="agent terminated", fault=_agent_terminated, gangs=2, leaves=True),
    Scenario(name="machine lost for good", fault=_machine_lost(_CHIEF), gangs=2, leaves=True),
    Scenario(name="link cut for 5 s", fault=_cut(5, _CHIEF), gangs=1),
    Scenario(name="link cut for 15 s", fault=_cut(15, _CHIEF), gangs=1),
    Scenario(name="link cut for 7 s, 4 times", fault=_cut_again_and_again, gangs=1),
    Scenario(
        name="link cut for 40 s", fault=_cut(40, _CHIEF), gangs=2, leaves=True, ends_s=_FENCED_S
    ),
    Scenario(
        name="link cut for 40 s, shared storage",
        fault=_cut(40, _CHIEF),
        gangs=2,
        leaves=True,
        ends_s=_FENCED_S,
        with_shared_storage=True,
    ),
    # TCP would retransmit only after 25 s; the agent connects again before that.
    Scenario(name="packets to the master lost for 14 s", fault=_lost_to_master(14), gangs=1),
    Scenario(
        name="packets to the master lost for 40 s",
        fault=_lost_to_master(40),
        gangs=2,
        leaves=True,
        ends_s=_FENCED_S,
    ),
    Scenario(
        name="packets from the master lost for 40 s",
        fault=_lost_from_master,
        gangs=2,
        leaves=True,
        ends_s=_FENCED_S,
    ),
    Scenario(name="master killed, back after 15 s", fault=_master_killed(15), gangs=1),
    Scenario(
        name="master killed, back after 40 s", fault=_master_killed(40), gangs=2, ends_s=_FENCED_S
    ),
    Scenario(name="master stopped for 20 s", fault=_master_stopped(20), gangs=1),
    Scenario(name="master stopped for 40 s", fault=_master_stopped(40), gangs=2, ends_s=_FENCED_S),
    Scenario(
        name="agent stopped for 40 s",
        fault=_agent_stopped(40),
        gangs=2,
        leaves=True,
        ends_s=_FENCED_S,
    ),
    # Frozen processes cannot end ranks. They do so soon after they continue.
    Scenario(
        name="machine frozen for 40 s", fault=_machine_frozen, gangs=2, leaves=True, overlap_s=1.0
    ),
    Scenario(name="slow link, 512 kbit/s", fault=_nothing, gangs=1, before=_slow_link),
]
_ON_TWO_MACHINES = [
    Scenario(name="2 machines: undisturbed", fault=_nothing, gangs=1, slots=4),
    Scenario(
        name="2 machines: an agent killed, back after 2 s",
        fault=_agent_killed(_OTHER),
        gangs=2,
        slots=4,
    ),
    Scenario(
        name="2 machines: rank 0's lost for good",
        fault=_machine_lost(_CHIEF),
        gangs=2,
        slots=4,
        agents=3,
        leaves=True,
    ),
    Scenario(
        name="2 machines: the other lost for good",
        fault=_machine_lost(_OTHER),
        gangs=2,
        slots=4,
        agents=3,
        leaves=True,
    ),
    Scenario(
        name="2 machines: cut from each other for 5 s", fault=_cut_between(5), gangs=1, slots=4
    ),
    Scenario(
        name="2 machines: cut from each other for 40 s",
        fault=_cut_between(40),
        gangs=2,
        slots=4,
        ends_s=_CUT_APART_S,
    ),
    Scenario(
        name="2 machines: cut from each other for good",
        fault=_cut_between(25, for_good=True),
        gangs=2,
        slots=4,
        agents=3,
        leaves=True,
        ends_s=_CUT_APART_S,
    ),
    Scenario(
        name="2 machines: one cut off for 40 s",
        fault=_cut_off(40, _OTHER),
        gangs=2,
        slots=4,
        agents=3,
        leaves=True,
        ends_s=_GIVEN_UP_S,
    ),
    Scenario(
        name="2 machines: rank 0's cut off for 40 s",
        fault=_cut_off(40, _CHIEF),
        gangs=2,
        slots=4,
        agents=3,
        leaves=True,
        ends_s=_GIVEN_UP_S,
    ),
    Scenario(
        name="2 machines: one cut from the master for 5 s",
        fault=_cut(5, _OTHER),
        gangs=1,
        slots=4,
    ),
    Scenario(
        name="2 machines: one cut from the master for 40 s",
        fault=_cut(40, _OTHER),
        gangs=2,
        slots=4,
        forgets=(2, 3),
        ends_s=_GIVEN_UP_S,
    ),
    Scenario(
        name="2 machines: both cut from the master for 40 s",
        fault=_cut(40, _CHIEF, _OTHER),
        gangs=2,
        slots=4,
        ends_s=_GIVEN_UP_S,
    ),
    Scenario(
        name="2 machines: an agent stopped for 40 s",
        fault=_agent_stopped(40, _OTHER),
        gangs=2,
        slots=4,
        ends_s=_GIVEN_UP_S,
    ),
    Scenario(
        name="2 machines: master killed, back after 15 s",
        fault=_master_killed(15),
        gangs=1,
        slots=4,
    ),
]
SCENARIOS = [*_ON_ONE_MACHINE, *_ON_TWO_MACHINES, *ray_scenarios.SCENARIOS]

# Scenarios that cannot be played here, with the reason.
NOT_PLAYED = {
    "clocks differ": "no tool here sets the clock of one machine alone (time namespaces have no "
    "offset of the wall clock); tests/unit and tests/integration cover it",
    **ray_scenarios.NOT_PLAYED,
}
