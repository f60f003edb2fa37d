"""Facts of an experiment are read from a configuration that any version has stored."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.values.direction import Direction
from tests.unit.view.view_samples import experiment

LARGER = {"searcher": {"name": "grid", "metric": "accuracy", "smaller_is_better": False}}


@pytest.mark.parametrize(
    ("config", "facts"),
    [
        (
            LARGER | {"resources": {"slots_per_trial": 4}, "labels": ["a"], "description": "b"},
            ("grid", "accuracy", Direction.MAXIMIZE, 4, ["a"], "b"),
        ),
        # A key that this version does not know is no obstacle, and none has to be there.
        ({"searcher": {"metric": "loss"}, "gone": 1}, ("", "loss", Direction.MINIMIZE, 1, [], "")),
        ({"searcher": None, "labels": None}, ("", "", Direction.MINIMIZE, 1, [], "")),
    ],
)
def test_facts_are_read_from_the_document(config: dict[str, Any], facts: tuple[Any, ...]) -> None:
    view = experiment(config=config)
    found = (
        view.searcher_name, view.metric, view.direction, view.slots_per_trial, view.labels,
        view.description,
    )  # fmt: skip
    assert found == facts
