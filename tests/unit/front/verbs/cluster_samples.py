"""Sample pools, slots and queues in every state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from det_jupyter.contract.messages import (
    AgentStatus,
    ClusterView,
    DeviceProcess,
    JobEntry,
    PoolStatus,
    QueueEntry,
    Reason,
    Remedy,
    RunEntry,
    SlotStatus,
    SlotView,
    State,
)

AT = datetime.now().replace(hour=14, minute=30, second=0, microsecond=0).timestamp()
SENTENCE = "needs 4 slots; 2 of 8 are free; experiment 3 “resnet” holds 4"


def slot(number: int, state: str = "free", **changes: Any) -> SlotStatus:
    view = SlotView(id=number, kind="cuda", index=number, name="H100")
    return SlotStatus.model_validate({"slot": view, "state": state, **changes})


def held(number: int, rank: int, state: str = "used", **changes: Any) -> SlotStatus:
    fields = {
        "allocation_id": "3.7.1", "experiment_id": 3, "experiment_name": "resnet", "trial_id": 7,
        "rank": rank, "priority": 42, "since": AT - 1680,
    }  # fmt: skip
    return slot(number, state, **fields | changes)


def kernel(**changes: Any) -> DeviceProcess:
    fields = {
        "pid": 4711, "command": "python -m ipykernel_launcher -f kernel-abc.json", "user": "ann",
        "memory_bytes": 14_200_000_000, "kernel_id": "abc", "notebook": "eda.ipynb",
        "idle_since": AT - 9000,
    }  # fmt: skip
    return DeviceProcess.model_validate(fields | changes)


def agent(*slots: SlotStatus, name: str = "left", **changes: Any) -> AgentStatus:
    fields = {"id": name, "hostname": name, "pool": "default", "connected": True}
    return AgentStatus.model_validate({**fields, "slots": list(slots), **changes})


def pool(*agents: AgentStatus, **changes: Any) -> PoolStatus:
    states = [s.state for a in agents for s in a.slots]
    fields = {
        "name": "default", "policy": "priority", "preemption": True, "agents": list(agents),
        "num_slots": len(states), "num_free": states.count("free"), "num_waiting": 0,
    }  # fmt: skip
    return PoolStatus.model_validate(fields | changes)


def cluster(
    *pools: PoolStatus, holding: Sequence[RunEntry] = (), queue: Sequence[QueueEntry] = ()
) -> ClusterView:
    waiting = sum(pool.num_waiting for pool in pools)
    return ClusterView(
        pools=list(pools), holding=list(holding), queue=list(queue), num_waiting=waiting, at=AT
    )


def busy_agent() -> AgentStatus:
    """Return an agent with a slot in each state."""
    return agent(
        held(0, 0),
        held(1, 1, is_draining=True),
        held(2, 2, "leaving"),
        slot(3, "occupied", processes=[kernel()]),
        slot(4, "disabled"),
        slot(5),
        slot(6),
        slot(7),
    )


def reason(**changes: Any) -> Reason:
    remedies = [
        Remedy(verb="wait", text="wait until experiment 3 ends"),
        Remedy(verb="set", target=[5], values={"priority": 10},
               text="let experiment 5 go first"),
    ]  # fmt: skip
    fields = {"trial_id": 9, "cause": "slots", "sentence": SENTENCE, "remedies": remedies}
    return Reason.model_validate(fields | changes)


def entry(trial_id: int = 9, position: int = 0, **changes: Any) -> QueueEntry:
    fields = {
        "trial_id": trial_id, "experiment_id": 5, "experiment_name": "vgg",
        "allocation_id": f"5.{trial_id}.1", "pool": "default", "slots": 4, "priority": 42,
        "weight": 1.0, "queued_at": AT - 60, "position": position, "reason": reason(),
    }  # fmt: skip
    return QueueEntry.model_validate(fields | changes)


def job(experiment_id: int = 3, **changes: Any) -> JobEntry:
    fields = {
        "experiment_id": experiment_id, "name": "resnet", "state": State.ACTIVE, "pool": "default",
        "priority": 42, "weight": 1.0, "created_at": AT, "slots_held": 4, "slots_wanted": 4,
        "num_running": 1, "num_waiting": 0, "jobs_ahead": 0,
    }  # fmt: skip
    return JobEntry.model_validate(fields | changes)


def holding(trial_id: int = 7, **changes: Any) -> RunEntry:
    fields = {
        "trial_id": trial_id, "experiment_id": 3, "experiment_name": "resnet",
        "allocation_id": f"3.{trial_id}.1", "pool": "default",
        "agent_ids": ["left"], "slots": 4, "priority": 42, "queued_at": AT,
    }  # fmt: skip
    return RunEntry.model_validate(fields | changes)
