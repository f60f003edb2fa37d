"""Older spellings are read before anything else is: the rest has those of today."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.config import check_sanity, notices, origins, parse_config
from det_jupyter.config.migrate import migrate
from tests.problems import said


def config(**changes: Any) -> dict[str, Any]:
    searcher = {"name": "single", "metric": "e", "max_length": {"epochs": 1}}
    return {"entrypoint": "A", "searcher": searcher} | changes


@pytest.mark.parametrize(
    ("older", "today"),
    [
        ({"resources": {"slots": 4, "priority": 3}},
         {"resources": {"slots_per_trial": 4, "priority": 3}}),
        ({"resources": {"slots": 4, "slots_per_trial": 2}}, None),
        ({"resources": {"slots": "four"}}, None),
        ({"environment": {"environment_variables": {"gpu": ["A=1"], "cuda": ["B=1"]}}},
         {"environment": {"environment_variables": {"cuda": ["A=1", "B=1"]}}}),
        ({"environment": {"environment_variables": ["A=1"]}}, None),
        ({"log_policies": [{"pattern": "a", "action": {"type": "exclude_node"}}, 3]},
         {"log_policies": [{"pattern": "a", "action": "exclude_node"}, 3]}),
        ({"log_policies": [{"action": {"type": None}}, {"action": {"type": "a", "b": 1}}]}, None),
        ({"checkpoint_storage": {"type": "directory", "host_path": "/a"}},
         {"checkpoint_storage": {"type": "directory", "container_path": "/a"}}),
        ({"checkpoint_storage": {"type": "shared_fs", "host_path": "/a"}}, None),
        ({"searcher": {"name": "adaptive_simple", "max_steps": 2}},
         {"searcher": {"name": "adaptive_asha", "max_length": {"batches": 200}}}),
        ({"batches_per_step": 5, "scheduling_unit": 7, "min_checkpoint_period": 2},
         {"scheduling_unit": 7, "min_checkpoint_period": {"batches": 10}}),
        ({"batches_per_step": "x", "searcher": ["x"], "resources": 3}, None),
    ],
)  # fmt: skip
def test_each_spelling_becomes_that_of_today(
    older: dict[str, Any], today: dict[str, Any] | None
) -> None:
    document, template, _ = migrate(older)
    assert document == (older if today is None else today)
    assert template == {}
    assert migrate(document).document == document
    assert migrate({}, older)[:2] == ({}, document)


def test_what_has_another_name_is_the_user_s_all_the_same() -> None:
    user = config(
        checkpoint_storage={"type": "directory", "host_path": "/a"},
        resources={"slots": 2},
        environment={"environment_variables": {"gpu": ["A=1"]}},
    )
    given = origins(user, {}, parse_config(user, default_seed=1).to_document())
    variable = "environment.environment_variables.cuda[0]"
    paths = ("checkpoint_storage.container_path", "resources.slots_per_trial", variable)
    assert [given[path] for path in paths] == ["you", "you", "you"]


def test_a_part_may_be_older_too() -> None:
    assert check_sanity({"resources": {"slots": 2}, "batches_per_step": 5}) == []
    assert said(check_sanity({"batches_per_step": 0})) == [
        "batches_per_step: got 0, expected a whole number above 0; write scheduling_unit: 100"
    ]


def test_notices_are_of_what_is_read_and_not_of_what_is_refused() -> None:
    assert notices({"batches_per_step": 0}) == []
    assert notices({"resources": {"slots": 0}}) == [
        "resources.slots: a key of notebooks and commands: read as slots_per_trial, if that is "
        "not given."
    ]


def test_traps_are_found_in_the_words_of_today() -> None:
    searcher = {"name": "adaptive_simple", "metric": "e", "max_length": 5, "max_trials": 4}
    found = notices(config(searcher=searcher, hyperparameters={"width": [32, 64]}))
    assert any("to try each of its entries" in notice for notice in found)
