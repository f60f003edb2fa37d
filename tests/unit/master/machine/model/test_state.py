"""A field that both a stored object and its view have is declared once."""

from __future__ import annotations

from inspect import get_annotations

import pytest

from det_jupyter.contract.messages import (
    AllocationView,
    CreateExperiment,
    ExperimentView,
    TrialView,
    Wire,
)
from det_jupyter.master.machine.model.allocations import Allocation
from det_jupyter.master.machine.model.events import ExperimentSubmitted
from det_jupyter.master.machine.model.state import Experiment, Trial
from tests.unit.master.machine_world import World, registered, submitted


@pytest.mark.parametrize(
    ("one", "other", "differing"),
    [
        (Allocation, AllocationView, set()),
        (Trial, TrialView, {"allocation", "waiting_for"}),  # the machine's types differ
        (Experiment, ExperimentView, set()),
        (ExperimentSubmitted, CreateExperiment, set()),
    ],
)
def test_a_field_that_two_descriptions_have_is_declared_once(
    one: type[Wire], other: type[Wire], differing: set[str]
) -> None:
    shared = one.model_fields.keys() & other.model_fields.keys()
    assert {name for name in shared if origin(one, name) is not origin(other, name)} == differing


def origin(cls: type[Wire], name: str) -> type:
    """Return the class that declares a field."""
    return next(each for each in cls.__mro__ if name in get_annotations(each))


def test_of_many_notices_the_first_ten_are_kept_each_once_and_as_many_alarms() -> None:
    world = World()
    world.tell(registered(), submitted())
    trial = world.trial()
    first = list(trial.notices)
    for number in range(20):
        trial.add_notice(f"notice {number}")
        trial.add_notice("notice 0")
        trial.add_notice(f"alarm {number}", is_alarm=True)
    assert trial.notices == [*first, *(f"notice {i}" for i in range(10 - len(first)))]
    assert trial.alarms == [f"alarm {number}" for number in range(10)]
