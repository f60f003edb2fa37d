"""Changes of a configuration: keys with dots mean the same wherever a change is given."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from det_jupyter.client.client import Client
from det_jupyter.config import find_conflicts, read_changes
from det_jupyter.errors import ConfigError
from det_jupyter.front.notebook.handles import connection
from det_jupyter.front.notebook.handles.templates import templates
from det_jupyter.front.notebook.submit import from_python
from det_jupyter.front.verbs.yaml_input import read_overrides
from tests.problems import said
from tests.unit.client.handles.test_experiment import Wired
from tests.unit.view.view_samples import experiment

CHANGES = {"searcher.max_length.epochs": 3, "slots": 2, "hyperparameters.lr": np.float64(0.5)}
MEANT = {
    "searcher": {"max_length": {"epochs": 3}},
    "resources": {"slots_per_trial": 2},
    "hyperparameters": {"lr": 0.5},
}


@pytest.mark.parametrize(
    ("changes", "meant"),
    [
        (CHANGES, MEANT),
        ({"data": {"a.b": 1}}, {"data": {"a.b": 1}}),
        ({"searcher": {"metric": "m"}, "searcher.name": "single"},
         {"searcher": {"metric": "m", "name": "single"}}),
        ({}, {}),
    ],
)  # fmt: skip
def test_dots_lead_into_sections(changes: dict[str, Any], meant: dict[str, Any]) -> None:
    assert read_changes(changes) == meant


def test_all_that_is_wrong_with_changes_comes_together() -> None:
    with pytest.raises(ConfigError) as caught:
        read_changes({"a..b": 1, "slots": 2, "resources.slots_per_trial": 3, "data.x": object()})
    assert said(caught.value.problems) == [
        "config: got 'a..b', expected a key such as searcher.max_length.epochs",
        "data.x: got an object of type object, expected a number, text, a list or a dict of these",
        "config: got slots and resources.slots_per_trial, expected only one of them",
    ]


def test_changes_that_say_the_same_are_no_conflict() -> None:
    parts = {
        "first": {"hyperparameters": {"lr": 0.5, "names": ["a", "b"]}},
        "second": {"hyperparameters": {"lr": float("0.5"), "names": ["a", "b"]}},
    }
    assert find_conflicts(parts, "config") == []


def test_a_value_that_is_not_equal_to_itself_is_no_conflict_with_another_key() -> None:
    assert find_conflicts({"first": {"data": {"a": math.nan}}, "second": {"slots": 2}}, "c") == []


def test_an_entry_of_a_list_that_another_change_replaces_is_a_conflict() -> None:
    first = {"log_policies": [{"name": "a", "pattern": "x"}, {"name": "b", "pattern": "x"}]}
    parts = {"first": first, "second": {"log_policies": [{"name": "a", "pattern": "y"}]}}
    (conflict,) = find_conflicts(parts, "config")
    assert conflict.text == "got first and second, expected only one of them"
    parts["second"] = {"log_policies": [{"name": "c", "pattern": "y"}]}
    assert find_conflicts(parts, "config") == []


def test_paths_tuples_and_scalars_of_numpy_become_values_of_yaml() -> None:
    changes = {"data": {"path": Path("/a"), "size": (1, np.int64(2)), "table": np.eye(2)}}
    assert read_changes(changes)["data"] == {
        "path": "/a", "size": [1, 2], "table": [[1.0, 0.0], [0.0, 1.0]],
    }  # fmt: skip


def _forked(changes: Mapping[str, Any], wired: Wired) -> Any:
    wired.experiment.fork(changes)
    return wired.asked[-1][2]["config"]


def _continued(changes: Mapping[str, Any], wired: Wired) -> Any:
    wired.experiment.continue_(changes)
    return wired.asked[-1][2]["config"]


def _submitted(changes: Mapping[str, Any], wired: Wired) -> Any:
    """As arguments, and in the configuration itself."""
    from_python.submit(None, {}, **changes)
    from_python.submit(None, changes)
    first, second = wired.asked
    assert first == second
    return first


def _kept(changes: Mapping[str, Any], wired: Wired) -> Any:
    templates.set("name", changes)
    return wired.asked[-1]


def _typed(changes: Mapping[str, Any], _: Wired) -> Any:
    return read_overrides([f"{key}={value}" for key, value in changes.items()], None)


@pytest.mark.parametrize("give", [_forked, _continued, _submitted, _kept, _typed])
def test_every_way_to_give_a_change_takes_the_same(
    give: Callable[[Mapping[str, Any], Wired], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    wired = Wired(experiments=experiment())
    keep: Any = lambda draft, _: wired.asked.append(draft.document)  # noqa: E731
    monkeypatch.setattr(from_python, "submit_draft", keep)
    monkeypatch.setattr(connection, "client", lambda: wired.client)
    monkeypatch.setattr(Client, "set_template", lambda _, __, given: wired.asked.append(given))
    got = give(CHANGES, wired)
    assert {
        "searcher": {"max_length": got["searcher"]["max_length"]},
        "resources": {"slots_per_trial": got["resources"]["slots_per_trial"]},
        "hyperparameters": {"lr": got["hyperparameters"]["lr"]},
    } == MEANT
