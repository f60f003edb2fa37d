"""Each kind of event that masters up to protocol 8 stored is read as its present one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from det_jupyter.contract.messages import (
    Activate,
    Archive,
    Cancel,
    ChangeDetails,
    ChangeQueue,
    ChangeResources,
    ChangeSearch,
    ChangeTrial,
    Delete,
    DropCheckpoints,
    Kill,
    KillTrial,
    MoveInQueue,
    Pause,
    ProfileTrial,
    QueueChange,
    SetPools,
    SetRetention,
    SwitchSlots,
    Unarchive,
)
from det_jupyter.master.machine.model.events import parse_event

# As such a master has written them.
LINES = Path(__file__).with_name("requests-of-protocol-8.jsonl").read_text().splitlines()
OF_1: dict[str, Any] = {"experiment_id": 1}
BEST: dict[str, Any] = dict.fromkeys(
    ("save_experiment_best", "save_trial_best", "save_trial_latest"), 1
)
QUEUE = [
    QueueChange(where="a", request=ChangeResources(experiment_id=1, weight=2.0)),
    QueueChange(where="b", request=MoveInQueue(experiment_id=2, ahead_of=1)),
]
EVENTS = [
    Pause(**OF_1),
    Activate(**OF_1),
    Cancel(**OF_1),
    Kill(**OF_1),
    KillTrial(trial_id=2),
    ProfileTrial(trial_id=2),
    ChangeTrial(trial_id=2, lr=0.1),
    ChangeSearch(**OF_1, max_trials=3),
    ChangeResources(**OF_1, priority=3),
    ChangeDetails(**OF_1, name="new"),
    MoveInQueue(**OF_1, behind=2),
    ChangeQueue(changes=QUEUE),
    SwitchSlots(agent_id="vm", slots=[0], enabled=False),
    SetPools(pools=[]),
    Archive(**OF_1),
    Unarchive(**OF_1),
    Delete(**OF_1),
    SetRetention(**OF_1, **BEST),
    DropCheckpoints(uuids=["00000000-0000-4000-8000-000000000000"], globs=["*.pt"]),
]


@pytest.mark.parametrize(("line", "event"), list(zip(LINES, EVENTS, strict=True)))
def test_a_former_event_is_read_as_the_present_one(line: str, event: Any) -> None:
    assert parse_event(line) == event
    assert parse_event(event.model_dump_json()) == event


@pytest.mark.parametrize("event", [{"kind": "dreamed"}, {"kind": ["pause_requested"]}, [1], {}])
def test_other_events_are_not_read(event: Any) -> None:
    with pytest.raises(ValidationError):
        parse_event(json.dumps(event))
