"""From what the master says of an experiment to what its view shows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from det_jupyter.contract.messages import (
    AllocationState,
    CapturedName,
    CheckpointView,
    Divergence,
    ExperimentView,
    HangReport,
    RankStall,
    State,
)
from det_jupyter.contract.values.text import TRAINING_CONTINUES
from det_jupyter.view import ViewState, build_view_state
from tests.unit.view.view_samples import (
    CREATED_AT,
    allocation,
    capsule,
    checkpoint,
    curve,
    digits_curves,
    experiment,
    failure,
    slot,
    trial,
)

NOW = CREATED_AT + 42


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("trial 3 failed", "Trial 3 failed"),
        ("s3+http://minio/b: no such bucket", "s3+http://minio/b: no such bucket"),
        ("checkpoint_storage: it is full", "checkpoint_storage: it is full"),
        ("", ""),
    ],
)
def test_message_begins_with_a_capital_if_it_begins_with_a_word(message: str, shown: str) -> None:
    view = experiment(trial(), message=message)
    assert built(view)["message"] == shown


def built(view: ExperimentView, *checkpoints: CheckpointView, now: float = NOW) -> ViewState:
    return build_view_state(view, [], checkpoints, now)


def with_allocation(state: State, allocation_state: AllocationState | None) -> ExperimentView:
    held = None if allocation_state is None else allocation(allocation_state)
    return experiment(trial(allocation=held), state=state)


@pytest.mark.parametrize(
    ("state", "allocation_state", "status"),
    [
        (State.ACTIVE, None, "queued"),
        (State.ACTIVE, AllocationState.QUEUED, "queued"),
        (State.ACTIVE, AllocationState.STARTING, "starting"),
        (State.ACTIVE, AllocationState.RUNNING, "running"),
        (State.ACTIVE, AllocationState.STOPPING, "pausing"),
        (State.ACTIVE, AllocationState.ENDED, "queued"),
        (State.PAUSING, AllocationState.STOPPING, "pausing"),
        (State.PAUSED, AllocationState.ENDED, "paused"),
        (State.PAUSED, None, "paused"),
        (State.STOPPING_COMPLETED, AllocationState.RUNNING, "stopping"),
        (State.STOPPING_KILLED, AllocationState.RUNNING, "stopping"),
        (State.STOPPING_ERROR, None, "stopping"),
        (State.COMPLETED, None, "completed"),
        (State.CANCELED, AllocationState.ENDED, "canceled"),
        (State.ERROR, None, "error"),
    ],
)
def test_status_says_what_the_ranks_do(
    state: State, allocation_state: AllocationState | None, status: str
) -> None:
    assert built(with_allocation(state, allocation_state))["status"] == status


def test_a_trial_that_hangs_says_so_and_has_no_time_left() -> None:
    stalls = [
        RankStall(rank=0, kind="waits", collective="all_reduce", batch=9),
        RankStall(rank=1, kind="still", call="time.sleep", place="cell 1, line 2"),
    ]
    hang = HangReport(since=105.0, at=109.0, ranks=stalls)
    run = allocation(AllocationState.RUNNING)
    run = run.model_copy(update={"first_step_at": 100.0, "hang": hang})
    state = built(experiment(trial(allocation=run, steps_completed=40, progress=0.5)))
    assert state["eta_s"] is None
    [alarm] = state["alarms"]
    assert "rank 1 has been in `time.sleep` (cell 1, line 2) since" in alarm
    [shown] = state["trials"]
    assert shown["status_word"] == "Running, hangs"
    assert [rank["hangs"] for rank in shown["ranks"]] == [False, True]


def test_the_step_of_a_trial_that_hangs_is_the_batch_that_its_sentence_names() -> None:
    stalls = [
        RankStall(rank=0, kind="waits", collective="all_reduce", batch=47),
        RankStall(rank=1, kind="still", batch=47),
    ]
    run = allocation(AllocationState.RUNNING)
    run = run.model_copy(update={"hang": HangReport(since=105.0, at=109.0, ranks=stalls)})
    state = built(experiment(trial(allocation=run, steps_completed=40, progress=0.5)))
    assert state["summary"][0] == "step 47"
    assert state["trials"][0]["steps_completed"] == 47
    assert "batch 47" in state["alarms"][0]


def test_all_ranks_hang_that_wait_for_each_other() -> None:
    stalls = [RankStall(rank=rank, kind="waits", collective="all_reduce") for rank in (0, 1)]
    run = allocation(AllocationState.RUNNING)
    run = run.model_copy(update={"hang": HangReport(since=105.0, at=109.0, ranks=stalls)})
    [shown] = built(experiment(trial(allocation=run)))["trials"]
    assert [rank["hangs"] for rank in shown["ranks"]] == [True, True]


def test_trial_of_a_paused_experiment_is_paused() -> None:
    [shown] = built(with_allocation(State.PAUSED, None))["trials"]
    assert shown["status_word"] == "Paused"


def enabled(state: State) -> dict[str, bool]:
    actions = built(with_allocation(state, None))["actions"]
    return {action["verb"]: action["enabled"] for action in actions}


@pytest.mark.parametrize(
    ("state", "possible"),
    [
        (State.ACTIVE, {"pause", "kill"}),
        (State.PAUSING, {"activate", "kill"}),
        (State.PAUSED, {"activate", "kill"}),
        (State.STOPPING_COMPLETED, {"kill"}),
        (State.STOPPING_KILLED, set()),
        (State.COMPLETED, set()),
        (State.ERROR, set()),
    ],
)
def test_buttons_offer_what_the_state_allows(state: State, possible: set[str]) -> None:
    assert {verb for verb, is_possible in enabled(state).items() if is_possible} == possible


def test_impossible_button_tells_why() -> None:
    actions = built(with_allocation(State.PAUSED, None))["actions"]
    assert [action["why"] for action in actions] == [
        "It is paused already.",
        "Goes on from the last checkpoint.",
        "Ends all ranks now; checkpoints stay.",
    ]


def test_pace_of_the_first_run_tells_the_time_left() -> None:
    view = experiment(trial(steps_completed=50, progress=0.25))
    state = built(view, now=CREATED_AT + 0.14 + 10)
    assert state["eta_s"] == pytest.approx(30.0)


def test_pace_after_a_pause_is_that_of_the_present_run() -> None:
    resumed = allocation().model_copy(
        update={"started_at": CREATED_AT + 1000, "first_step_at": CREATED_AT + 1000}
    )
    view = experiment(trial(steps_completed=60, progress=0.6, allocation=resumed))
    state = built(view, checkpoint(20, 0.9), now=CREATED_AT + 1010)
    assert state["eta_s"] == pytest.approx(10.0)  # 40 steps in 10 s, 40 to go


@pytest.mark.parametrize(
    "changes",
    [{"allocation": None}, {"progress": 0.0}, {"steps_completed": 1}],
)
def test_time_left_is_not_guessed(changes: dict[str, Any]) -> None:
    assert built(experiment(trial(**changes)))["eta_s"] is None


def test_epochs_are_known_when_the_configuration_says_how_long_they_are() -> None:
    assert built(experiment(trial()))["steps_per_epoch"] == pytest.approx(1437 / 64)
    assert built(experiment(trial(hparams={})))["steps_per_epoch"] is None
    assert built(experiment(trial(), config={}))["steps_per_epoch"] is None


def test_ranks_show_slot_device_and_whether_they_are_up() -> None:
    up = allocation(num_ranks=2, cuda=True)
    up.ranks[1].device = ""
    [shown] = built(experiment(trial(allocation=up)))["trials"]
    assert shown["ranks"][0] == {
        "rank": 0,
        "pid": 4200,
        "slot": f"GPU 0 · {slot(0, cuda=True).name}",
        "device": "cuda:0",
        "status": "running",
        "hangs": False,
    }
    assert shown["ranks"][1]["status"] == "starting"
    assert shown["backend"] == "nccl"
    assert shown["first_step_s"] == pytest.approx(0.09, abs=1e-3)


def test_failure_of_an_earlier_run_is_told_from_the_end() -> None:
    [going] = built(experiment(trial(failure=failure())))["trials"]
    assert going["failure"] is not None
    assert going["failure"]["again"] is True
    ended = trial(failure=failure(), state=State.ERROR, allocation=None)
    [shown] = built(experiment(ended, state=State.ERROR))["trials"]
    assert shown["failure"] is not None
    assert shown["failure"]["again"] is False


def test_end_of_a_very_long_traceback_is_kept() -> None:
    long = "frame\n" * 10_000 + "ValueError: the cause"
    [shown] = built(experiment(trial(failure=failure(traceback=long))))["trials"]
    assert shown["failure"] is not None
    assert len(shown["failure"]["traceback"]) < 21_000
    assert shown["failure"]["traceback"].endswith("ValueError: the cause")


def test_best_checkpoint_follows_the_searchers_direction() -> None:
    saved = [checkpoint(22, 0.7), checkpoint(44, 0.9), checkpoint(66, 0.8)]
    best = built(experiment(trial()), *saved)["checkpoints"]
    assert (best["metric"], best["best_metric"], best["best_step"]) == ("accuracy", 0.9, 44)
    smaller = {"searcher": {"metric": "loss", "smaller_is_better": True}}
    best = built(experiment(trial(), config=smaller), *saved)["checkpoints"]
    assert (best["metric"], best["best_metric"], best["best_step"]) == ("loss", 0.7, 22)


def test_deleted_checkpoints_do_not_count_and_nan_is_never_best() -> None:
    saved = [
        checkpoint(22, 0.7),
        checkpoint(44, 0.9, state="DELETED"),
        checkpoint(66, float("nan")),
    ]
    shown = built(experiment(trial(best_metric=float("nan"))), *saved)["checkpoints"]
    assert shown == {
        "count": 2,
        "size_bytes": 1_240_000,
        "latest_step": 66,
        "metric": "accuracy",
        "best_metric": 0.7,
        "best_step": 22,
    }


def test_a_best_whose_checkpoint_is_deleted_has_no_step() -> None:
    saved = [checkpoint(22, 0.7), checkpoint(44, 0.9, state="DELETED")]
    shown = built(experiment(trial(best_metric=0.9)), *saved)["checkpoints"]
    assert (shown["best_metric"], shown["best_step"]) == (0.9, None)


def test_hyperparameters_of_a_trial_are_one_line() -> None:
    hparams = {
        "lr": 0.00123456789,
        "optimizer": {"name": "adam", "betas": [0.9, 0.99]},
        "extra": {},
    }
    [shown] = built(experiment(trial(hparams=hparams)))["trials"]
    assert shown["hparams"] == (
        "lr=0.00123457, optimizer.name=adam, optimizer.betas=[0.9, 0.99], extra={}"
    )


def test_long_capture_is_cut_and_counted() -> None:
    names = [CapturedName(name=f"x{i}", type="int", size_bytes=28) for i in range(250)]
    state = built(experiment(trial(), capsule=capsule(captured=names)))
    assert (len(state["captured"]), state["num_captured"]) == (100, 250)


def test_state_is_plain_json_of_modest_size() -> None:
    curves = [*digits_curves(3000), curve("batches", "bad", [None, 1e308, -1e308])]
    state = build_view_state(experiment(trial()), curves, [checkpoint(44, 0.9)], NOW)
    text = json.dumps(state, allow_nan=False)
    assert json.loads(text) == state
    assert len(text) < 30_000


def test_experiment_without_trials_has_a_view() -> None:
    state = built(experiment())
    assert (state["status"], state["trials"], state["charts"]) == ("queued", [], [])


def test_an_alarm_says_that_training_continues_only_while_it_does() -> None:
    alarm = (
        f"Loss became NaN at batch 40 on rank 0. {TRAINING_CONTINUES} Try a lower learning rate."
    )
    goes_on, over = (
        built(experiment(trial(alarms=[alarm], state=state), state=state))["alarms"]
        for state in (State.ACTIVE, State.ERROR)
    )
    assert goes_on == [f"Trial 1: {alarm}"]
    assert over == ["Trial 1: Loss became NaN at batch 40 on rank 0. Try a lower learning rate."]


def test_what_an_alarm_says_is_not_said_a_second_time() -> None:
    since = Divergence(metric="loss", value="NaN", since=40)
    for alarms, message, shown in (
        (["Loss became NaN at batch 40."], "trial 1: loss is NaN since batch 40", ""),
        ([], "trial 1: loss is NaN since batch 40", "Trial 1: loss is NaN since batch 40"),
        (["Loss became NaN at batch 40."], "trial 1: no file", "Trial 1: no file"),
    ):
        own = trial(alarms=alarms, divergence=since, state=State.ERROR)
        assert built(experiment(own, state=State.ERROR, message=message))["message"] == shown


def test_only_training_that_goes_on_is_said_to_diverge() -> None:
    since = Divergence(metric="loss", value="NaN", since=40)
    for state, own_state, word in (
        (State.ACTIVE, State.ACTIVE, "Queued, diverged"),
        (State.ERROR, State.STOPPING_ERROR, "Error"),  # the trial's end comes as news of its own
        (State.ERROR, State.ERROR, "Error"),
    ):
        own = trial(state=own_state, divergence=since, allocation=None)
        assert built(experiment(own, state=state))["status_word"] == word
