"""What happens to machines, links and programs while a trial trains, and what must come of it.

Every scenario must end with the losses and weights of an undisturbed run, bit for bit, with no
process left, and at no time with two gangs of the trial alive. `gangs` is the number of gangs that
it takes: 1 if the trial runs on as it was.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.machines.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario.

    Args:
        name: For tables and the command line.
        fault: What happens, from the slow batches on until all is in order again.
        gangs: How many gangs it takes.
        moves: Whether the second gang must be on another machine.
        ends_s: Limits, in seconds after the fault, between which the first gang ends.
        overlap_s: For how long two gangs may be alive.
        before: What is done before agents are started.
        with_shared_storage: Whether checkpoints are in a folder that all machines have.
    """

    name: str
    fault: Callable[[World], None]
    gangs: int
    moves: bool = False
    ends_s: tuple[float, float] | None = None
    overlap_s: float = 0.0
    before: Callable[[World], None] | None = None
    with_shared_storage: bool = False


_FENCED_S = (15.0, 29.0)  # 25 or 26 s after the last answered request


def _nothing(world: World) -> None:
    time.sleep(1)


def _agent_killed(world: World) -> None:
    first = world.first()
    world.kill(first.name)
    time.sleep(2)
    world.start_agent(first)


def _agent_terminated(world: World) -> None:
    first = world.first()
    world.signal(first.name, signal.SIGTERM)
    time.sleep(4)
    world.start_agent(first)


def _node_lost(world: World) -> None:
    world.first().switch_off()
    time.sleep(34)


def _cut(seconds: float) -> Callable[[World], None]:
    def fault(world: World) -> None:
        first, master = world.first(), world.place.master
        world.cut(first, master)
        time.sleep(seconds)
        world.heal(first, master)
        world.wait_until_connected(first)
        time.sleep(12)  # a gang that is ended without need must be seen

    return fault


def _cut_again_and_again(world: World) -> None:
    first, master = world.first(), world.place.master
    for _ in range(4):
        world.cut(first, master)
        time.sleep(7)
        world.heal(first, master)
        time.sleep(4)


def _lost_to_master(seconds: float) -> Callable[[World], None]:
    def fault(world: World) -> None:
        first, master = world.first(), world.place.master
        first.drop(master)
        time.sleep(seconds)
        first.deliver(master)
        world.wait_until_connected(first)
        time.sleep(15)  # a gang that is ended too late, or without need, must be seen

    return fault


def _lost_from_master(world: World) -> None:
    first, master = world.first(), world.place.master
    master.drop(first)
    time.sleep(40)
    master.deliver(first)
    world.wait_until_connected(first)


def _master_killed(seconds: float) -> Callable[[World], None]:
    def fault(world: World) -> None:
        world.kill("master")
        time.sleep(seconds)
        world.start_master()
        for machine in world.place.agents:
            world.wait_until_connected(machine)

    return fault


def _stopped(who: str, seconds: float) -> Callable[[World], None]:
    def fault(world: World) -> None:
        name = world.first().name if who == "agent" else "master"
        world.signal(name, signal.SIGSTOP)
        time.sleep(seconds)
        world.signal(name, signal.SIGCONT)
        for machine in world.place.agents:
            world.wait_until_connected(machine)

    return fault


def _machine_frozen(world: World) -> None:
    first = world.first()
    first.freeze(True)
    world.watch.frozen.add(first.name)
    time.sleep(40)
    world.watch.frozen.clear()
    first.freeze(False)
    world.wait_until_connected(first)


def _slow_link(world: World) -> None:
    for machine in (world.place.master, *world.place.agents):
        machine.slow_down("512kbit", "400ms")


SCENARIOS = [
    Scenario(name="undisturbed", fault=_nothing, gangs=1),
    Scenario(name="agent killed, back after 2 s", fault=_agent_killed, gangs=2),
    Scenario(name="agent terminated", fault=_agent_terminated, gangs=2, moves=True),
    Scenario(name="machine lost for good", fault=_node_lost, gangs=2, moves=True),
    Scenario(name="link cut for 5 s", fault=_cut(5), gangs=1),
    Scenario(name="link cut for 15 s", fault=_cut(15), gangs=1),
    Scenario(name="link cut for 7 s, 4 times", fault=_cut_again_and_again, gangs=1),
    Scenario(name="link cut for 40 s", fault=_cut(40), gangs=2, moves=True, ends_s=_FENCED_S),
    Scenario(
        name="link cut for 40 s, shared storage",
        fault=_cut(40),
        gangs=2,
        moves=True,
        ends_s=_FENCED_S,
        with_shared_storage=True,
    ),
    # TCP would transmit again only after 25 s; the agent connects again before.
    Scenario(name="packets to the master lost for 14 s", fault=_lost_to_master(14), gangs=1),
    Scenario(
        name="packets to the master lost for 40 s",
        fault=_lost_to_master(40),
        gangs=2,
        moves=True,
        ends_s=_FENCED_S,
    ),
    Scenario(
        name="packets from the master lost for 40 s",
        fault=_lost_from_master,
        gangs=2,
        moves=True,
        ends_s=_FENCED_S,
    ),
    Scenario(name="master killed, back after 15 s", fault=_master_killed(15), gangs=1),
    Scenario(
        name="master killed, back after 40 s", fault=_master_killed(40), gangs=2, ends_s=_FENCED_S
    ),
    Scenario(name="master stopped for 20 s", fault=_stopped("master", 20), gangs=1),
    Scenario(
        name="master stopped for 40 s", fault=_stopped("master", 40), gangs=2, ends_s=_FENCED_S
    ),
    Scenario(
        name="agent stopped for 40 s",
        fault=_stopped("agent", 40),
        gangs=2,
        moves=True,
        ends_s=_FENCED_S,
    ),
    # What is frozen can end nothing. It does so within a moment after it continues.
    Scenario(
        name="machine frozen for 40 s", fault=_machine_frozen, gangs=2, moves=True, overlap_s=1.0
    ),
    Scenario(name="slow link, 512 kbit/s", fault=_nothing, gangs=1, before=_slow_link),
]

# Scenarios that cannot be played here, and why.
NOT_PLAYED = {
    "clocks differ": "no tool here sets the clock of one machine alone (time namespaces have no "
    "offset of the wall clock); tests/unit and tests/integration cover it",
}
