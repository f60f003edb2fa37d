"""What is said of a gang that leaves: whom it waits for, what happens when, what is lost."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest

from det_jupyter.contract.messages.hangs import HangReport, RankStall
from det_jupyter.contract.messages.leaving import Leaving
from det_jupyter.contract.messages.leaving_words import end_now, leaving_sentence

NOW = 52_800.0  # 14:40
HANG = HangReport(
    since=NOW - 40,
    at=NOW - 30,
    ranks=[RankStall(rank=1, kind="still", call="time.sleep", place="cell 12, line 8")],
)
LIMIT = "; killed at 15:34 (in 54 min) otherwise"


def leaving(**changes: Any) -> Leaving:
    given: dict[str, Any] = {
        "experiment_id": 7, "then": "pauses", "asked_at": NOW - 360, "killed_at": NOW + 3240,
        "num_slots": 2, "num_ranks": 3, "checked_at": NOW - 361,
    }  # fmt: skip
    return Leaving(**(given | changes))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"behind": [1], "batch": 118, "since": NOW - 40},
         "pausing: rank 1 has not come to the end of batch 118 for 40 s; saves and frees 2 slots "
         f"then{LIMIT}"),
        ({"behind": [1, 2], "batch": None, "since": NOW - 200},
         "pausing: ranks 1 and 2 have not begun the first batch for 3.3 min; saves and frees "
         f"2 slots then{LIMIT}"),
        ({"behind": [0, 1, 2], "batch": 4, "since": NOW - 9, "num_slots": 1},
         "pausing: its ranks have not come to the end of batch 4 for 9 s; saves and frees 1 slot "
         f"then{LIMIT}"),
        ({"behind": [0], "num_ranks": 1, "batch": 4, "since": NOW - 9, "then": "ends"},
         "stopping: it has not come to the end of batch 4 for 9 s; saves and frees 2 slots "
         f"then{LIMIT}"),
        ({"behind": [1], "batch": 118, "since": NOW - 1, "checked_at": NOW - 1,
          "asked_at": NOW - 2},
         f"pausing: asked 2 s ago to save its state; frees 2 slots then{LIMIT}"),
        ({"checked_at": None, "behind": [0], "batch": 3, "since": NOW - 100},
         "pausing: its code has not checked for preemption in this run (should_preempt); saves "
         f"and frees 2 slots when it does{LIMIT}"),
        ({"saving_since": NOW - 12},
         f"pausing: it has been saving its state for 12 s; frees 2 slots then{LIMIT}"),
        ({"then": "queues", "preempted_by": 9, "saving_since": NOW - 12},
         "making room for experiment 9: it has been saving its state for 12 s; frees 2 slots "
         f"then{LIMIT}; then it queues again"),
        ({"then": "resizes", "resized_because": "gave 1 slot to experiment 9", "next_slots": 3,
          "saving_since": NOW - 12},
         "changing its number of slots (gave 1 slot to experiment 9): it has been saving its "
         f"state for 12 s; goes on with 3 slots then{LIMIT}"),
        ({"behind": [1], "batch": 118, "since": NOW - 40, "hang": HANG},
         "pausing: rank 1 has been in `time.sleep` (cell 12, line 8) for 40 s; saves and frees "
         f"2 slots if it goes on{LIMIT}"),
        ({"then": "rests", "asked_at": NOW - 1, "num_slots": 0},
         f"going to rest: asked 1 s ago to save its state; frees its place then{LIMIT}"),
        ({"asked_at": None, "killed_at": None},
         "pausing: it is being killed, which frees 2 slots"),
        ({"unreached": "agent a is older: its trials train on"},
         "pausing: its ranks cannot be asked to leave now: agent a is older: its trials train on"),
        ({"unreached": "agent a is stopped", "asked_at": None, "then": "ends"},
         "stopping: its ranks cannot be killed now: agent a is stopped"),
    ],
)  # fmt: skip
def test_it_is_said_whom_it_waits_for_and_what_happens_when(
    changes: dict[str, Any], sentence: str
) -> None:
    assert leaving_sentence(leaving(**changes), NOW, UTC) == sentence


def test_code_that_has_stopped_to_check_is_named_with_the_time() -> None:
    said = leaving_sentence(leaving(behind=[0], batch=3, since=NOW), NOW, UTC)
    assert "its code has not checked for preemption since " in said
    assert "saves and frees 2 slots when it does" in said


@pytest.mark.parametrize(
    ("changes", "verb", "text"),
    [
        ({"num_unsaved": 118, "saved_at": 1000}, "pause_at_once",
         "end its ranks: 118 batches are lost, since the checkpoint at batch 1000; it stays "
         "paused"),
        ({"num_unsaved": 1}, "pause_at_once",
         "end its ranks: 1 batch is lost, all that it has trained; it stays paused"),
        ({"then": "queues", "preempted_by": 9}, "pause_at_once",
         "end its ranks: nothing is lost; its experiment is paused then"),
        ({"then": "ends", "saved_at": 8}, "kill",
         "kill its experiment: nothing is lost"),
    ],
)  # fmt: skip
def test_the_end_at_once_says_what_is_lost(changes: dict[str, Any], verb: str, text: str) -> None:
    [remedy] = end_now(leaving(**changes))
    assert (remedy.verb, remedy.target, remedy.text) == (verb, [7], text)


@pytest.mark.parametrize(
    "changes",
    [
        {"then": "queues", "num_trials": 2},
        {"then": "rests"},
        {"asked_at": None},
        {"unreached": "agent a is stopped"},
    ],
)
def test_what_goes_on_by_itself_or_cannot_be_ended_has_no_such_remedy(
    changes: dict[str, Any],
) -> None:
    assert end_now(leaving(**changes)) == []


def test_many_ranks_are_not_all_listed() -> None:
    gang = leaving(behind=list(range(0, 80, 2)), num_ranks=80, batch=7, since=NOW - 40)
    assert "ranks 0, 2, 4, 6, 8, 10, 12 and 33 more have not come to" in leaving_sentence(
        gang, NOW, UTC
    )


def test_a_time_that_is_over_is_not_to_come() -> None:
    """As when the agent cannot be reached."""
    said = leaving_sentence(leaving(killed_at=NOW - 60), NOW, UTC)
    assert said.endswith("; its agent was to kill it at 14:39, and has not reported that")
