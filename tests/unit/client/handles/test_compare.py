"""Comparisons of experiments and trials: data, text, HTML, and errors."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from det_jupyter.client import Client, Comparison, Experiment
from det_jupyter.contract.messages import Curve, ExperimentView, State
from det_jupyter.errors import NotFound, UsageError
from det_jupyter.front.notebook.complete.magic_parsers import line_parser
from det_jupyter.front.verbs.grammar import Call, parse
from det_jupyter.view.making.comparison_view import MAX_SIDES
from tests.unit.view.view_samples import (
    CREATED_AT,
    capsule,
    curve,
    digits_curves,
    experiment,
    trial,
)

CELL = "class Digits:\n    width = 64\n    depth = 2\n"


class Master:
    """Answers as the master does about some experiments."""

    def __init__(self, *views: ExperimentView) -> None:
        self.views = {view.id: view for view in views}
        self.metrics: dict[int, Sequence[Curve]] = {}
        self.sources: dict[int, dict[str, str]] = {}

    def experiment(self, number: int) -> ExperimentView:
        if number not in self.views:
            raise NotFound(f"there is no experiment {number}")
        return self.views[number]

    def curves(self, number: int, *, max_points: int) -> Sequence[Curve]:
        return self.metrics.get(number, digits_curves(66))

    def code(self, number: int) -> dict[str, str]:
        return self.sources.get(number, {})


def ended(number: int, best: float | None = 0.9, **changes: Any) -> ExperimentView:
    facts = {"state": State.COMPLETED, "ended_at": CREATED_AT + 60, "allocation": None}
    own = trial(experiment_id=number, best_metric=best, slot_seconds=7200.0, **facts)
    fields = {"id": number, "state": State.COMPLETED, "ended_at": CREATED_AT + 60}
    return experiment(own, **{**fields, **changes})


def search(num_trials: int, **changes: Any) -> ExperimentView:
    trials = [
        trial(id=i, best_metric=i / 1000, hparams={"lr": i / 10, "depth": 2}, seed=i)
        for i in range(1, num_trials + 1)
    ]
    return experiment(*trials, **changes)


def compare(master: Master, *numbers: int) -> Comparison:
    return handle(master, numbers[0]).compare(*numbers[1:])


def handle(master: Master, number: int) -> Experiment:
    return Experiment(cast(Client, master), number)


def facts_of(comparison: Comparison, title: str) -> dict[str, list[str]]:
    [table] = [table for table in comparison.state["tables"] if table["title"] == title]
    return {fact["name"]: fact["values"] for fact in table["facts"]}


def test_only_what_differs_is_listed_by_dotted_keys() -> None:
    wider, config = ended(7), ended(3).config
    wider.config = {**config, "resources": {"slots_per_trial": 4}}
    wider.trials[0].hparams = {"global_batch_size": 64, "optimizer": {"lr": 0.1}}
    found = compare(Master(ended(3), wider), 3, 7)
    assert found.configuration == {"resources.slots_per_trial": [None, 4]}
    assert found.hyperparameters == {"lr": [0.05, None], "optimizer.lr": [None, 0.1]}
    assert facts_of(found, "Hyperparameters")["optimizer.lr"] == ["-", "0.1"]


def test_a_hyperparameters_value_is_listed_once_and_its_range_in_the_configuration() -> None:
    one, other = ended(3), ended(7)
    one.config = {**one.config, "hyperparameters": {"lr": 0.05}}
    other.config = {**one.config, "hyperparameters": {"lr": 0.1}}
    assert compare(Master(one, other), 3, 7).configuration == {}
    space = {"type": "log", "minval": -4, "maxval": -1}
    other.config = {**one.config, "hyperparameters": {"lr": space}}
    found = compare(Master(one, other), 3, 7)
    assert found.configuration == {"hyperparameters.lr": [0.05, space]}


def test_results_have_metric_time_and_slot_hours_with_the_best_marked() -> None:
    found = compare(Master(ended(3, 0.9), ended(7, 0.95)), 3, 7)
    assert [row["best"] for row in found.summary] == [0.9, 0.95]
    assert [(row["time_s"], row["slot_hours"]) for row in found.summary] == [(60.0, 2.0)] * 2
    facts = facts_of(found, "Results")
    assert facts["best accuracy"] == ["0.9000", "0.9500"]
    assert facts["slot-hours"] == ["2", "2"]
    [best] = [f for f in found.state["tables"][0]["facts"] if f["name"] == "best accuracy"]
    assert best["best"] == [1]


def test_states_are_those_that_lists_have_for_programs() -> None:
    waiting = ended(7)
    waiting.state = waiting.trials[0].state = State.ACTIVE
    waiting.trials[0].allocation = None
    rows = compare(Master(ended(3), waiting), 3, 7).summary
    assert [row["state"] for row in rows] == ["COMPLETED", "QUEUED"]


def test_curves_of_one_metric_share_a_chart_and_look_alike_in_all() -> None:
    found = compare(Master(ended(3), ended(7)), 3, 7)
    charts = {chart["title"]: chart["series"] for chart in found.state["charts"]}
    assert list(charts) == ["accuracy", "loss", "validation_loss"]
    for series in charts.values():
        assert [(one["trial_id"], one["look"]) for one in series] == [(3, 0), (7, 1)]
    assert charts["loss"][0]["steps_per_epoch"] == 1437 / 64


def test_a_cell_is_compared_with_its_newer_version_and_a_module_by_its_path() -> None:
    master = Master(ended(3), ended(7))
    master.sources = {
        3: {"Cell In[2]": "import torch\n", "Cell In[3]": CELL, "nets.py": "WIDTH = 1\n"},
        7: {
            "Cell In[1]": "import torch\n",
            "Cell In[9]": CELL.replace("64", "128"),
            "nets.py": "WIDTH = 2\n",
            "more.py": "X = 1\n",
        },
    }
    found = compare(master, 3, 7)
    names = [one["name"] for one in found.state["code"]]
    assert names == ["Cell In[3] → Cell In[9]", "nets.py", "more.py"]
    diff = found.code_diff()
    assert "-    width = 64\n+    width = 128" in diff
    assert "# 3 digits → 7 digits\n--- /dev/null\n+++ more.py" in diff


def test_versions_of_python_and_packages_are_compared() -> None:
    old = ended(3, capsule=capsule(packages={"Python": "3.11.2", "torch": "2.8.0"}))
    new = ended(7, capsule=capsule(packages={"Python": "3.12.1", "torch": "2.8.0"}))
    assert compare(Master(old, new), 3, 7).versions == {"Python": ["3.11.2", "3.12.1"]}


def test_equal_experiments_are_said_to_be_equal() -> None:
    text = repr(compare(Master(ended(3), ended(7)), 3, 7))
    assert "Hyperparameters: All hyperparameters are equal." in text
    assert "The code of these experiments is the same." in text


def test_a_search_is_compared_by_its_best_trial_and_that_is_said() -> None:
    found = compare(Master(ended(3), search(5, id=7)), 3, 7)
    assert found.state["sides"][1]["note"] == "trial 5, the best of 5"
    assert found.state["notes"][:2] == [
        "Experiment 7 is compared by trial 5, the best of 5.",
        "No metrics were reported by 7 digits.",
    ]
    assert found.hyperparameters["lr"] == [0.05, 0.5]


def test_different_metrics_are_named() -> None:
    other = ended(7)
    other.config = {**other.config, "searcher": {**other.config["searcher"], "metric": "loss"}}
    found = compare(Master(ended(3), other), 3, 7)
    assert "differ: accuracy (3), loss (7)." in found.state["notes"][0]
    assert facts_of(found, "Results")["best accuracy"] == ["0.9000", "-"]
    assert facts_of(found, "Results")["best loss"] == ["-", "0.9000"]


def test_experiments_without_metrics_are_compared_all_the_same() -> None:
    master = Master(ended(3, None), ended(7, None))
    master.metrics = {3: [], 7: []}
    found = compare(master, 3, 7)
    assert found.state["charts"] == []
    assert "No metrics were reported." in found._repr_html_()
    assert found.summary[0]["best"] is None


def test_an_experiment_without_a_trial_is_compared_by_its_configuration() -> None:
    found = compare(Master(ended(3), experiment(id=7)), 3, 7)
    assert found.hyperparameters == {"global_batch_size": [64, None], "lr": [0.05, None]}


@pytest.mark.parametrize(
    ("numbers", "error", "message"),
    [
        ([3], UsageError, "got experiment 3 alone, expected two experiments or more"),
        ([3, 7, 3], UsageError, "got experiment 3 twice, expected different experiments"),
        ([3, 99], NotFound, "there is no experiment 99"),
        ([3, "7"], UsageError, "got '7', expected the number of an experiment"),
        (list(range(1, 12)), UsageError, "got 11 experiments, expected at most 8"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    numbers: list[Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        compare(Master(ended(3), ended(7)), *numbers)


def test_trials_of_a_search_are_compared_in_the_order_given() -> None:
    with pytest.raises(UsageError, match="got 'x', expected the number of a trial"):
        handle(Master(search(5, id=7)), 7).compare_trials("x", 2)  # type: ignore[arg-type]
    found = handle(Master(search(5, id=7)), 7).compare_trials(4, 2)
    assert found.state["title"] == "Trials 4 and 2 of experiment 7"
    assert found.hyperparameters == {"lr": [0.4, 0.2]}
    assert [table["title"] for table in found.state["tables"]] == ["Results", "Hyperparameters"]


def test_the_row_of_a_trial_has_its_own_state_and_that_of_an_experiment_the_experiments() -> None:
    master = Master(search(5, id=7, state=State.COMPLETED), ended(3))
    rows = handle(master, 7).compare_trials(4, 2).summary
    assert [(row["trial"], row["state"]) for row in rows] == [(4, "RUNNING"), (2, "RUNNING")]
    assert [row["state"] for row in compare(master, 7, 3).summary] == ["COMPLETED", "COMPLETED"]


def test_all_trials_of_a_small_search_are_compared_best_first() -> None:
    found = handle(Master(search(5, id=7)), 7).compare_trials()
    assert [side["id"] for side in found.state["sides"]] == [5, 4, 3, 2, 1]
    assert not any("are compared" in note for note in found.state["notes"])


@pytest.mark.parametrize("chosen", [(), tuple(range(1, 501))])
def test_of_many_trials_the_best_are_compared_and_that_is_said(chosen: tuple[int, ...]) -> None:
    found = handle(Master(search(500, id=7)), 7).compare_trials(*chosen)
    assert [side["id"] for side in found.state["sides"]] == list(range(500, 500 - MAX_SIDES, -1))
    assert found.state["notes"][0] == "The best 8 of 500 trials are compared."


@pytest.mark.parametrize(
    ("run", "error", "message"),
    [
        (lambda e: e.compare_trials(1, 99), NotFound, "no trial 99; its trials: 1 to 5"),
        (lambda e: e.compare_trials(1), UsageError, "got trial 1 alone"),
        (lambda e: e.compare_trials(1, 1), UsageError, "got trial 1 twice"),
    ],
)
def test_trials_that_cannot_be_compared_are_refused(
    run: Callable[[Experiment], Comparison], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(handle(Master(search(5, id=7)), 7))


def test_the_only_trial_of_an_experiment_is_not_compared_with_itself() -> None:
    with pytest.raises(UsageError, match=r"has 1 trial, expected two or more; .*compare\(3"):
        handle(Master(ended(3)), 3).compare_trials()


def test_long_code_is_cut_in_the_view_and_whole_as_data() -> None:
    master = Master(ended(3), ended(7), ended(8))
    added = {f"nets/n{i}.py": "\n".join(f"line_{j} = {i}" for j in range(4000)) for i in range(4)}
    master.sources = {7: added, 8: {"nets/last.py": "one = 1"}}
    found = compare(master, 3, 7, 8)
    assert len(found._repr_html_()) < 400_000
    assert [one["lines"][-1] for one in found.state["code"]][2:] == [
        "… 4,003 more lines: code_diff() has all",
        "… 4,003 more lines: code_diff() has all",
        "… 4 more lines: code_diff() has all",
    ]
    whole = found.code_diff().splitlines()
    assert "+line_3999 = 3" in whole
    assert "+one = 1" in whole


def test_names_and_code_never_become_markup() -> None:
    hostile = "<script>alert(1)</script>\x1b[31m"
    master = Master(ended(3, name=hostile), ended(7))
    master.metrics = {7: [curve("validation", hostile, [1.0])]}
    master.sources = {3: {"a.py": hostile}, 7: {"a.py": "x"}}
    found = compare(master, 3, 7)
    page = found._repr_html_()
    assert "<script" not in page
    assert html.escape("<script>") in page
    assert "\x1b" not in repr(found) + page


def test_an_unended_trial_counts_its_slots_until_now() -> None:
    views = [ended(3), experiment(trial(), id=7)]
    slot_hours = compare(Master(*views), 3, 7).summary[1]["slot_hours"]
    assert slot_hours is not None
    assert slot_hours > 0


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("compare 3 7", "Experiments 3 and 7"),
        ("compare 7 --trials 4 2", "Trials 4 and 2 of experiment 7"),
        ("compare 7 --trials 2 4", "Trials 2 and 4 of experiment 7"),
        ("compare 7 --trials", "Trials 5, 4, 3, 2 and 1 of experiment 7"),
    ],
)
def test_a_line_compares_experiments_or_trials(line: str, title: str) -> None:
    answer = run(line, Master(ended(3), search(5, id=7)))
    assert answer.state["title"] == title


def test_a_line_compares_trials_of_one_experiment_only() -> None:
    with pytest.raises(UsageError, match="--trials takes one experiment"):
        run("compare 3 7 --trials 1 2", Master(ended(3), ended(7)))


def run(line: str, master: Master) -> Comparison:
    options = parse(line_parser(), line)
    client = cast(Client, master)
    call = Call(options=options, client=client, experiment=lambda number: handle(master, number))
    answer = options.verb.run(call)
    assert isinstance(answer, Comparison)
    return answer


def test_a_frame_has_a_row_for_each_with_what_differs() -> None:
    pytest.importorskip("pandas")
    frame = compare(Master(ended(3), search(5, id=7)), 3, 7).to_frame()
    assert list(frame["lr"]) == [0.05, 0.5]
    assert list(frame["id"]) == [3, 7]


def test_those_that_go_on_are_named_with_the_time() -> None:
    notes = compare(Master(ended(3), experiment(trial(), id=7)), 3, 7).state["notes"]
    [note] = [note for note in notes if note.startswith("As of ")]
    assert note.endswith(": 7 digits has not ended.")
    assert compare(Master(ended(3), ended(7)), 3, 7).state["notes"] == []


@pytest.mark.parametrize(
    ("bests", "smaller_is_better", "marked"),
    [
        ((0.9, 0.95), (False, False), [1]),
        ((0.9, 0.95), (True, True), [0]),
        ((0.9, 0.9), (True, True), [0, 1]),
        ((0.9, None), (True, True), []),
        ((0.9, 0.95), (True, False), []),
    ],
)
def test_the_best_is_marked_where_experiments_agree_on_what_is_better(
    bests: tuple[float, float | None], smaller_is_better: tuple[bool, bool], marked: list[int]
) -> None:
    views = [ended(number, best) for number, best in zip((3, 7), bests, strict=True)]
    for view, smaller in zip(views, smaller_is_better, strict=True):
        searcher = {**view.config["searcher"], "smaller_is_better": smaller}
        view.config = {**view.config, "searcher": searcher}
    facts = compare(Master(*views), 3, 7).state["tables"][0]["facts"]
    assert [fact["best"] for fact in facts if fact["name"] == "best accuracy"] == [marked]
