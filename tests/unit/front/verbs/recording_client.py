"""Changes that fakes of the master record."""

from __future__ import annotations

from typing import Any

from det_jupyter.contract.messages import (
    LIFE,
    ChangeQueue,
    ChangeRequest,
    DropCheckpoints,
    KillTrial,
    OfExperiment,
    OfTrial,
    ProfileTrial,
    SetPools,
    SetRetention,
    SwitchSlots,
)


def noted(change: ChangeRequest) -> Any:
    """Return a change in few words."""
    match change:
        case SwitchSlots():
            return (change.agent_id, change.slots, change.enabled, change.drain)
        case SetPools():
            return change.pools
        case DropCheckpoints():
            return (change.uuids, *change.globs) if change.globs else change.uuids
        case KillTrial():
            return change.trial_id
        case ProfileTrial():
            return (change.steps, change.ranks, change.with_stack)
        case OfExperiment() if type(change) in LIFE.values():
            return (change.experiment_id, change.model_dump()["kind"])
        case ChangeQueue() | SetRetention():
            return change
        case OfExperiment():
            return (change.experiment_id, change.given())
        case OfTrial():
            return (change.trial_id, change.given())
        case _:
            raise AssertionError(change)
