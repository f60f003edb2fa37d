"""From what the master says of slots and queues to what a view shows of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from det_jupyter.contract.messages import (
    AllocationState,
    ClusterView,
    DeviceFault,
    Estimate,
    ExperimentView,
    Reason,
    Remedy,
    SlotStatus,
    State,
)
from det_jupyter.contract.messages.leaving import Leaving
from det_jupyter.view import ViewState, build_view_state
from det_jupyter.view.making.waits import expected_text
from det_jupyter.view.model.slots_and_queue import Slot, SlotsAndQueue, Wait
from tests.unit.view.view_cluster_samples import (
    LONG_NAME,
    NOW,
    OWN_ID,
    agent,
    cluster,
    crowd,
    entry,
    every_kind_of_slot,
    held,
    idle_kernel,
    leaving_for,
    pool,
    reason,
    slot_status,
    stranger,
    waiting,
    waiting_trial,
)
from tests.unit.view.view_samples import allocation, experiment, search_experiment, trial

DAY_S = 86_400.0


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of day are those of Greenwich."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def state_of(
    view: ExperimentView, known: ClusterView | None, *further: Reason, now: float = NOW
) -> ViewState:
    own = {} if known is None else {
        e.trial_id: e.reason for e in known.queue if e.experiment_id == view.id
    }  # fmt: skip
    reasons = own | {each.trial_id: each for each in further}
    return build_view_state(view, [], [], now, cluster=known, reasons=reasons)


def built(known: ClusterView, view: ExperimentView | None = None, **more: Any) -> SlotsAndQueue:
    shown = state_of(experiment(trial()) if view is None else view, known, **more)["cluster"]
    assert shown is not None
    return shown


def wait_of(view: ExperimentView, known: ClusterView, *further: Reason) -> Wait | None:
    [shown] = state_of(view, known, *further)["trials"]
    return shown["wait"]


def bars(*slots: SlotStatus, connected: bool = True) -> list[Slot]:
    known = built(cluster(pool(agent("local", slots, connected=connected))))
    return known["pools"][0]["agents"][0]["slots"]


def test_each_slot_says_who_is_on_it() -> None:
    [shown] = built(cluster(every_kind_of_slot()))["pools"]
    assert [(b["id"], b["state"], b["is_own"], b["who"]) for b in shown["agents"][0]["slots"]] == [
        (0, "used", True, "this experiment"),
        (1, "leaving", True, "this experiment"),
        (2, "used", False, "resnet"),
        (3, "leaving", False, "resnet"),
        (4, "occupied", False, "python train.py --big"),
        (5, "occupied", False, "explore/eda.ipynb"),
        (6, "disabled", False, "disabled"),
        (7, "free", False, "free"),
    ]


def test_all_that_is_known_of_a_slot_in_use() -> None:
    [bar] = bars(held(3, is_draining=True))
    assert bar["facts"] == [
        "slot 3",
        "GPU 3 · NVIDIA H100 80GB HBM3",
        "in use, disabled when its trial is over",
        "experiment 3 “resnet”",
        "trial 4, rank 3",
        "priority 42",
        "since 14:03",
    ]


def test_all_that_is_known_of_strangers_on_a_slot() -> None:
    [bar] = bars(slot_status(4, "occupied", processes=[stranger(), idle_kernel()]))
    assert bar["facts"][2:] == [
        "used by another process",
        "pid 4711, of anna, python train.py --big, 21 GB used",
        "pid 4812, Jupyter kernel, notebook explore/eda.ipynb, 8.3 GB used, idle since 12:43",
    ]


def test_slot_of_another_users_trial_says_whose_and_since_when() -> None:
    anna = stranger(pid=7, command="anna's trial", claim="held", since=NOW - 4800)
    ben = stranger(pid=8, command="kept for ben", claim="next", since=NOW - 4800, memory_bytes=0)
    used, kept = bars(
        slot_status(0, "occupied", processes=[anna]), slot_status(1, "occupied", processes=[ben])
    )
    assert used["who"] == "anna's trial"
    assert used["facts"][2:] == [
        "used by another master",
        "anna's trial, 21 GB used, since 12:54",
    ]
    assert kept["who"] == "kept for ben"
    assert kept["facts"][2:] == [
        "kept for another master, which is next",
        "kept for ben, waits since 12:54",
    ]


def test_a_lost_slot_says_why_and_what_to_do() -> None:
    [bar] = bars(slot_status(4, "lost", lost=DeviceFault(index=4, at=NOW, xid=79)))
    assert (bar["state"], bar["who"], bar["facts"][2]) == ("lost", "lost", "lost")
    assert bar["facts"][-1].startswith("GPU 4 has been lost since")
    assert bar["facts"][-1].endswith(
        "(Xid 79: it has fallen off the bus); reset it or restart the computer"
    )


def test_of_many_processes_on_a_slot_the_first_are_named() -> None:
    [bar] = bars(slot_status(0, "occupied", processes=[stranger(pid=i) for i in range(1, 6)]))
    assert [fact.split(",")[0] for fact in bar["facts"][3:]] == [
        "pid 1",
        "pid 2",
        "pid 3",
        "and 2 more",
    ]


def test_stranger_without_a_command_is_told_by_its_number() -> None:
    assert [b["who"] for b in bars(
        slot_status(0, "occupied", processes=[stranger(command="")]),
        slot_status(1, "occupied", processes=[stranger(command="/usr/bin/python3 -u x.py")]),
        slot_status(2, "occupied"),
    )] == ["pid 4711", "python3 -u x.py", "another process"]  # fmt: skip


def test_slots_of_an_agent_that_is_gone_are_not_free() -> None:
    assert [(b["state"], b["who"]) for b in bars(held(0), slot_status(1), connected=False)] == [
        ("used", "resnet"),
        ("disabled", "not connected"),
    ]


def test_long_and_odd_names_are_short_and_on_one_line() -> None:
    [bar] = bars(held(0, 4, "two\nlines " + "x" * 99))
    assert bar["who"] == "two lines " + "x" * 29 + "…"
    assert max(map(len, bar["facts"])) < 100


def test_experiment_without_a_name_is_told_by_its_number() -> None:
    [bar] = bars(held(0, 4, ""))
    assert bar["who"] == "experiment 4"


@pytest.mark.parametrize(
    ("known", "summary"),
    [
        (cluster(), "no slots"),
        (cluster(pool()), "no slots"),
        (cluster(pool(agent("a", [slot_status(0)]))), "1 slot: 1 free"),
        (waiting()[1], "8 slots: 6 used, 2 free · 95 waiting"),
        (
            cluster(every_kind_of_slot()),
            "8 slots: 2 used, 2 leaving, 2 occupied by others, 1 disabled, 1 free",
        ),
        (
            cluster(pool(agent("a", [held(0), slot_status(1)], connected=False))),
            "2 slots: 2 not connected",
        ),
    ],
)
def test_slots_and_queue_in_one_line(known: ClusterView, summary: str) -> None:
    assert built(known)["summary"] == summary


def test_pools_say_how_they_decide() -> None:
    shown = built(cluster(
        pool(agent("left", [held(0)])),
        pool(name="big", policy="fair_share", preemption=False, share_devices=True),
    ))["pools"]  # fmt: skip
    assert [(p["name"], p["rules"], p["counts"]) for p in shown] == [
        ("default", "by priority, with preemption", "1 slot: 1 used"),
        ("big", "fair share, shares devices with others", "no slots"),
    ]


def test_what_is_unusual_of_an_agent_is_noted() -> None:
    known = cluster(pool(agent("local", [slot_status(0)]), agent(
        "far", [], hostname="host-2", connected=False, num_aux=2)))  # fmt: skip
    [shown] = built(known)["pools"]
    assert [one["note"] for one in shown["agents"]] == [
        "",
        "not connected, on host-2, no slots, 2 trials without slots",
    ]


def test_of_many_agents_some_are_drawn_and_among_them_those_of_the_experiment() -> None:
    [shown] = built(crowd(125))["pools"]
    names = [one["id"] for one in shown["agents"]]
    assert names == [f"node-{number:03}" for number in range(1, 16)] + ["node-125"]
    assert shown["more"] == "109 more agents with 872 slots: 763 used, 109 free"


def test_of_many_slots_of_an_agent_some_are_drawn_and_the_experiments_among_them() -> None:
    slots = [held(i) for i in range(999)] + [held(999, OWN_ID)]
    [shown] = built(cluster(pool(agent("huge", slots))))["pools"][0]["agents"]
    assert [bar["id"] for bar in shown["slots"]] == [*range(63), 999]
    assert shown["more"] == "and 936 more slots: 936 used"


@pytest.mark.parametrize(
    ("num_agents", "slots_each"), [(1, 1), (1, 8), (8, 8), (16, 8), (16, 64), (125, 8), (1000, 1)]
)
def test_state_of_any_cluster_is_plain_json_of_modest_size(
    num_agents: int, slots_each: int
) -> None:
    shown = built(crowd(num_agents, slots_each))
    text = json.dumps(shown, allow_nan=False)
    assert json.loads(text) == shown
    assert len(text) < 45_000
    assert sum(len(a["slots"]) for p in shown["pools"] for a in p["agents"]) <= 128


def test_long_queue_is_its_front_and_the_trials_of_the_experiment() -> None:
    queue = [entry(100 + i, position=i) for i in range(40)]
    queue[30] = entry(1, OWN_ID, "digits", position=30)
    known = built(cluster(pool(), queue=queue, num_waiting=95), experiment(waiting_trial()))
    assert [row["place"] for row in known["queue"]] == [1, 2, 3, 4, 5, 6, 7, 8, 31]
    assert [row["is_own"] for row in known["queue"]] == [False] * 8 + [True]
    assert known["num_waiting"] == 95


def test_each_in_the_queue_has_its_sentence() -> None:
    first, second, *_ = built(waiting()[1], waiting()[0])["queue"]
    assert first == {
        "place": 1,
        "trial_id": 20,
        "experiment": "experiment 5 “bert”",
        "is_own": False,
        "pool": "default",
        "slots": "4 slots",
        "since": "14:11",
        "sentence": "needs 4 slots; 2 are free; 1 trial is ahead of it",
    }
    assert (second["experiment"], second["is_own"]) == ("experiment 7 “digits”", True)


def test_waiting_trial_says_why_what_would_start_it_and_when() -> None:
    wait = wait_of(*waiting())
    assert wait is not None
    assert wait["key"]
    assert wait == {
        "trial_id": 1,
        "key": wait["key"],
        "sentence": "needs 4 slots; 2 of 8 are free; experiment 3 “resnet” holds 4; "
        "starts when it ends or is paused",
        "expected": "expected to start at 14:34 (14:24 to 14:54), by the progress of trial 4",
        "remedies": [
            {
                "id": "wait 3",
                "sentence": "wait until experiment 3 ends",
                "command": "",
                "button": "",
            },
            {
                "id": "pause 3",
                "sentence": "pause experiment 3, which gives 4 slots back",
                "command": "%det_experiment pause 3",
                "button": "Pause",
            },
            {
                "id": "set 7 max_slots=2",
                "sentence": "ask for 2 slots",
                "command": "%det_experiment set 7 --max-slots 2",
                "button": "Change",
            },
        ],
    }


def test_trial_too_far_back_for_the_list_says_why_too() -> None:
    queue = [entry(100 + i, position=i) for i in range(20)]
    known = cluster(pool(), queue=queue, num_waiting=95)
    far = reason(1, sentence="needs 4 slots; 94 trials are ahead of it")
    wait = wait_of(experiment(waiting_trial()), known, far)
    assert wait is not None
    assert wait["sentence"] == "needs 4 slots; 94 trials are ahead of it"


def test_reason_of_a_trial_that_has_started_meanwhile_is_dropped() -> None:
    assert wait_of(experiment(trial()), waiting()[1]) is None
    assert built(waiting()[1], experiment(trial()))["is_waiting"] is False


def test_trial_of_which_the_queue_says_nothing_waits_for_what_it_says_itself() -> None:
    wait = wait_of(experiment(waiting_trial()), cluster())
    assert wait is not None
    assert (wait["sentence"], wait["remedies"]) == ("needs 4 slots; 2 of 8 are free", [])


def test_search_says_why_its_first_trial_waits_while_none_has_slots() -> None:
    def wait(*reasons: Reason, **changes: Any) -> Wait | None:
        queued = waiting_trial(**changes)
        view = experiment(queued, queued.model_copy(update={"id": 2}))
        search = state_of(view, cluster(), *reasons)["search"]
        assert search is not None
        return search["wait"]

    first, second = wait(reason(2, sentence="needs 4 slots"), reason(1)), wait()
    assert first is not None
    assert first["sentence"] == "trial 2: needs 4 slots"
    assert second is not None
    assert second["sentence"] == "needs 4 slots; 2 of 8 are free"
    assert wait(waiting_for=None) is None
    assert wait(reason(2), allocation=allocation()) is None


def test_command_that_would_be_cut_is_left_out() -> None:
    remedy = Remedy(verb="pause", text="s" * 500, target=[*range(100)])
    queue = [entry(1, OWN_ID, reason=reason(1, remedies=[remedy] * 9))]
    wait = wait_of(experiment(waiting_trial()), cluster(queue=queue))
    assert wait is not None
    assert [(len(r["sentence"]), r["command"]) for r in wait["remedies"]] == [(400, "")] * 4


@pytest.mark.parametrize(
    ("estimate", "why_unknown", "text"),
    [
        (None, "", ""),
        (
            None,
            "trial 3 has not said how far it is",
            "when it starts is not known: trial 3 has not said how far it is",
        ),
        ((1200, 600, 2400), "", "expected to start at 14:34 (14:24 to 14:54)"),
        ((1200, 1200, 1200), "", "expected to start at 14:34"),
        ((1200, 600, None), "", "expected to start at 14:34, not before 14:24"),
        ((1200, 1200, None), "", "expected to start at 14:34 or later"),
        ((30, 20, 50), "", "expected to start at 14:14:50 (14:14:40 to 14:15:10)"),
        ((DAY_S, DAY_S, DAY_S), "", "expected to start at Sep 22, 14:14"),
    ],
)
def test_expected_start_is_a_time_and_a_range(
    estimate: Sequence[float | None] | None, why_unknown: str, text: str
) -> None:
    known = None
    if estimate is not None:
        at, earliest, latest = estimate
        assert at is not None
        assert earliest is not None
        known = Estimate(
            at=NOW + at,
            earliest=NOW + earliest,
            latest=None if latest is None else NOW + latest,
            basis="",
        )
    assert expected_text(known, why_unknown, NOW) == text


def test_nothing_changes_by_time_alone() -> None:
    view, known = waiting()
    assert built(known, view, now=NOW) == built(known, view, now=NOW + 300)


@pytest.mark.parametrize("state", [State.COMPLETED, State.CANCELED, State.ERROR])
def test_experiment_that_is_over_shows_no_slots(state: State) -> None:
    view = experiment(trial(state=state, allocation=None), state=state)
    assert state_of(view, waiting()[1])["cluster"] is None


def test_nothing_is_shown_while_nothing_is_known() -> None:
    assert state_of(experiment(trial()), None)["cluster"] is None


def test_paused_experiment_does_not_wait() -> None:
    view = experiment(trial(allocation=None), state=State.PAUSED)
    assert built(waiting()[1], view)["is_waiting"] is False


def test_trial_that_makes_room_says_for_whom() -> None:
    view = experiment(trial(allocation=leaving_for(5)))
    state = state_of(view, waiting()[1])
    [shown] = state["trials"]
    assert (state["status_word"], shown["status_word"]) == ("Making room", "Making room")
    assert shown["makes_room"] == (
        "makes room for experiment 5 “bert”: saves a checkpoint, then queues at its place"
    )


def test_trial_makes_room_for_an_experiment_whose_name_is_not_known() -> None:
    [shown] = state_of(experiment(trial(allocation=leaving_for(5))), None)["trials"]
    assert shown["makes_room"].startswith("makes room for experiment 5: ")


def test_a_trial_that_is_resized_says_to_how_many_slots() -> None:
    run = leaving_for(5).model_copy(update={"preempted_by": None})
    leaving = Leaving(
        experiment_id=3, then="resizes", next_slots=1, resized_because="gave 1 slot to trial 9"
    )
    [shown] = state_of(experiment(trial(allocation=run, leaving=leaving)), None)["trials"]
    found = (shown["status_word"], shown["makes_room"])
    assert found == ("Resizing", "goes on with 1 slot: gave 1 slot to trial 9")


def test_trial_that_has_made_room_only_waits() -> None:
    gone = leaving_for(5).model_copy(update={"state": AllocationState.ENDED})
    state = state_of(experiment(trial(allocation=gone)), waiting()[1])
    assert (state["status_word"], state["trials"][0]["makes_room"]) == ("Queued", "")


def test_trial_that_leaves_for_a_pause_makes_no_room() -> None:
    view = experiment(trial(allocation=allocation(AllocationState.STOPPING)))
    assert state_of(view, None)["status_word"] == "Pausing"


@pytest.mark.parametrize("state", [State.PAUSING, State.STOPPING_CANCELED])
def test_trial_that_was_preempted_and_then_paused_or_canceled_makes_no_room(state: State) -> None:
    view = experiment(trial(allocation=leaving_for(5), state=state), state=state)
    found = state_of(view, waiting()[1])
    assert found["status_word"] != "Making room"
    assert found["trials"][0]["makes_room"] == ""


def test_search_says_which_of_its_trials_make_room() -> None:
    view, _, _, now = search_experiment(16, 14)
    going = [t for t in view.trials if t.allocation is not None][:2]
    for each in going:
        each.allocation = leaving_for(5)
    search = state_of(view, None, now=now)["search"]
    assert search is not None
    assert [r["text"] for r in search["remarks"]][1] == (
        f"trials {going[0].id} and {going[1].id} must make room for experiment 5"
    )
    words = {row["id"]: row["status_word"] for row in search["rows"]}
    assert [words[each.id] for each in going] == ["Making room", "Making room"]


def test_hostile_names_stay_what_they_are() -> None:
    [bar] = bars(held(0, 4, LONG_NAME))
    assert bar["who"] == "a-very-long-name-of-an-experiment-that-…"
