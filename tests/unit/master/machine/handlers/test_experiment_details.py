"""Names, descriptions, labels, and the history of changes of a search."""

from __future__ import annotations

import pytest

from det_jupyter.contract.messages import Cancel, ChangeDetails
from det_jupyter.errors import ConfigError, NotFound
from tests.unit.master.machine_world import World, exited, registered, running, submitted

RANDOM = {"name": "random", "metric": "error", "max_trials": 2, "max_length": {"batches": 100}}


def world_with_experiment() -> World:
    world = World()
    world.tell(registered(slots=1), submitted(slots=1, searcher=RANDOM))
    return world


def changed(**change: object) -> ChangeDetails:
    return ChangeDetails.model_validate({"experiment_id": 1, **change})


def test_what_is_given_changes_and_the_rest_stays() -> None:
    world = world_with_experiment()
    world.tell(changed(name="wide nets", add_labels=["good", "wide", "good"]))
    assert world.experiment().name == "wide nets"
    assert world.experiment().config["labels"] == ["good", "wide"]
    world.tell(changed(description="Two\nlines", remove_labels=["good", "never there"]))
    config = world.experiment().config
    assert (config["name"], config["description"]) == ("wide nets", "Two\nlines")
    assert config["labels"] == ["wide"]
    assert world.experiment().settings.labels == ["wide"]


def test_what_is_over_can_be_described_too() -> None:
    world = world_with_experiment()
    world.tell(*running("1.1.1", ranks=1), Cancel(experiment_id=1), exited("1.1.1"))
    assert world.experiment().state.is_terminal
    world.tell(changed(name="the first try"))
    assert world.experiment().name == "the first try"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, "nothing to change: give a name, a description or labels"),
        ({"name": " "}, "name: got ' ', expected one line of text that is not empty"),
        ({"name": "x" * 201}, "expected at most 200 characters"),
        ({"add_labels": ["a\nb"]}, r"labels: got 'a\\nb', expected one line of printable text"),
        ({"add_labels": ["a"], "remove_labels": ["a"]}, "'a' is both to add and to remove"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    change: dict[str, object], problem: str
) -> None:
    world = world_with_experiment()
    before = world.experiment().model_dump_json()
    with pytest.raises(ConfigError, match=problem):
        world.tell(changed(**change))
    assert world.experiment().model_dump_json() == before


def test_labels_have_a_bound() -> None:
    world = world_with_experiment()
    world.tell(changed(add_labels=[str(number) for number in range(100)]))
    with pytest.raises(ConfigError, match="labels: 101 with those it has, expected at most 100"):
        world.tell(changed(add_labels=["one more"]))


def test_an_experiment_that_is_not_there_cannot_be_described() -> None:
    with pytest.raises(NotFound):
        World().tell(changed(name="x"))
