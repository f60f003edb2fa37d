"""What others see of the machine's state: how far an experiment is."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.messages import Cancel, Kill, State
from det_jupyter.master.views.experiment_views import experiment_view, trial_view
from tests.unit.master.machine_world import (
    World,
    completed,
    exited,
    reached,
    reasons_of,
    registered,
    running,
    submitted,
)

LENGTH = {"metric": "error", "max_length": {"batches": 100}}
RANDOM = {"name": "random", "max_trials": 4, **LENGTH}


def progress_of(world: World, fractions: dict[int, float]) -> float:
    view = experiment_view(
        world.machine.state,
        {trial_id: (1, fraction) for trial_id, fraction in fractions.items()},
        world.experiment(),
        living=world.machine.indexes.unfinished_trials(1),
        sentence=reasons_of(world.machine).sentence,
    )
    return view.progress


@pytest.mark.parametrize(
    ("searcher", "share"), [({"name": "single", **LENGTH}, 1), (RANDOM, 0.25)]
)
def test_a_trial_that_ends_counts_as_far_as_it_came_until_it_is_over(
    searcher: dict[str, Any], share: float
) -> None:
    world = World()
    world.tell(registered(slots=1), submitted(slots=1, searcher=searcher))
    world.tell(*running("1.1.1", ranks=1))
    assert progress_of(world, {1: 0.5}) == 0.5 * share
    world.tell(reached(100))  # its ranks are still there
    assert progress_of(world, {1: 1.0}) == share
    world.tell(exited(codes={0: 0}))
    assert progress_of(world, {1: 1.0}) == share


def test_a_canceled_trial_stays_as_far_as_it_came_while_it_leaves_and_after() -> None:
    world = World()
    world.tell(registered(), submitted(), *running(), Cancel(experiment_id=1))
    assert progress_of(world, {1: 0.5}) == 0.5
    world.tell(exited())
    assert world.experiment().state is State.CANCELED
    assert progress_of(world, {1: 0.5}) == 0.5


def test_a_search_that_was_canceled_stays_as_far_as_all_its_trials_came() -> None:
    world = World()
    world.tell(registered(slots=2), submitted(slots=1, searcher=RANDOM))
    world.tell(*running("1.1.1", ranks=1), *running("1.2.1", ranks=1))
    world.tell(*completed(allocation_id="1.1.1"), exited("1.1.1", codes={0: 0}))
    assert progress_of(world, {1: 1.0, 2: 0.5}) == (1.0 + 0.5) / 4
    world.tell(Kill(experiment_id=1), exited("1.2.1"))
    world.tell(exited("1.3.1"))
    assert world.experiment().state is State.CANCELED
    assert progress_of(world, {1: 1.0, 2: 0.5}) == (1.0 + 0.5) / 4


HALVING = {
    "name": "async_halving", "metric": "error", "max_trials": 4, "max_length": {"batches": 16},
    "num_rungs": 2, "divisor": 4,
}  # fmt: skip


def test_a_search_with_rungs_is_as_far_as_it_says_itself() -> None:
    world = World()
    world.tell(registered(slots=1), submitted(slots=1, searcher=HALVING))
    world.experiment().search_progress = 0.25
    assert progress_of(world, {1: 0.9}) == 0.25
    world.experiment().search_view = None  # of an older release
    assert progress_of(world, {1: 0.9}) == 0.25


def test_progress_is_never_more_than_all() -> None:
    world = World()
    world.tell(registered(slots=1), submitted(slots=1, searcher=RANDOM))
    world.experiment().search_progress = 0.9
    assert progress_of(world, {1: 1.0}) == 1.0
    world.experiment().state = State.COMPLETED
    world.experiment().search_progress = 0.5
    assert progress_of(world, {}) == 1.0


@pytest.mark.parametrize(
    ("events", "progress"), [([*running()], 0.5), ([*running(), *completed(), exited()], 1.0)]
)
def test_a_trial_that_was_trained_to_its_end_is_done(events: Any, progress: float) -> None:
    world = World()
    world.tell(registered(), submitted(), *events)
    view = trial_view(
        world.machine.state, world.trial(), {1: (7, 0.5)}, reasons_of(world.machine).sentence
    )
    assert (view.steps_completed, view.progress, view.is_resting) == (7, progress, False)
    world.trial().was_stopped = True
    unheard = trial_view(
        world.machine.state, world.trial(), {}, reasons_of(world.machine).sentence
    )
    assert (unheard.steps_completed, unheard.progress) == (0, 0.0)
    world.trial().is_resting = True
    is_over = world.trial().state.is_terminal
    view = trial_view(world.machine.state, world.trial(), {}, reasons_of(world.machine).sentence)
    assert view.is_resting is not is_over
