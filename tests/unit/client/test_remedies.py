"""Remedies of a trial that does not run, carried out as requests."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.client.handles.reasons import carry_out, next_trial
from det_jupyter.contract.messages import AllocationState, Remedy
from det_jupyter.contract.messages.leaving import Leaving
from det_jupyter.errors import Conflict
from tests.unit.client.handles.test_experiment import Wired
from tests.unit.front.verbs.cluster_samples import agent, slot
from tests.unit.view.view_samples import allocation, experiment, trial

Asked = list[tuple[str, str, Any]]


def carried_out(**remedy: Any) -> Asked:
    wired = Wired(experiments=experiment(), slots=agent(slot(0)))
    carry_out(wired.client, Remedy(text="do it", **remedy))
    return [
        (method, path, {name: each for name, each in (body or {}).items() if each is not None})
        for method, path, body in wired.asked
    ]


@pytest.mark.parametrize(
    ("remedy", "asked"),
    [
        ({"verb": "pause", "target": [3]},
         [("POST", "experiments/3/pause", {"at_once": False})]),
        ({"verb": "pause_at_once", "target": [3]},
         [("POST", "experiments/3/pause", {"at_once": True})]),
        ({"verb": "activate", "target": [3, 4]},
         [("POST", "experiments/3/activate", {}), ("POST", "experiments/4/activate", {})]),
        ({"verb": "set", "target": [3], "values": {"priority": 10}},
         [("POST", "experiments/3/resources", {"priority": 10})]),
        ({"verb": "set", "target": [3, 4], "values": {"pool": "big"}},
         [("POST", "experiments/3/resources", {"resource_pool": "big"}),
          ("POST", "experiments/4/resources", {"resource_pool": "big"})]),
        ({"verb": "move", "target": [3], "values": {"ahead_of": 9}},
         [("POST", "experiments/3/move", {"ahead_of": 9})]),
        ({"verb": "enable_slots", "target": ["left"], "values": {"slot_ids": [0, 2]}},
         [("POST", "agents/left/slots", {"slots": [0, 2], "enabled": True, "drain": False})]),
    ],
)  # fmt: skip
def test_a_remedy_is_a_request_for_each_of_its_targets(
    remedy: dict[str, Any], asked: Asked
) -> None:
    assert carried_out(**remedy) == asked


def test_what_only_the_user_can_do_is_refused() -> None:
    with pytest.raises(Conflict, match="do it: this has to be typed, or done by hand"):
        carried_out(verb="wait", target=[3])


def test_a_remedy_without_a_target_does_nothing() -> None:
    assert carried_out(verb="wait") == []


def test_ranks_that_were_asked_to_leave_tell_before_others_that_run() -> None:
    running = trial(id=1, allocation=allocation())
    leaving = trial(id=2, leaving=Leaving(experiment_id=7, then="pauses"))
    queued = trial(id=3, allocation=allocation(AllocationState.QUEUED))
    assert next_trial([running, leaving]).id == 2
    assert next_trial([running, leaving, queued]).id == 3
