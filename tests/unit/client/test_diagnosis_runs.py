"""The runs of a diagnosis, also failing ones, against a fake master."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from det_jupyter.client import Client
from det_jupyter.client.diagnosis_plan import plan_diagnosis
from det_jupyter.client.diagnosis_result import Diagnosis
from det_jupyter.client.diagnosis_runs import DiagnosisRuns
from det_jupyter.contract.messages import (
    AllocationState,
    CreateExperiment,
    Curve,
    Divergence,
    ExperimentView,
    Reason,
    Series,
    SeriesPage,
    State,
)
from det_jupyter.errors import Conflict, NotFound, RankFailed, WaitTimeout
from det_jupyter.view import ViewState
from tests.unit.client.documents_fake import state_of
from tests.unit.client.test_diagnosis_plan import experiment, trial
from tests.unit.view.view_samples import allocation

Outcome = float | State | Exception  # records per second, or another end

RATES: dict[str, Outcome] = {"as it is": 100.0, "recorded batches": 101.0}


class Diverged(float):
    """The records per second of a run that ends with an error, as its loss is NaN."""


class FakeMaster:
    """Runs what it is asked to in no time.

    Args:
        outcomes: Of the runs, by the recipe's title; a list is for one run after the other.
    """

    def __init__(self, outcomes: Mapping[str, Outcome | list[Outcome]]) -> None:
        self._outcomes = {t: o if isinstance(o, list) else [o] for t, o in outcomes.items()}
        self.runs: list[str] = []
        self.killed = 0
        self.there: set[int] = set()
        self.states: list[ViewState] = []  # that are shown during each run
        self.parts: dict[str, list[float]] = {}  # what the chief's timings are
        self.queries: list[Any] = []
        self.reported: dict[str, float] = {}  # by each run, besides its throughput

    def create(self, request: CreateExperiment) -> Any:
        self.runs.append(request.config["name"].partition(", ")[2])
        self.there.add(len(self.runs))
        return experiment().model_copy(update={"id": len(self.runs)})

    def experiment(self, experiment_id: int) -> ExperimentView:
        if experiment_id not in self.there:
            raise NotFound("it is gone")
        is_nan = isinstance(self.outcome(experiment_id), Diverged)
        divergence = Divergence(metric="loss", value="NaN", since=4) if is_nan else None
        return experiment().model_copy(
            update={"id": experiment_id, "trials": [trial(divergence=divergence)]}
        )

    def handle(self, experiment_id: int) -> Any:
        return FakeHandle(self, experiment_id)

    def outcome(self, experiment_id: int) -> Outcome:
        title = self.runs[experiment_id - 1]
        outcomes = self._outcomes.get(title, [100.0])
        place = self.runs[:experiment_id].count(title) - 1
        return outcomes[min(place, len(outcomes) - 1)]

    def curves(self, experiment_id: int) -> list[Curve]:
        rate = self.outcome(experiment_id)
        if not isinstance(rate, float):
            return []
        values = {"records_per_s": rate, "seconds": 5.0, **self.reported}
        return [
            Curve(trial_id=1, group="rehearsal", name=n, steps=[1], values=[v], times=[9.0])
            for n, v in values.items()
        ]

    def series(self, trial_id: int, query: Any) -> SeriesPage:
        self.queries.append((self.runs[-1], query))
        series = [
            Series(source="rank:0", name=name, title=name, unit="s", x=[9.0], mid=values)
            for name, values in self.parts.items()
        ]
        return SeriesPage(series=series, began_at=None)


class FakeHandle:
    """A handle on a run of the fake master."""

    def __init__(self, master: FakeMaster, experiment_id: int) -> None:
        self._master = master
        self.id = experiment_id

    def wait(self, timeout: float | None = None, *, on_tick: Callable[[Any], None]) -> State:
        for state in self._master.states:
            on_tick(state)
        outcome = self._master.outcome(self.id)
        if isinstance(outcome, BaseException):
            raise outcome
        if isinstance(outcome, Diverged):
            raise RankFailed("experiment 1 ended with an error: loss is NaN since batch 4")
        return outcome if isinstance(outcome, State) else State.COMPLETED

    @property
    def view(self) -> ExperimentView:
        return self._master.experiment(self.id)

    def kill(self) -> None:
        self._master.killed += 1

    def delete(self, *, ask: bool) -> None:
        self._master.there.discard(self.id)


def diagnose(master: FakeMaster, *, keep: bool = False, **chosen: Any) -> Diagnosis:
    given: dict[str, Any] = {"recipes": None, "seconds": 5.0, "rounds": 2, **chosen}
    plan = plan_diagnosis(experiment(), trial(), **given)
    client = cast(Client, master)
    return DiagnosisRuns(client, plan, master.handle, deadline=1e12, keep=keep).run()


FIRST = ["as it is", "recorded batches", "aggregation_frequency: 1000"]
ALONE = "1 slot, its share of the batch"


def test_recipes_run_in_turns_and_remedies_only_for_what_was_found() -> None:
    master = FakeMaster(RATES | {FIRST[2]: 200.0, ALONE: 30.0})
    found = diagnose(master)
    [*first, alone] = [*FIRST, ALONE]
    assert master.runs[:8] == [*first, alone, alone, *first[::-1]], "drift does not favour any"
    remedies = master.runs[8:15]
    assert remedies[0] == "as it is"
    assert set(remedies[1:]) == {
        "tensor_fusion_threshold: 5",
        "tensor_fusion_threshold: 100",
        "gradient_compression: bf16",
        "gradient_compression: fp16",
        "gradient_compression: powersgd",
        "aggregation_frequency: 4",
    }
    assert master.runs[15:] == remedies[::-1]
    assert [item.recipe.name for item in found.left_out] == ["workers"]
    assert found.verdict.kind == "communication"
    assert not master.there


def test_chosen_recipes_run_without_asking_whether_they_can_gain() -> None:
    master = FakeMaster(RATES)
    diagnose(master, recipes=["workers"], keep=True)
    assert master.runs == ["as it is", "more loader workers", "more loader workers", "as it is"]
    assert master.there == {1, 2, 3, 4}


def test_a_recipe_that_fails_is_not_tried_again_and_the_others_go_on() -> None:
    master = FakeMaster(
        RATES | {FIRST[1]: RankFailed("no", run="experiment 2", remote_traceback="T")}
    )
    found = diagnose(master, recipes=["replay", "one_slot"])
    assert master.runs == ["as it is", FIRST[1], ALONE, ALONE, "as it is"]
    verdicts = {row["recipe"]: row["verdict"] for row in found.table()}
    assert verdicts["replay"] == "failed: no"
    assert found.verdict.kind == "unknown"


def test_a_run_whose_loss_diverges_is_measured_all_the_same() -> None:
    master = FakeMaster({"as it is": Diverged(100.0), FIRST[1]: Diverged(200.0)})
    [as_it_is, replay] = diagnose(master, recipes=["replay"]).table()
    assert (as_it_is["records_per_s"], replay["ratio"], replay["sign"]) == (100.0, 2.0, "gain")


def test_a_run_that_was_sent_away_is_repeated_three_times_at_most() -> None:
    away = State.COMPLETED  # without a report
    master = FakeMaster(RATES | {FIRST[1]: [away, away, 101.0, away, away, away]})
    found = diagnose(master, recipes=["replay"])
    assert master.runs.count(FIRST[1]) == 6
    [_, replay] = found.table()
    assert replay["verdict"] == "failed: more urgent work sent it away 3 times"


@pytest.mark.parametrize(
    ("outcome", "error", "words"),
    [
        (State.CANCELED, Conflict, "not measured as it is: its run was killed"),
        (State.COMPLETED, Conflict, "as it is: more urgent work sent it away 3 times"),
        (
            RankFailed("it broke", run="experiment 1"),
            RankFailed,
            "fails as it is: it broke",
        ),
        (WaitTimeout("late"), WaitTimeout, "as it is was not over in time"),
    ],
)
def test_without_the_trial_as_it_is_there_is_no_answer_and_nothing_is_left(
    outcome: Outcome, error: type[Exception], words: str
) -> None:
    master = FakeMaster({"as it is": outcome})
    with pytest.raises(error, match=words) as caught:
        diagnose(master)
    assert not master.there
    assert master.killed == (error is WaitTimeout)
    left = "(0 of 8 runs were); give a longer timeout"
    assert (left in str(caught.value)) is (error is WaitTimeout)


def test_a_run_that_is_late_says_how_many_were_not() -> None:
    master = FakeMaster(RATES | {FIRST[1]: WaitTimeout("late")})
    with pytest.raises(WaitTimeout, match=r"recorded batches was not over in time \(1 of 4 runs "):
        diagnose(master, recipes=["replay"])


def test_the_present_run_is_shown_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    master = FakeMaster(RATES)
    waits = Reason(trial_id=9, cause="slots", sentence="needs 4 slots")
    for steps, gang in (
        (0, AllocationState.QUEUED), (0, AllocationState.STARTING), (5, AllocationState.RUNNING),
    ):  # fmt: skip
        changes = {"state": State.ACTIVE, "allocation": allocation(gang)}
        own = trial(steps_completed=steps).model_copy(update=changes)
        view = experiment().model_copy(update={"trials": [own], "state": State.ACTIVE})
        master.states.append(state_of(view, reasons={9: waits}))
    diagnose(master, recipes=["replay"])
    shown = [part.strip() for part in capsys.readouterr().out.split("\r")]
    assert [each for each in shown if each.startswith("diagnose: run 1")] == [
        "diagnose: run 1 of 4, as it is: waits",
        "diagnose: run 1 of 4, as it is: starts",
        "diagnose: run 1 of 4, as it is: 5 batches",
    ]
    assert "diagnose: run 4 of 4, as it is: 5 batches" in shown
    assert any("trial 9 waits: needs 4 slots" in each for each in shown)


def test_where_time_goes_is_asked_of_the_measured_seconds_of_the_chief() -> None:
    master = FakeMaster(RATES | {FIRST[1]: 300.0})
    master.parts = {"dataloader_next": [3.0], "forward": [1.0], "other": [9.0], "backward": []}
    diagnosed = diagnose(master, recipes=["replay"])
    assert [title for title, _ in master.queries] == ["as it is", "as it is"]
    query = master.queries[0][1]
    assert (query.since, query.until, query.sources, query.columns) == (4.0, 9.0, ["rank:0"], 1)
    assert "rank 0 waits for that 75 % of its time" in repr(diagnosed)


def test_what_a_remedy_is_in_the_code_is_said() -> None:
    master = FakeMaster(RATES | {"more loader workers": 300.0, ALONE: 300.0})
    master.reported = {"workers": 4.0, "workers_before": 0.0}
    shown = repr(diagnose(master, recipes=["workers", "one_slot"]))
    assert "DataLoader(..., num_workers=4) instead of 0" in shown
    assert "global_batch_size: 8, as much for a slot (weak scaling)" in shown
