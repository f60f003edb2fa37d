"""What others see of the machine's state, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.messages import (
    Cancel,
    DeviceFault,
    DeviceProcess,
    ExperimentView,
    Kill,
    SwitchSlots,
    Verdict,
)
from det_jupyter.master.machine.model.events import AgentAway, ContentSetAside, DevicesReported
from det_jupyter.master.machine.model.state import Agent
from det_jupyter.master.views.experiment_views import experiment_view
from det_jupyter.master.views.forecast import measured_pace, places_for
from det_jupyter.master.views.pool_views import agent_status, job_entries
from tests.unit.master.machine_world import (
    World,
    exited,
    registered,
    running,
    slot,
    submitted,
)


def view_of(world: World, **options: Any) -> ExperimentView:
    living = world.machine.indexes.unfinished_trials(1)
    return experiment_view(
        world.machine.state,
        {},
        world.experiment(),
        living=living,
        sentence=lambda trial: None,
        **options,
    )


def test_a_trial_has_an_allocation_until_its_run_is_over() -> None:
    world = World()
    world.tell(registered(), submitted())
    (trial,) = view_of(world).trials
    assert trial.allocation is not None
    assert (trial.allocation.id, trial.progress) == ("1.1.1", 0.0)
    world.tell(*running(), Kill(experiment_id=1), exited())
    (trial,) = view_of(world).trials
    assert trial.allocation is None


@pytest.mark.parametrize(
    ("news", "expected"),
    [
        ([], ""),
        (["a record"], "set aside, as it could not be read or handled: a record"),
        (["a", "b"], "set aside, as it could not be read or handled: a and 1 more"),
        (["a", "b", "c"], "set aside, as it could not be read or handled: a and 2 more"),
    ],
)
def test_news_that_was_set_aside_is_told(news: list[str], expected: str) -> None:
    world = World()
    world.tell(registered(), submitted())
    for what in news:
        world.tell(ContentSetAside(experiment_id=1, what=what, is_fatal=False))
    assert view_of(world).message == expected
    world.experiment().message = "it goes on"
    told = "; ".join(["it goes on", *([expected] if expected else [])])
    assert view_of(world).message == told


def test_news_that_ends_an_experiment_is_told_once() -> None:
    world = World()
    world.tell(registered(), submitted())
    world.tell(ContentSetAside(experiment_id=1, what="it all", is_fatal=True))
    message = view_of(world).message
    assert "the master failed at it all" in message
    assert "set aside" not in message


def test_the_newest_trials_have_their_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("det_jupyter.master.views.experiment_views._MOST_VERDICTS", 2)
    world = World()
    searcher = {"name": "random", "max_trials": 3, "metric": "error", "max_length": {"batches": 9}}
    world.tell(registered(), submitted(slots=1, searcher=searcher))
    verdict = Verdict.model_construct(word="fine")
    verdicts = {number: verdict for number in (1, 2, 3)}
    assert [trial.verdict for trial in view_of(world, verdict_of=verdicts.get).trials] == [
        None, verdict, verdict,
    ]  # fmt: skip


def test_slots_of_an_agent_are_told_apart() -> None:
    world = World()
    world.tell(registered(slots=2), registered(slots=3, agent_id="other"))
    world.tell(submitted(slots=3), submitted(slots=2))  # the first on `other`, then on `box`
    homes = {
        trial.id: set(trial.allocation.agent_ids)
        for trial in world.machine.state.trials.values()
        if trial.allocation
    }
    assert homes == {1: {"other"}, 2: {"box"}}
    agents = world.machine.state.agents
    assert agent_status(world.machine, agents["box"]).used == {
        0: "2.2.1", 1: "2.2.1",
    }  # fmt: skip
    world.tell(*running("1.1.1", ranks=3))
    status = agent_status(world.machine, agents["other"])
    assert (status.connected, status.num_aux) == (True, 0)
    assert [(one.slot.id, one.state, one.rank, one.trial_id) for one in status.slots] == [
        (0, "used", 0, 1), (1, "used", 1, 1), (2, "used", 2, 1),
    ]  # fmt: skip
    world.tell(Cancel(experiment_id=1))
    world.tell(AgentAway(agent_id="other"))
    status = agent_status(world.machine, agents["other"])
    assert (status.connected, {one.state for one in status.slots}) == (False, {"leaving"})


LOST = DeviceFault(index=3, at=1.0, xid=79)


def test_slots_that_are_free_disabled_occupied_or_lost_are_told_apart() -> None:
    world = World()
    world.tell(registered(slots=4))
    world.tell(SwitchSlots(agent_id="box", slots=[1], enabled=False))
    stranger = DeviceProcess(pid=5, command="python", user="me", memory_bytes=0)
    world.tell(DevicesReported(agent_id="box", processes={1: [stranger], 2: [stranger]},
               lost={1: LOST, 3: LOST}))  # fmt: skip
    status = agent_status(world.machine, world.machine.state.agents["box"])
    assert [(one.state, len(one.processes)) for one in status.slots] == [
        ("free", 0), ("disabled", 1), ("occupied", 1), ("lost", 0),
    ]  # fmt: skip
    assert [one.lost for one in status.slots] == [None, LOST, None, LOST]


def test_a_trial_without_slots_is_counted_on_its_agent() -> None:
    world = World()
    world.tell(registered(slots=2), submitted(slots=0))
    box = world.machine.state.agents["box"]
    status = agent_status(world.machine, box)
    assert (status.num_aux, [one.state for one in status.slots]) == (1, ["free", "free"])
    assert status.used == {}


def test_jobs_are_listed_with_what_is_ahead_of_them() -> None:
    world = World()
    world.tell(registered(slots=2), submitted(slots=2), submitted(slots=2), submitted(slots=1))
    assert [
        (job.experiment_id, job.jobs_ahead, job.num_running, job.num_waiting, job.slots_held)
        for job in job_entries(world.machine)
    ] == [(1, 0, 1, 0, 2), (2, 0, 0, 1, 0), (3, 1, 0, 1, 0)]
    assert [job.slots_wanted for job in job_entries(world.machine)] == [2, 2, 1]


def agents(*sizes: int) -> list[Agent]:
    return [
        Agent(id=str(n), session="", hostname="", pid=1, slots=[slot(i) for i in range(size)])
        for n, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("slots_per_trial", "sizes", "places"),
    [
        (0, (2, 3), (5, 2 * 100)),
        (1, (2, 3), (5, 5)),
        (2, (2, 3), (5, 2)),
        (4, (2, 3), (5, 1)),  # over both
        (6, (2, 3), (5, 0)),
    ],
)
def test_trials_have_room_for(slots_per_trial: int, sizes: Any, places: tuple[int, int]) -> None:
    assert places_for(slots_per_trial, agents(*sizes)) == places


def test_a_pace_is_of_validations_where_there_are_any() -> None:
    def losses(at: float, first: int) -> tuple[int, dict[str, Any]]:
        return 1, {
            "kind": "batch_metrics",
            "at": at,
            "first": first,
            "values": {"loss": [0.0] * 10},
        }

    def validation(at: float, steps: int) -> tuple[int, dict[str, Any]]:
        return 1, {
            "kind": "metrics", "group": "validation", "at": at, "steps_completed": steps,
            "metrics": {},
        }  # fmt: skip

    windows = [losses(1.0, 1), losses(2.0, 11)]
    assert measured_pace(windows, "batches") == 0.1
    assert measured_pace([*windows, validation(2.0, 20)], "batches") == 0.1
    assert measured_pace([*windows, validation(2.0, 20), validation(12.0, 40)], "batches") == 0.5
