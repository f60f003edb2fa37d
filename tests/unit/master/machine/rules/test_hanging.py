"""Gangs that hang are shown, and ended if the configuration says so."""

from __future__ import annotations

from typing import Any

from det_jupyter.contract.messages import KillGang, RankStall, State
from det_jupyter.contract.run.journal import RanksStalled
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.master.machine.model.commands import ToAgent
from det_jupyter.master.machine.model.events import RecordArrived
from tests.unit.master.machine_world import World, exited, registered, running, submitted

STALLS = [
    RankStall(rank=0, kind="waits", pid=70, batch=3, collective="all_reduce"),
    RankStall(rank=1, kind="still", pid=71, batch=3, call="time.sleep", place="cell 1, line 2"),
]
SENTENCE = "rank 1 has been in `time.sleep` (cell 1, line 2)"


def stalled(*ranks: RankStall) -> RecordArrived:
    record = RanksStalled(at=9.0, since=2.0, ranks=list(ranks))
    return RecordArrived(allocation_id="1.1.1", rank=0, record=record)


def world_with(action: str) -> World:
    world = World()
    world.tell(registered(), submitted(hang={"action": action}), *running())
    return world


def hang_of(world: World) -> Any:
    allocation = world.trial().allocation
    return None if allocation is None else allocation.hang


def test_a_hang_is_shown_until_the_ranks_move_again() -> None:
    world = world_with("tell")
    assert world.tell(stalled(*STALLS)) == []
    assert hang_of(world).sentence().startswith(SENTENCE)
    assert world.experiment().alerted == [AlertKind.HANG]
    world.tell(stalled())
    assert hang_of(world) is None
    assert world.experiment().alerted == []
    assert world.trial().state is State.ACTIVE


def test_a_gang_with_a_rank_that_moves_does_not_hang() -> None:
    world = world_with("kill")
    assert world.tell(stalled(STALLS[0])) == []
    assert hang_of(world) is None


def test_restart_kills_the_ranks_and_tries_again() -> None:
    world = world_with("restart")
    [kill] = world.tell(stalled(*STALLS))
    assert isinstance(kill, ToAgent)
    assert kill.command == KillGang(allocation_id="1.1.1")
    assert world.tell(stalled(*STALLS)) == []  # once
    world.tell(exited(codes={0: -9, 1: -9}, killed=True))
    trial = world.trial()
    assert (trial.state, trial.restarts, trial.runs) == (State.ACTIVE, 1, 2)
    assert trial.failure is not None
    assert trial.failure.error.startswith(f"it hung and was ended: {SENTENCE}")
    assert (trial.failure.rank, trial.failure.batch) == (1, 3)
    assert hang_of(world) is None


def test_kill_lets_the_trial_fail() -> None:
    world = world_with("kill")
    world.tell(stalled(*STALLS))
    world.tell(exited(codes={0: -9, 1: -9}, killed=True))
    assert world.trial().state is State.ERROR
    assert f"it hung and was ended: {SENTENCE}" in world.experiment().message


def test_reports_of_one_hang_raise_one_alert_and_the_next_hang_another() -> None:
    world = world_with("tell")
    both = stalled(*STALLS)
    alerts = []
    for event in (both, both, stalled(STALLS[0]), both, both, stalled(), both):
        world.tell(event)
        alerts.append([alert.kind for alert in world.machine.changes().alerts])
    once = [AlertKind.HANG]
    assert alerts == [once, [], [], once, [], [], once]
