"""Words about an experiment's state, and the table of its trackers."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.client import Client
from det_jupyter.contract.messages import State
from det_jupyter.contract.messages.leaving import Leaving
from det_jupyter.contract.messages.trackers import TrackerState
from det_jupyter.contract.values.text import date
from det_jupyter.front.notebook.complete.magic_parsers import line_parser
from det_jupyter.front.verbs.describing import describe
from det_jupyter.front.verbs.grammar import Call, parse
from det_jupyter.front.verbs.showing import describe_state
from tests.unit.view.view_samples import experiment, trial

LEAVING = Leaving(experiment_id=7, then="queues")


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (experiment(trial(leaving=LEAVING)), "running"),
        (experiment(trial(), state=State.PAUSED, message="by hand"), "paused: by hand"),
        (experiment(trial(), state=State.PAUSED), "paused"),
    ],
)
def test_a_state_has_the_reason_that_is_known(view: Any, words: str) -> None:
    assert describe_state(view) == words


@pytest.mark.parametrize(
    ("num_trials", "more"), [(1, ""), (2, " (and 1 more trial)"), (4, " (and 3 more trials)")]
)
def test_ranks_that_have_not_left_are_the_reason(num_trials: int, more: str) -> None:
    trials = [trial(id=i, leaving=LEAVING) for i in range(1, num_trials + 1)]
    said = describe_state(experiment(*trials, trial(id=9), state=State.PAUSING))
    alone = describe_state(experiment(trials[0], state=State.PAUSING))
    assert said == f"{alone}{more}"
    assert alone != "pausing"


def test_trackers_are_a_table_if_there_are_any() -> None:
    trackers = [
        TrackerState(id=1, label="mlflow", since=1e9),
        TrackerState(id=2, label="wandb", behind=3, problem="no network", next_at=1e9),
        TrackerState(id=3, label="own", remark="sent late"),
    ]
    views = [experiment(trial(), trackers=trackers), experiment(trial())]
    master: Any = SimpleNamespace(
        experiment=lambda number: views.pop(0), curves=lambda number: [], checkpoints=lambda n: []
    )
    rows = []
    for line in ("describe 7 --json", "describe 8 --json"):
        options = parse(line_parser(), line)
        call = Call(options=options, client=cast(Client, master), experiment=cast(Any, None))
        rows.append(json.loads(describe(call)))
    assert "trackers" not in rows[1]
    assert [[*row.values()][1:] for row in rows[0]["trackers"]] == [
        ["mlflow", "caught up", 0, date(1e9), "", None],
        ["wandb", "behind", 3, None, "no network", date(1e9)],
        ["own", "caught up", 0, None, "sent late", None],
    ]
