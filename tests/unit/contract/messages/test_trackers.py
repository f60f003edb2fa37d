"""The state of a tracker in words."""

from __future__ import annotations

from det_jupyter.contract.messages import TrackerState
from det_jupyter.contract.messages.trackers import COUNTED
from det_jupyter.contract.values.text import date

BASE = TrackerState(id=1, label="team")


def test_a_state_is_said_in_words() -> None:
    assert BASE.sentence == "team: caught up"
    behind = BASE.model_copy(update={"behind": 12, "since": 60.0})
    assert behind.sentence == f"team: 12 records behind since {date(60.0)}"
    failing = behind.model_copy(update={"problem": "http://x cannot be reached"})
    assert failing.sentence == (
        f"team: 12 records behind since {date(60.0)}; http://x cannot be reached; "
        "it is tried again"
    )
    far = behind.model_copy(update={"behind": COUNTED})
    assert far.sentence == f"team: 10,000 records or more behind since {date(60.0)}"
