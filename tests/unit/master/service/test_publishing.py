"""Progress of trials, whose quotient of steps and fraction is the trial's length."""

from __future__ import annotations

from typing import Any, cast

import pytest

from det_jupyter.master.machine.model.state import MachineState
from det_jupyter.master.service.publishing import ProgressCache, PublishedParts, Publisher
from det_jupyter.master.service.store import Store
from tests.unit.master.machine_world import World, submitted


class Stored:
    """The part of a store that has progress."""

    def __init__(self) -> None:
        self.progress: dict[int, tuple[int, float]] = {}
        self.num_read = 0

    def progress_of(self, trial_id: int) -> tuple[int, float] | None:
        self.num_read += 1
        return self.progress.get(trial_id)

    def rounded(self, trial_id: int) -> tuple[int, float]:
        steps_completed, fraction = self.progress[trial_id]
        return steps_completed, round(fraction, 9)

    def set_progress(self, trial_id: int, steps_completed: int, fraction: float) -> None:
        self.progress[trial_id] = (steps_completed, fraction)


@pytest.fixture
def stored() -> Stored:
    return Stored()


def publisher(stored: Stored, world: World) -> Publisher:
    return Publisher(world.machine, cast(Store, stored), 0.0, lambda trial: None, PublishedParts())


@pytest.fixture
def world() -> World:
    return World()


def test_steps_never_decrease_and_the_fraction_follows_them(stored: Stored, world: World) -> None:
    publish = publisher(stored, world)
    publish.advance_progress(1, 50, 0.5)
    assert stored.progress[1] == (50, 0.5)
    publish.advance_progress(1, 60)
    assert stored.rounded(1) == (60, 0.6)
    publish.advance_progress(1, 20, 0.1)  # a trial that was extended to 200 steps
    assert stored.rounded(1) == (60, 0.3)
    publish.advance_progress(1, 0, 0.0)
    assert stored.rounded(1) == (60, 0.3)
    publish.advance_progress(1, 1000)
    assert stored.progress[1] == (1000, 1.0)


def test_a_cut_keeps_the_length(stored: Stored, world: World) -> None:
    publish = publisher(stored, world)
    publish.advance_progress(1, 80, 0.8)
    publish.cut_progress(1, 20)
    assert stored.rounded(1) == (20, 0.2)
    publish.cut_progress(1, 30)
    publish.cut_progress(2, 0)
    assert stored.rounded(1) == (20, 0.2)
    assert 2 not in stored.progress


@pytest.mark.parametrize(
    ("max_length", "fraction"),
    [({"batches": 200}, 0.25), ({"batches": 1}, 0.0), ({"epochs": 2}, 0.0)],
)
def test_without_a_fraction_the_configured_batches_are_the_length(
    stored: Stored, world: World, max_length: dict[str, int], fraction: float
) -> None:
    searcher: dict[str, Any] = {"name": "single", "metric": "loss", "max_length": max_length}
    world.tell(submitted(searcher=searcher, records_per_epoch=100))
    publish = publisher(stored, world)
    publish.advance_progress(1, 50)
    assert stored.progress[1] == (50, fraction)
    publish.advance_progress(99, 50)
    assert stored.progress[99] == (50, 0.0), "an unknown trial has no length"


def test_progress_is_read_once_until_it_was_rolled_back(stored: Stored, world: World) -> None:
    stored.progress[1] = (5, 0.5)
    publish = publisher(stored, world)
    assert publish.progress.get(1, (0, 0.0)) == publish.progress.get(1, (0, 0.0)) == (5, 0.5)
    assert stored.num_read == 1
    stored.progress[1] = (3, 0.3)
    publish.clear_progress_cache()
    assert publish.progress.get(1, (0, 0.0)) == (3, 0.3)
    assert ProgressCache(cast(Store, stored)).get(7, (1, 0.1)) == (1, 0.1)


def test_a_large_field_is_published_again_when_it_is_another_object() -> None:
    parts = PublishedParts()
    config = {"a": 1}
    assert parts.add("experiment", 1, config)
    assert not parts.add("experiment", 1, config)
    assert parts.add("experiment", 1, dict(config))
    assert parts.add("trial", 1, config)
    parts.drop_deleted(MachineState())
    assert parts.add("trial", 1, config)
