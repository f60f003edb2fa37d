"""Progress of trials, whose quotient of steps and fraction is the trial's length."""

from __future__ import annotations

from typing import Any, cast

import pytest

from det_jupyter.master.service.storing.progress import ProgressCache, StoredProgress
from det_jupyter.master.service.storing.store import Store
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


def progress_of(stored: Stored, world: World) -> StoredProgress:
    return StoredProgress(world.machine.state, cast(Store, stored))


@pytest.fixture
def world() -> World:
    return World()


def test_steps_never_decrease_and_the_fraction_follows_them(stored: Stored, world: World) -> None:
    progress = progress_of(stored, world)
    progress.advance(1, 50, 0.5)
    assert stored.progress[1] == (50, 0.5)
    progress.advance(1, 60)
    assert stored.rounded(1) == (60, 0.6)
    progress.advance(1, 20, 0.1)  # a trial that was extended to 200 steps
    assert stored.rounded(1) == (60, 0.3)
    progress.advance(1, 0, 0.0)
    assert stored.rounded(1) == (60, 0.3)
    progress.advance(1, 1000)
    assert stored.progress[1] == (1000, 1.0)


def test_a_cut_keeps_the_length(stored: Stored, world: World) -> None:
    progress = progress_of(stored, world)
    progress.advance(1, 80, 0.8)
    progress.cut(1, 20)
    assert stored.rounded(1) == (20, 0.2)
    progress.cut(1, 30)
    progress.cut(2, 0)
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
    progress = progress_of(stored, world)
    progress.advance(1, 50)
    assert stored.progress[1] == (50, fraction)
    progress.advance(99, 50)
    assert stored.progress[99] == (50, 0.0), "an unknown trial has no length"


def test_progress_is_read_once_until_it_was_rolled_back(stored: Stored, world: World) -> None:
    stored.progress[1] = (5, 0.5)
    progress = progress_of(stored, world)
    progress.advance(1, 6)
    progress.advance(1, 7)
    assert stored.num_read == 1
    stored.progress[1] = (3, 0.3)
    progress.clear_cache()
    progress.advance(1, 4)
    assert stored.rounded(1) == (4, 0.4)
    assert progress.moved == {1}
    cache = ProgressCache(cast(Store, stored))
    assert cache.get(7, (1, 0.1)) == (1, 0.1)
    assert cache.get(1, (0, 0.0)) == cache.get(1, (0, 0.0)) == stored.progress[1]
    assert stored.num_read == 4
