"""Experiments are found by what a user remembers of them."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.messages import (
    Archive,
    ExperimentQuery,
    ExperimentRows,
    Kill,
    Pause,
    RoomReported,
    RoomWait,
)
from det_jupyter.errors import ConfigError
from det_jupyter.master.machine.model.events import LossReported
from det_jupyter.master.views.found_experiments import find_experiments
from tests.unit.master.machine_world import (
    World,
    completed,
    exited,
    failed,
    registered,
    running,
    submitted,
    validated,
)

BOOKS = {1: "/home/a/digits.ipynb", 2: "/home/a/old/train.ipynb", 3: "/home/a/train.ipynb"}


def make_world() -> World:
    """Return experiments 1 (completed), 2 (killed, archived), 3 (paused), 4 (runs), 5 (waits)."""
    world = World()
    world.tell(registered(slots=1))
    world.tell(submit("wide nets", 1, labels=["good", "wide"], description="As on Monday"))
    world.tell(*running("1.1.1", ranks=1), validated(10, 0.25, "1.1.1"))
    world.tell(*completed(allocation_id="1.1.1"), exited("1.1.1", codes={0: 0}))
    world.tell(submit("deep nets", 2, labels=["good"]), Kill(experiment_id=2))
    world.tell(exited("2.2.1"), Archive(experiment_id=2))
    world.tell(submit("digits", 3), Pause(experiment_id=3), exited("3.3.1"))
    world.tell(submit("digits", 3, smaller_is_better=False), *running("4.4.1", ranks=1))
    world.tell(validated(10, 0.5, "4.4.1"), submit("Digits", 3))
    return world


def submit(name: str, book: int, **changes: Any) -> Any:
    return submitted(name, slots=1, **changes).model_copy(update={"notebook": BOOKS[book]})


@pytest.fixture(scope="module")
def world() -> World:
    return make_world()


def find(world: World, **query: Any) -> ExperimentRows:
    state, indexes = world.machine.state, world.machine.indexes
    return find_experiments(state, indexes, {4: (10, 0.1)}, ExperimentQuery(**query))


def numbers(found: ExperimentRows) -> list[int]:
    return [row.id for row in found.rows]


def test_without_a_query_all_are_listed_newest_first_but_for_the_archived(world: World) -> None:
    found = find(world)
    assert numbers(found) == [5, 4, 3, 1]
    assert (found.num_more, found.num_archived) == (0, 1)
    assert numbers(find(world, archived=True)) == [5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"name": "digits"}, [5, 4, 3]),
        ({"name": "* NETS"}, [1]),
        ({"name": "nets"}, []),
        ({"text": "nets monday"}, [1]),
        ({"text": "TRAIN"}, [5, 4, 3]),
        ({"text": "nets", "archived": True}, [2, 1]),
        ({"label": ["good"]}, [1]),
        ({"label": ["good", "wide"]}, [1]),
        ({"label": ["good", "deep"]}, []),
        ({"notebook": "digits.ipynb"}, [1]),
        ({"notebook": "train.ipynb", "archived": True}, [5, 4, 3, 2]),
        ({"notebook": "old/*.ipynb", "archived": True}, [2]),
        ({"notebook": "rain.ipynb"}, []),
        ({"state": ["running"]}, [4]),
        ({"state": ["queued"]}, [5]),
        ({"state": ["active"]}, [5, 4]),
        ({"state": ["paused", "COMPLETED"]}, [3, 1]),
        ({"state": ["cancelled"], "archived": True}, [2]),
        ({"limit": 2}, [5, 4]),
        ({"limit": 0}, []),
        ({"sort": "oldest"}, [1, 3, 4, 5]),
        ({"sort": "metric"}, [4, 1, 5, 3]),
        ({"name": "a[b"}, []),
    ],
)
def test_a_query_finds(world: World, query: dict[str, Any], expected: list[int]) -> None:
    assert numbers(find(world, **query)) == expected


def test_brackets_of_a_name_stand_for_themselves() -> None:
    world = World()
    world.tell(registered(slots=1), submit("nets, lr [0.1]", 1), submit("nets, lr 0", 1))
    assert numbers(find(world, name="*lr [0.1]")) == [1]


def test_dates_are_of_the_submission_and_the_end_is_not_in(world: World) -> None:
    at = {row.id: row.created_at for row in find(world).rows}
    assert numbers(find(world, since=at[3], until=at[5])) == [4, 3]


def test_what_is_beyond_the_limit_is_counted(world: World) -> None:
    assert find(world, limit=1).num_more == 3


def test_a_state_that_is_none_is_refused_with_those_that_there_are(world: World) -> None:
    with pytest.raises(ConfigError, match="state: got 'runing', expected running, queued, sto"):
        find(world, state=["runing"])


def test_a_row_has_what_a_list_shows(world: World) -> None:
    (row,) = find(world, state=["running"]).rows
    assert (row.status, row.state, row.progress) == ("running", "ACTIVE", 0.1)
    assert (row.metric, row.best_metric, row.num_trials, row.slots_per_trial) == (
        "error",
        0.5,
        1,
        (1, 1),
    )
    assert row.hparams == world.trial(4).hparams
    (first,) = find(world, label=["wide"]).rows
    assert (first.labels, first.description) == (["good", "wide"], "As on Monday")


def test_numbers_that_there_are_not_are_left_out(world: World) -> None:
    assert numbers(find(world, ids=[4, 99, 1])) == [4, 1]
    assert numbers(find(world, ids=[])) == []


def test_a_row_has_the_hyperparameters_of_the_best_trial() -> None:
    searcher = {"name": "random", "max_trials": 3, "metric": "error", "max_length": {"batches": 9}}
    world = World()
    world.tell(registered(slots=3), submitted(slots=1, searcher=searcher))
    for number in (1, 2, 3):
        world.trial(number).hparams = {"lr": number}
    (row,) = find(world).rows
    assert (row.best_metric, row.hparams) == (None, {"lr": 1})
    for number, metric in ((1, 0.5), (2, 0.25), (3, 0.75)):
        world.tell(*running(f"1.{number}.1", ranks=1), validated(9, metric, f"1.{number}.1"))
    (row,) = find(world).rows
    assert (row.best_metric, row.hparams) == (0.25, {"lr": 2})
    assert (row.num_slots, row.status, row.num_trials) == (3, "running", 3)


@pytest.mark.parametrize(
    ("message", "failure"), [("trial 1: ValueError: no", ...), ("", "ValueError: no")]
)
def test_a_row_says_why_an_experiment_failed(message: str, failure: Any) -> None:
    world = World()
    world.tell(registered(slots=1), submitted(slots=1), *running("1.1.1", ranks=1))
    assert find(world).rows[0].failure == ""
    world.tell(failed(final=True), exited(codes={0: 1}))
    world.experiment().message = message
    assert find(world).rows[0].failure == (message if failure is ... else failure)
    world.trial().failure = None
    assert find(world).rows[0].failure == message


def test_all_words_of_a_text_are_in_what_is_found(world: World) -> None:
    assert numbers(find(world, text="nets monday")) == [1]
    assert numbers(find(world, text="nets tuesday")) == []
    assert numbers(find(world, text="good")) == [1]  # a label
    assert numbers(find(world, text="DIGITS train.ipynb")) == [5, 4, 3]


def test_the_row_of_one_trial_has_its_divergence_and_that_of_a_search_has_none() -> None:
    world = make_world()
    assert [row.alarm for row in find(world, name="digits").rows] == ["", "", ""]
    loss = LossReported(
        allocation_id="4.4.1", metric="loss", steps_completed=12, value=float("nan")
    )
    world.tell(loss)
    assert [row.alarm for row in find(world, ids=[4, 5]).rows] == [
        "",
        "loss is NaN since batch 11",
    ]
    world.experiment(4).config["searcher"]["name"] = "random"
    assert [row.alarm for row in find(world, ids=[4]).rows] == [""]


def test_the_row_of_a_trial_that_waits_for_room_says_so_while_it_is_active() -> None:
    world = make_world()
    room = RoomWait(folder="/data", since=0.0)
    world.experiment(4).config["searcher"]["name"] = "random"
    world.tell(RoomReported(allocation_id="4.4.1", at=0.0, wait=room))
    (row,) = find(world, ids=[4]).rows
    assert (row.alarm_kind, row.alarm) == ("waits for room", room.sentence)
    assert row.status_word == "Running, waits for room"
    world.tell(Pause(experiment_id=4))
    assert [row.alarm for row in find(world, ids=[4]).rows] == [""]


def test_a_row_is_no_larger_if_an_experiment_has_many_trials() -> None:
    world = World()
    for num in (1, 100):
        searcher = {"name": "random", "metric": "error", "max_length": {"batches": 9}}
        numbers_of = {"max_trials": num, "max_concurrent_trials": num}
        world.tell(submitted(searcher=searcher | numbers_of))
    many, one = find(world).rows
    assert (one.num_trials, many.num_trials) == (1, 100)
    assert len(many.model_dump_json()) - len(one.model_dump_json()) < 20


def test_a_row_says_what_the_experiment_trains(world: World) -> None:
    (row,) = find(world, ids=[1]).rows
    assert row.entrypoint == "Digits"
    assert (row.labels, row.description) == (["good", "wide"], "As on Monday")
    assert (row.metric, row.smaller_is_better, row.best_metric) == ("error", True, 0.25)
    assert (row.num_trials, str(row.slots_per_trial), row.num_slots, row.progress) == (
        1,
        "1",
        0,
        1.0,
    )
