"""Slots and queues in every state a view can meet, for the tests of the views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from det_jupyter.contract.messages import (
    AgentStatus,
    AllocationState,
    AllocationView,
    ClusterView,
    DeviceProcess,
    Estimate,
    ExperimentView,
    PoolStatus,
    QueueEntry,
    Reason,
    Remedy,
    SlotStatus,
    TrialView,
)
from tests.unit.view.view_samples import CREATED_AT, allocation, experiment, slot, trial

NOW = CREATED_AT + 60
OWN_ID = 7
LONG_NAME = "a-very-long-name-of-an-experiment-that-somebody-has-given-it <b>&"


def slot_status(
    index: int, state: Any = "free", *, cuda: bool = True, **changes: Any
) -> SlotStatus:
    return SlotStatus(slot=slot(index, cuda=cuda), state=state, **changes)


def held(
    index: int, experiment_id: int = 3, name: str = "resnet", state: Any = "used", **changes: Any
) -> SlotStatus:
    """Return a slot that a trial of an experiment has."""
    fields: dict[str, Any] = {
        "allocation_id": f"{experiment_id}.4.1", "experiment_id": experiment_id, "trial_id": 4,
        "experiment_name": name, "rank": index, "priority": 42, "since": CREATED_AT - 600,
    }  # fmt: skip
    return slot_status(index, state, **{**fields, **changes})


def stranger(**changes: Any) -> DeviceProcess:
    fields: dict[str, Any] = {
        "pid": 4711, "command": "python train.py --big", "user": "anna",
        "memory_bytes": 21_000_000_000,
    }  # fmt: skip
    return DeviceProcess(**{**fields, **changes})


def idle_kernel() -> DeviceProcess:
    return stranger(
        pid=4812, command="python -m ipykernel_launcher -f kernel.json", user="",
        memory_bytes=8_300_000_000, kernel_id="k", notebook="explore/eda.ipynb",
        idle_since=CREATED_AT - 5400,
    )  # fmt: skip


def agent(name: str, slots: Sequence[SlotStatus], **changes: Any) -> AgentStatus:
    fields = {"hostname": name, "pool": "default", "connected": True, "slots": list(slots)}
    return AgentStatus(id=name, **{**fields, **changes})


def pool(*agents: AgentStatus, **changes: Any) -> PoolStatus:
    slots = [each for one in agents for each in one.slots]
    fields: dict[str, Any] = {
        "name": "default", "policy": "priority", "preemption": True, "agents": list(agents),
        "num_slots": len(slots), "num_free": sum(each.state == "free" for each in slots),
        "num_waiting": 0,
    }  # fmt: skip
    return PoolStatus(**{**fields, **changes})


def reason(trial_id: int = 1, **changes: Any) -> Reason:
    fields: dict[str, Any] = {
        "cause": "slots",
        "sentence": (
            "needs 4 slots; 2 of 8 are free; experiment 3 “resnet” holds 4; "
            "starts when it ends or is paused"
        ),
        "pool": "default", "slots": 4, "free": 2, "total": 8, "position": 0,
        "remedies": [
            Remedy(verb="wait", text="wait until experiment 3 ends", target=[3]),
            Remedy(
                verb="pause", text="pause experiment 3, which gives 4 slots back", target=[3],
            ),
            Remedy(
                verb="set", text="ask for 2 slots", target=[7], values={"max_slots": 2},
            ),
        ],
        "expected": Estimate(
            at=NOW + 1200, earliest=NOW + 600, latest=NOW + 2400,
            basis="by the progress of trial 4",
        ),
    }  # fmt: skip
    return Reason(trial_id=trial_id, **{**fields, **changes})


def entry(trial_id: int, experiment_id: int = 5, name: str = "bert", **changes: Any) -> QueueEntry:
    fields: dict[str, Any] = {
        "experiment_name": name, "allocation_id": f"{experiment_id}.{trial_id}.1",
        "pool": "default", "slots": 4, "priority": 42, "weight": 1.0,
        "queued_at": CREATED_AT - 120, "position": 0,
        "reason": reason(trial_id, sentence="needs 4 slots; 2 are free; 1 trial is ahead of it"),
    }  # fmt: skip
    return QueueEntry(trial_id=trial_id, experiment_id=experiment_id, **{**fields, **changes})


def cluster(
    *pools: PoolStatus, queue: Sequence[QueueEntry] = (), num_waiting: int | None = None
) -> ClusterView:
    total = len(queue) if num_waiting is None else num_waiting
    return ClusterView(pools=list(pools), queue=list(queue), num_waiting=total, at=NOW)


def every_kind_of_slot() -> PoolStatus:
    """Return 8 slots in all states, two of them of the experiment that is shown."""
    return pool(
        agent(
            "local",
            [
                held(0, OWN_ID, "digits"),
                held(1, OWN_ID, "digits", "leaving"),
                held(2),
                held(3, state="leaving"),
                slot_status(4, "occupied", processes=[stranger(), idle_kernel()]),
                slot_status(5, "occupied", processes=[idle_kernel()]),
                slot_status(6, "disabled"),
                slot_status(7),
            ],
        )
    )


def leaving_for(experiment_id: int) -> AllocationView:
    """Return an allocation that was asked to make room."""
    leaving = allocation(AllocationState.STOPPING)
    return leaving.model_copy(update={"preempted_by": experiment_id})


def waiting_trial(**changes: Any) -> TrialView:
    fields: dict[str, Any] = {
        "allocation": allocation(AllocationState.QUEUED, num_ranks=0), "steps_completed": 0,
        "progress": 0.0, "waiting_for": "needs 4 slots; 2 of 8 are free",
    }  # fmt: skip
    return trial(**{**fields, **changes})


def waiting() -> tuple[ExperimentView, ClusterView]:
    """Return an experiment whose trial is the second of 95 that wait."""
    own = entry(1, OWN_ID, "digits", position=1, reason=reason(1))
    others = [entry(20 + i, position=i + (i > 0)) for i in range(11)]
    queue = [others[0], own, *others[1:]]
    slots = [held(i) for i in range(4)] + [held(4, 9, "vit"), held(5, 9, "vit")]
    slots += [slot_status(6), slot_status(7)]
    return experiment(waiting_trial()), cluster(
        pool(agent("local", slots)), queue=queue, num_waiting=95
    )


def crowd(num_agents: int, slots_each: int = 8) -> ClusterView:
    """Return many agents; the last of them runs the experiment that is shown."""
    agents = [
        agent(f"node-{number:03}", [held(i, 3 + number % 4) for i in range(slots_each - 1)] + [
            slot_status(slots_each - 1)])
        for number in range(1, num_agents)
    ]  # fmt: skip
    agents.append(agent(f"node-{num_agents:03}", [held(i, OWN_ID) for i in range(slots_each)]))
    return cluster(pool(*agents))
