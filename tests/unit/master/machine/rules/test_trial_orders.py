"""Orders to a trial's ranks: which of them later runs repeat, and what is stored of each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.contract.messages import (
    AllocationState,
    Change,
    ChangeOrder,
    PassOrders,
    Profile,
    ProfileOrder,
    ProfileView,
    TraceView,
    TrialChangeView,
)
from det_jupyter.contract.run.journal import ChangeMade, TraceSaved
from det_jupyter.contract.values.lengths import Length
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.trial_orders import (
    changes_of,
    close_profiles,
    record_change,
    record_trace,
    send_orders,
    settle_changes,
)

PERIOD = Length("batches", 10)


def trial(**changes: Any) -> Trial:
    return Trial(id=1, experiment_id=1, hparams={}, seed=0, created_at=0.0, **changes)


def change(number: int, **fields: Any) -> TrialChangeView:
    what = {name: fields.pop(name) for name in ("lr", "min_validation_period") if name in fields}
    return TrialChangeView(id=number, at=1.0, change=Change(**what or {"lr": 0.5}), **fields)


def profile(number: int, *ranks: int, traces: list[TraceView] | None = None) -> ProfileView:
    return ProfileView(id=number, at=1.0, profile=Profile(ranks=list(ranks)), traces=traces or [])


def test_later_runs_repeat_what_was_not_refused_where_it_took_effect() -> None:
    found = changes_of(
        trial(changes=[change(1, steps_completed=7), change(2, error="no"), change(3)])
    )
    assert found == [
        ChangeOrder(id=1, change=Change(lr=0.5), steps_completed=7),
        ChangeOrder(id=3, change=Change(lr=0.5)),
    ]


@pytest.mark.parametrize(
    ("keeps_period", "fields", "lasts"),
    [
        (True, {"min_validation_period": PERIOD}, Change(min_validation_period=PERIOD)),
        (False, {"min_validation_period": PERIOD}, None),
        (False, {"lr": 0.5}, Change(lr=0.5)),
        (False, {"lr": 0.5, "min_validation_period": PERIOD}, Change(lr=0.5)),
        (
            True,
            {"lr": 0.5, "min_validation_period": PERIOD},
            Change(lr=0.5, min_validation_period=PERIOD),
        ),
    ],
)
def test_a_period_is_repeated_until_the_configuration_has_another(
    keeps_period: bool, fields: dict[str, Any], lasts: Change | None
) -> None:
    found = changes_of(trial(changes=[change(1, keeps_period=keeps_period, **fields)]))
    assert [order.change for order in found] == ([lasts] if lasts else [])


def test_changes_that_were_not_made_before_the_end_never_will_be() -> None:
    ended = trial(changes=[change(1, steps_completed=0), change(2), change(3, error="no")])
    settle_changes(ended, keep_period=True)
    assert [each.error for each in ended.changes] == ["", "the trial ended before it", "no"]
    assert all(each.keeps_period for each in ended.changes)
    settle_changes(ended, keep_period=False)
    settle_changes(ended, keep_period=True)  # once lost, it stays so
    assert not any(each.keeps_period for each in ended.changes)


def passed(to: Trial, state: AllocationState | None) -> list[PassOrders]:
    sent: list[PassOrders] = []
    allocation = None if state is None else SimpleNamespace(id="1.1.1", state=state)
    turn = SimpleNamespace(send_to_chief=lambda allocation, command: sent.append(command))
    ordered = cast(Trial, SimpleNamespace(
        allocation=allocation, changes=to.changes, profiles=to.profiles
    ))  # fmt: skip
    send_orders(cast(Turn, turn), ordered)
    return sent


def test_ranks_get_what_they_have_not_answered() -> None:
    own = trial(
        changes=[change(1, steps_completed=0), change(2)],
        profiles=[profile(3, 0, traces=[TraceView(rank=0)]), profile(4, 0, 1)],
    )
    for state in AllocationState:
        sent = passed(own, state)
        if state not in (AllocationState.STARTING, AllocationState.RUNNING):
            assert sent == []
            continue
        assert sent == [
            PassOrders(
                allocation_id="1.1.1",
                orders=[
                    ChangeOrder(id=2, change=Change(lr=0.5)),
                    ProfileOrder(id=4, profile=Profile(ranks=[0, 1])),
                ],
            )
        ]
    assert passed(own, None) == []
    assert passed(trial(), AllocationState.RUNNING) == []


def test_what_became_of_a_change_is_noted_with_it() -> None:
    own = trial(changes=[change(1), change(2), change(3)])
    record_change(own, ChangeMade(at=2.0, order_id=2, steps_completed=40, text="lr 1 → 0.5"))
    record_change(own, ChangeMade(at=2.0, order_id=3, steps_completed=40, error="no"))
    record_change(own, ChangeMade(at=2.0, order_id=9, steps_completed=40))
    noted = [(each.steps_completed, each.text, each.error) for each in own.changes]
    assert noted == [(None, "", ""), (40, "lr 1 → 0.5", ""), (None, "", "no")]


def test_a_profile_has_one_trace_of_each_of_its_ranks_in_their_order() -> None:
    own = trial(profiles=[profile(1, 0, 2), profile(2, 1)])
    for rank, path in ((2, "b"), (0, "a"), (0, "again"), (1, "not asked for")):
        saved = TraceSaved(at=2.0, order_id=1, first=0, steps=3, path=path)
        record_trace(own, rank, saved)
    assert [(each.rank, each.path) for each in own.profiles[0].traces] == [(0, "a"), (2, "b")]
    assert own.profiles[0].is_over
    assert own.profiles[1].traces == []


def test_the_traces_that_a_run_did_not_write_never_come() -> None:
    own = trial(profiles=[profile(1, 0, 1, traces=[TraceView(rank=1, path="b")]), profile(2, 0)])
    close_profiles(own)
    error = "the run ended before the trace was written"
    traces = [[(each.rank, each.path, each.error) for each in p.traces] for p in own.profiles]
    assert traces == [[(0, "", error), (1, "b", "")], [(0, "", error)]]
    assert all(each.is_over for each in own.profiles)
