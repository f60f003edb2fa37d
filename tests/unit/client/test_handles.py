"""What handles on experiments and trials tell, and the requests that their methods are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.client import Experiment, Trial
from det_jupyter.client.handles import experiment as experiment_module
from det_jupyter.client.handles import trial as trial_module
from det_jupyter.contract.messages import (
    EffectiveConfig,
    Reason,
    Remedy,
    SearchChangeView,
    SearchView,
    State,
    TimingsView,
    TrialChangeView,
    TrialView,
    Verdict,
)
from det_jupyter.errors import Conflict, NotFound, UsageError
from tests.unit.client.handles.test_experiment import Wired
from tests.unit.view.view_samples import curve, experiment, trial


def searching(*trials: TrialView, **changes: Any) -> Wired:
    """Return a master with experiment 7: a search by accuracy with these trials."""
    view = experiment(*trials, search=SearchView(name="random", max_trials=9), **changes)
    wired = Wired(experiments=view)
    wired.answers["7"] = view
    return wired


def on_trial(view: TrialView | None = None, **answers: Any) -> tuple[Wired, Trial]:
    """Return a master and a handle on its trial 1 of experiment 7."""
    wired = Wired(experiments=experiment(), **answers)
    wired.answers["1"] = trial() if view is None else view
    return wired, Trial(wired.client, 1, experiment_of=lambda number: f"experiment {number}")


BEST, GOOD, NONE = trial(id=3, best_metric=0.9), trial(id=1, best_metric=0.5), trial(id=2)


def test_an_experiment_tells_what_the_master_has_of_it() -> None:
    changed = SearchChangeView(at=1.0, before={"max_trials": 4}, after={"max_trials": 9})
    handle = searching(GOOD, NONE, BEST, search_changes=[changed]).experiment
    assert (handle.name, handle.state, handle.progress) == ("digits", State.ACTIVE, 0.4328)
    assert handle.config["records_per_epoch"] == 1437
    assert handle.search_changes == [changed]
    assert [each.id for each in handle.trials] == [1, 2, 3]
    assert [each.id for each in handle.ranking()] == [3, 1, 2]
    assert handle.best_trial().id == 3
    head = "Experiment 7 “digits” (running, 43%, 3 trials, accuracy 0.9000 of trial 3, global_"
    assert repr(handle).startswith(head)


def test_an_effective_configuration_prints_as_yaml() -> None:
    shown = EffectiveConfig(yaml="name: x\n", config={"name": "x"}, origins={"name": "you"})
    config = Wired(config=shown).experiment.effective_config()
    assert (repr(config), config.config, config.origins) == (
        "name: x\n",
        {"name": "x"},
        {"name": "you"},
    )


@pytest.mark.parametrize("trials", [[], [NONE]])
def test_before_the_first_validation_no_trial_is_the_best(trials: list[TrialView]) -> None:
    with pytest.raises(NotFound, match="experiment 7: no trial has reported accuracy yet"):
        searching(*trials).experiment.best_trial()


def test_the_only_trial_of_an_experiment_is_its_trial() -> None:
    wired = Wired(experiments=experiment(GOOD))
    assert wired.experiment.trial.id == 1
    wired.answers["experiments"] = experiment(GOOD, search=SearchView(name="random", max_trials=1))
    assert wired.experiment.trial.id == 1
    wired.answers["experiments"] = experiment()
    with pytest.raises(NotFound, match="experiment 7 has no trial yet"):
        _ = wired.experiment.trial


@pytest.mark.parametrize(
    ("trials", "leader"),
    [
        ([GOOD, NONE, BEST], "now trial 3 with accuracy=0.9"),
        ([NONE], "none has reported the metric yet"),
        ([], "none has reported the metric yet"),
    ],
)
def test_of_a_search_it_is_said_how_a_trial_is_chosen(
    trials: list[TrialView], leader: str
) -> None:
    with pytest.raises(Conflict) as caught:
        _ = searching(*trials).experiment.trial
    assert str(caught.value) == (
        f"experiment 7 is a search: take best_trial() ({leader}), ranking()[i] (best first) or "
        f"trials[i] (of {len(trials)} so far, oldest first)"
    )


@pytest.mark.parametrize(
    ("order", "path", "body"),
    [
        (lambda e: e.activate(), "activate", {}),
        (lambda e: e.cancel(), "cancel", {}),
        (lambda e: e.kill(), "kill", {}),
        (lambda e: e.pause(), "pause", {"at_once": False}),
        (lambda e: e.pause(at_once=True), "pause", {"at_once": True}),
        (lambda e: e.set_name("n"), "details", {"name": "n"}),
        (lambda e: e.set_description("d"), "details", {"description": "d"}),
        (lambda e: e.add_label("a", "b"), "details", {"add_labels": ["a", "b"]}),
        (lambda e: e.remove_label("a", "b"), "details", {"remove_labels": ["a", "b"]}),
        (lambda e: e.change_search(max_trials=20), "search", {"max_trials": 20}),
    ],
)  # fmt: skip
def test_an_order_is_one_request(
    order: Callable[[Experiment], None], path: str, body: dict[str, Any]
) -> None:
    wired = Wired(experiments=experiment(trial()))
    order(wired.experiment)
    ((method, asked, given),) = wired.asked
    assert (method, asked) == ("POST", f"experiments/7/{path}")
    assert {key: value for key, value in (given or {}).items() if value not in (None, [])} == body


@pytest.mark.parametrize(
    ("answer", "is_deleted"), [("y", True), (" YES ", True), ("", False), ("n", False)]
)
def test_a_deletion_that_asks_needs_a_yes(
    answer: str,
    is_deleted: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    questions: list[str] = []

    def ask(question: str) -> str:
        questions.append(question)
        return answer

    monkeypatch.setattr("builtins.input", ask)
    wired = Wired(experiments=experiment(trial()))
    wired.experiment.delete(ask=True)
    assert questions == [
        "Delete experiment 7 (digits) with its checkpoints, metrics and logs? It cannot be "
        "undone. [y/N] "
    ]
    assert (("POST", "experiments/7/delete", {}) in wired.asked) is is_deleted
    assert capsys.readouterr().out == ("" if is_deleted else "Experiment 7 is kept.\n")


@pytest.mark.parametrize("error", [EOFError, NotImplementedError])
def test_where_no_question_can_be_asked_nothing_is_deleted(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(question: str) -> str:
        raise error

    monkeypatch.setattr("builtins.input", fail)
    wired = Wired(experiments=experiment(trial()))
    with pytest.raises(UsageError, match=r"to confirm it, write delete\(ask=False\)$"):
        wired.experiment.delete(ask=True)
    assert [method for method, _, _ in wired.asked] == ["GET"]


def test_the_best_trial_is_trained_to_the_end_as_an_experiment_of_its_own() -> None:
    wired = searching(GOOD, BEST)
    wired.answers["continue"] = experiment(id=12)
    assert wired.experiment.train_to_the_end().id == 12
    assert wired.asked[-1][:2] == ("POST", "trials/3/continue")


def test_curves_are_thinned_if_it_is_asked_for_and_metrics_have_repeats() -> None:
    loss = curve("batches", "loss", [0.5])
    wired = Wired(curves=[loss])
    assert wired.experiment.curves(max_points=9) == [loss]
    assert wired.experiment.metric_columns()["value"] == [0.5]
    assert [path.partition("?")[2] for _, path, _ in wired.asked] == [
        "max_points=9", "repeats=true",
    ]  # fmt: skip


def test_an_importance_prints_the_shares_or_why_there_are_none() -> None:
    found = {"metric": "error", "num_trials": 30, "shares": {"lr": 0.9, "depth": 0.1}}
    wired = Wired(importance=found)
    assert repr(wired.experiment.importance()) == (
        " 90%  lr\n 10%  depth\nthe best quarter against all 30 ended trials, by error"
    )
    wired.answers["importance"] = found | {"shares": {}, "sentence": "too few trials"}
    assert str(wired.experiment.importance()) == "too few trials"


LIMITED = Verdict(kind="input", sentence="Waits for data.", at=1.0, batches=9)
EARLY = Verdict(kind="unknown", sentence="Too early.", at=1.0, batches=0)


@pytest.mark.parametrize(
    ("trials", "config", "sentence"),
    [
        ([trial(id=1, verdict=LIMITED), trial(id=2, best_metric=0.9, verdict=EARLY)], {},
         "Waits for data."),
        ([trial(id=1), trial(id=2, best_metric=0.9, verdict=EARLY)], {}, "Too early."),
        ([trial()], {}, "no times of its ranks"),
        ([trial()], {"profiling": None}, "no times of its ranks"),
        ([trial()], {"profiling": {"enabled": True}}, "no times of its ranks"),
        ([trial()], {"profiling": {"enabled": False}},
         "Not measured: profiling.enabled is false."),
    ],
)  # fmt: skip
def test_the_verdict_is_the_best_trials_that_has_one(
    trials: list[TrialView], config: dict[str, Any], sentence: str
) -> None:
    view = experiment(*trials)
    view.config.update(config)
    verdict = Wired(experiments=view).experiment.verdict
    assert sentence in verdict.sentence
    assert verdict.sentence in repr(verdict)
    assert verdict.sentence in str(verdict)
    assert "<" in verdict._repr_html_()


def test_without_a_trial_there_is_no_verdict() -> None:
    with pytest.raises(NotFound, match="experiment 7 has no trial yet"):
        _ = Wired(experiments=experiment()).experiment.verdict


def test_a_handle_prints_also_if_the_master_does_not_know_it() -> None:
    class Gone:
        def experiment(self, number: int) -> None:
            raise NotFound("it is gone")

        def trial(self, number: int) -> None:
            raise NotFound("it is gone")

    gone: Any = Gone()
    assert repr(Experiment(gone, 7)) == "Experiment 7 (it is gone)"
    assert repr(Trial(gone, 3, experiment_of=str)) == "Trial 3 (it is gone)"


def test_a_trial_tells_what_the_master_has_of_it() -> None:
    change = TrialChangeView(id=1, at=0.0, text="lr 0.1 → 0.05", steps_completed=9)
    open_one = TrialChangeView(id=2, at=0.0, text="lr 0.2")
    refused = TrialChangeView(id=3, at=0.0, text="lr 0.3", error="no optimizer")
    _, handle = on_trial(trial(best_metric=0.25, changes=[change, open_one, refused]))
    assert (handle.state, handle.hparams) == ("ACTIVE", {"global_batch_size": 64, "lr": 0.05})
    assert [repr(each) for each in handle.changes()] == [
        "lr 0.1 → 0.05, from batch 9", "lr 0.2, when it trains", "lr 0.3: refused: no optimizer",
    ]  # fmt: skip
    assert [each.steps_completed for each in handle.changes()] == [9, None, None]
    assert handle.profiles() == []
    assert repr(handle) == (
        "Trial 1 (running, batch 58, 43%, best metric 0.2500, global_batch_size=64, lr=0.05)"
    )


def test_orders_of_a_trial_are_one_request() -> None:
    wired, handle = on_trial()
    wired.answers["kill"] = trial()
    handle.kill()
    assert wired.asked == [("POST", "trials/1/kill", {})]
    wired.answers["continue"] = experiment(id=12)
    assert handle.train_to({"epochs": 12}) == "experiment 12"
    method, path, body = wired.asked[-1]
    assert (method, path, body["length"]) == ("POST", "trials/1/continue", {"epochs": 12})


def test_timings_of_all_pages_are_one_table() -> None:
    first = TimingsView(
        id=4,
        first=1,
        records=[8, 8],
        durations_ns={"batch": [10**9, None], "forward": [5 * 10**8, 0]},
    )
    second = TimingsView(
        id=9, first=3, records=[6], durations_ns={"batch": [2 * 10**9], "backward": [10**9]}
    )
    wired, handle = on_trial()
    pages = {"after=0": [first], "after=4": [second], "after=9": []}

    class Paged(dict[str, Any]):
        def get(self, name: str, default: Any = None) -> Any:
            return pages[wired.asked[-1][1].partition("?")[2]]

    wired.answers = Paged()
    assert handle.timings() == {
        "batch_idx": [0, 1, 2],
        "samples_per_second": [8.0, None, 3.0],
        "batch": [1.0, None, 2.0],
        "forward": [0.5, 0.0, None],
        "backward": [None, None, 1.0],
    }
    assert [path for _, path, _ in wired.asked] == [
        "trials/1/timings?after=0", "trials/1/timings?after=4", "trials/1/timings?after=9",
    ]  # fmt: skip


def test_the_verdict_of_a_trial_without_one_says_why() -> None:
    _, handle = on_trial(trial(verdict=LIMITED))
    assert handle.verdict.sentence == "Waits for data."
    off = experiment()
    off.config["profiling"] = {"enabled": False}
    wired, handle = on_trial()
    wired.answers["7"] = off
    assert handle.verdict.sentence == "Not measured: profiling.enabled is false."


@pytest.mark.parametrize(
    ("changes", "heading", "expected"),
    [
        ({}, "What would start it:", ""),
        ({"cause": "leaving"}, "What would end it now:", ""),
        ({"cause": "hangs"}, "What would help:", ""),
        ({"why_unknown": "3 have no length"}, "What would start it:",
         "When it starts is not known: 3 have no length."),
    ],
)  # fmt: skip
def test_a_reason_is_shown_with_what_would_help(
    changes: dict[str, Any], heading: str, expected: str
) -> None:
    remedies = [
        Remedy(verb="wait", text="wait until <3> ends"),
        Remedy(verb="pause", target=[3], text="pause experiment 3"),
    ]
    fields = {"trial_id": 1, "cause": "slots", "sentence": "needs 4 > 2 slots"}
    why = on_trial(reason=Reason.model_validate({**fields, "remedies": remedies, **changes}))[
        1
    ].why()
    head, *rest = str(why).splitlines()
    assert head == "Trial 1: needs 4 > 2 slots"
    shown = [line.strip() for line in rest]
    assert [line for line in shown if line == expected] == [expected] * bool(expected)
    assert shown[bool(expected) :][:3] == [
        heading,
        "• wait until <3> ends",
        "• pause experiment 3",
    ]
    assert any("pause" in line and "3" in line for line in shown[bool(expected) + 3 :])
    page = why._repr_html_()
    assert "<b>Trial 1</b>: needs 4 &gt; 2 slots" in page
    assert (f"<p>{heading}</p><ul><li>wait until &lt;3&gt; ends</li>" in page) is True
    assert (f"<p>{expected}</p>" in page) is bool(expected)
    assert page.count("<code>") == 1


def test_a_reason_without_remedies_is_a_sentence() -> None:
    bare = Reason(trial_id=1, cause="slots", sentence="it waits")
    why = on_trial(reason=bare)[1].why()
    assert repr(why) == "Trial 1: it waits"
    assert why._repr_html_() == "<div><p><b>Trial 1</b>: it waits</p></div>"


@pytest.mark.parametrize("folder", [None, "mine"])
def test_event_files_are_of_the_handle(
    folder: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Any] = []

    def write(client: Any, number: int, trials: Any, place: Path) -> str:
        written.append((number, trials, place))
        return "files"

    monkeypatch.setattr(experiment_module, "write_event_files", write)
    monkeypatch.setattr(trial_module, "write_event_files", write)
    wired, handle = on_trial()
    found: list[Any] = [wired.experiment.tensorboard(folder), handle.tensorboard(folder)]
    assert found == ["files", "files"]
    assert written == [
        (7, None, Path(folder or "tensorboard/experiment-7")),
        (7, [1], Path(folder or "tensorboard/trial-1")),
    ]
