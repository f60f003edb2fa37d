"""Weeks of an overloaded pool: all trials finish, and exchanges come to an end."""

from __future__ import annotations

import pytest

from tests.benchmarks.scheduler_trace import Replay, fair_shares, make_trace
from tests.benchmarks.scheduler_worlds import POLICIES


@pytest.mark.parametrize("policy", POLICIES)
def test_all_trials_end_and_fewer_are_preempted_than_come(policy: str) -> None:
    replay = Replay(POLICIES[policy], make_trace(300, seed=3, load=2.5))
    result = replay.run()
    assert replay.pool.num_waiting == 0
    assert not replay.pool.running
    if "preemption" in policy:
        assert 0 < result["preemptions"] < 300
    else:
        assert result["preemptions"] == 0


def test_fair_shares_are_max_min() -> None:
    assert fair_shares({1: 2, 2: 10, 3: 100}, 24) == {1: 2.0, 2: 10.0, 3: 12.0}
    assert fair_shares({1: 8, 2: 8}, 8) == {1: 4.0, 2: 4.0}
    assert fair_shares({1: 0, 2: 3}, 8) == {1: 0.0, 2: 3.0}
