"""Searches in the notebook: ranking, progress, previews, drafts with templates."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.client.handle_text import ranked
from det_jupyter.client.submitting.drafts import located
from det_jupyter.config import read_yaml
from det_jupyter.contract.messages import (
    AllocationState,
    ChangeSearch,
    ContinueTrial,
    ExperimentView,
    KillTrial,
    Pace,
    PlannedBracket,
    PlannedRange,
    PlannedTrials,
    PreviewView,
    SearchView,
    State,
    TrialView,
)
from det_jupyter.contract.values.lengths import Length
from det_jupyter.errors import ConfigError, Conflict, DetError, NotFound, Problem
from det_jupyter.front.notebook.complete.magic_parsers import det_parser, line_parser
from det_jupyter.front.notebook.handles import connection, experiment_handles, progress
from det_jupyter.front.notebook.magics import run_line
from det_jupyter.front.notebook.submit.preview_and_local import displayed_preview
from det_jupyter.front.verbs.grammar import parse
from det_jupyter.front.verbs.showing import trials_listing
from tests.unit.client.documents_fake import FakeDocuments, state_of
from tests.unit.view.view_samples import allocation, experiment, trial

NOON = datetime(2026, 1, 5, 12, 0).timestamp()


def searched(*trials: TrialView, smaller_is_better: bool = True, **changes: Any) -> ExperimentView:
    searcher = {
        "name": "random", "metric": "error", "smaller_is_better": smaller_is_better,
        "max_trials": 16, "max_length": {"epochs": 4}, "max_concurrent_trials": 4,
    }  # fmt: skip
    config = {"searcher": searcher, "name": "digits"}
    search = SearchView(name="random", max_trials=16, num_created=len(trials), num_closed=3)
    return experiment(*trials, config=config, search=search, **changes)


def sample(trial_id: int, best: float | None = None, **changes: Any) -> TrialView:
    fields = {"state": State.COMPLETED, "allocation": None, "best_metric": best}
    hparams = {"global_batch_size": 64, "lr": trial_id / 100, "optimizer": {"depth": trial_id}}
    return trial(id=trial_id, hparams=hparams, **fields | changes)


class Master:
    """Answers with one view, and remembers what it was asked for."""

    def __init__(self, view: ExperimentView) -> None:
        self.view = view
        self.asked: list[Any] = []

    def experiment(self, experiment_id: int) -> ExperimentView:
        return self.view

    def change(self, request: ChangeSearch | KillTrial) -> ExperimentView:
        self.asked.append(request)
        return self.view

    def continue_trial(self, trial_id: int, request: ContinueTrial) -> ExperimentView:
        self.asked.append((trial_id, request.length))
        return self.view.model_copy(update={"id": 8})


def handle_on(view: ExperimentView) -> tuple[Experiment, Master]:
    master = Master(view)
    return Experiment(cast("Client", master), view.id), master


@pytest.mark.parametrize(("smaller_is_better", "order"), [(True, [2, 1, 3, 4]),
                                                          (False, [1, 2, 3, 4])])  # fmt: skip
def test_trials_are_ranked_and_the_unmeasured_come_last(
    smaller_is_better: bool, order: list[int]
) -> None:
    trials = [sample(1, 0.5), sample(2, 0.2), sample(3, math.nan), sample(4)]
    view = searched(*trials, smaller_is_better=smaller_is_better)
    assert [t.id for t in ranked(view)] == order
    found, _ = handle_on(view)
    assert [t.id for t in found.ranking()] == order
    assert found.best_trial().id == order[0]


def test_the_best_result_is_a_value_with_its_hyperparameters() -> None:
    found, _ = handle_on(searched(sample(1, 0.5), sample(2, 0.25)))
    best = found.best
    assert (best.metric, best.hparams["lr"], best.trial.id) == (0.25, 0.02, 2)
    assert repr(best) == "error 0.2500 with lr=0.02, optimizer.depth=2 (trial 2)"
    with pytest.raises(NotFound, match="experiment 7: no trial has reported error yet"):
        _ = handle_on(searched(sample(1)))[0].best


def drawn(*trials: TrialView) -> Experiment:
    documents = FakeDocuments(experiment=[state_of(searched(*trials))])
    return Experiment(documents.client, 7)


def test_a_search_is_drawn_and_its_picture_is_saved(tmp_path: Path) -> None:
    picture = drawn(sample(1, 0.5), sample(2, 0.25), sample(3)).plot()
    words = "lr, optimizer.depth and error of 2 trials"
    assert repr(picture) == f'{words}; .save("search.svg") writes the picture'
    assert picture._repr_html_().startswith("<img ")
    assert f'alt="{words}"' in picture._repr_html_()
    file = picture.save(tmp_path / "search.svg")
    assert ElementTree.parse(file).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    with pytest.raises(DetError, match=r"a file that ends in \.svg"):
        picture.save(tmp_path / "search.png")
    with pytest.raises(DetError, match="cannot be written: No such file or directory"):
        picture.save(tmp_path / "none" / "search.svg")


def test_what_is_no_search_or_has_no_result_is_not_drawn() -> None:
    with pytest.raises(NotFound, match="no trial has reported error yet, or no hyperparameter"):
        drawn(sample(1)).plot()
    single = FakeDocuments(experiment=[state_of(experiment(trial()))])
    with pytest.raises(Conflict, match="experiment 7 is no search"):
        Experiment(single.client, 7).plot()


def test_without_a_value_there_is_no_best_trial() -> None:
    found, _ = handle_on(searched(sample(1)))
    with pytest.raises(NotFound, match="experiment 7: no trial has reported error yet"):
        found.best_trial()


def test_the_table_of_trials_has_the_hyperparameters_that_differ() -> None:
    trials = [
        sample(1, 0.5),
        sample(2, 0.25, was_stopped=True),
        sample(3, state=State.ACTIVE, allocation=allocation()),
        sample(4, state=State.ACTIVE, is_resting=True),
        sample(5, state=State.ACTIVE, allocation=allocation(AllocationState.QUEUED)),
    ]
    assert trials_listing(searched(*trials)).text().splitlines() == [
        "Experiment 7 “digits”: running",
        "trial  state          error  latest  batches  lr    optimizer.depth",
        "2      stopped early  0.25   -       58       0.02  2",
        "1      completed      0.5    -       58       0.01  1",
        "3      running        -      -       58       0.03  3",
        "4      resting        -      -       58       0.04  4",
        "5      queued         -      -       58       0.05  5",
    ]


def test_the_bar_of_a_search_counts_trials_and_names_the_best() -> None:
    trials = [
        sample(1, 0.5),
        sample(2, 0.25),
        sample(3, state=State.ACTIVE, allocation=allocation()),
        sample(4, state=State.ACTIVE, is_resting=True),
    ]
    fields = progress._fields(state_of(searched(*trials)))
    assert fields == {
        "n": 2, "total": 16, "unit": "trials", "prefix": "digits",
        "postfix": "best error=0.25 (trial 2), 1 running, 1 resting",
    }  # fmt: skip


def test_a_search_is_changed_in_one_request() -> None:
    found, master = handle_on(searched(sample(1)))
    found.change_search(max_trials=50, max_length={"epochs": 12})
    longer = Length("epochs", 12)
    assert master.asked == [ChangeSearch(experiment_id=7, max_trials=50, max_length=longer)]
    with pytest.raises(ConfigError, match="nothing to change: give max_trials"):
        found.change_search()


def test_a_trial_is_trained_on_as_an_experiment_of_its_own() -> None:
    found, master = handle_on(searched(sample(1, 0.5), sample(2, 0.2)))
    assert found.train_to_the_end().id == 8
    assert found.trials[0].train_to({"epochs": 12}).id == 8
    found.trials[0].kill()
    assert master.asked == [(2, None), (1, {"epochs": 12}), KillTrial(trial_id=1)]


def test_the_line_changes_a_search(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found, master = handle_on(searched(sample(1)))
    monkeypatch.setattr(connection, "client", lambda: master)
    monkeypatch.setattr(experiment_handles, "experiment", lambda experiment_id: found)
    line = 'change 7 --max-trials 50 --max-length "{epochs: 12}" --max-concurrent 4'
    run_line(line_parser(), line)
    longer = Length("epochs", 12)
    assert master.asked == [
        ChangeSearch(experiment_id=7, max_trials=50, max_length=longer, max_concurrent_trials=4)
    ]
    assert capsys.readouterr().out == (
        "Experiment 7 “digits”: random, 16 trials, to 4 epochs, 4 at once\n"
    )


def test_template_words_have_short_names() -> None:
    options = parse(det_parser(), "tpl list --detail")
    assert (options.words, options.detail) == ("%det template list", True)
    assert parse(det_parser(), "template remove x").name == "x"


def planned(**counts: int) -> list[PlannedTrials]:
    return [PlannedTrials(length={"batches": int(k[1:])}, num_trials=n) for k, n in counts.items()]


def preview_of(**changes: Any) -> PreviewView:
    fields: dict[str, Any] = {
        "searcher": "adaptive_asha", "metric": "error", "unit": "batches", "num_trials": 16,
        "trials": planned(b58=9, b234=5, b937=2),
        "brackets": [
            PlannedBracket(trials=planned(b58=9, b234=2, b937=1)),
            PlannedBracket(trials=planned(b234=3, b937=1)),
        ],
        "expected": 3566.0, "least": 3000.0, "most": 5000.0, "full": 14_992.0,
        "slots": 4, "concurrent": 2,
        "no_pace": "no trial of DigitsTrial has trained here yet; give --seconds-per-batch",
    }  # fmt: skip
    return PreviewView(**fields | changes)


def test_a_preview_says_who_trains_how_long() -> None:
    assert repr(displayed_preview(preview_of(), NOON)).splitlines() == [
        "adaptive_asha: 16 trials, judged by error",
        "",
        "train for    trials that end there  bracket 1  bracket 2",
        "58 batches   9                      9          0",
        "234 batches  5                      2          3",
        "937 batches  2                      1          1",
        "",
        "Training in all: 3,566 batches (least 3,000, most 5,000); "
        "24% of training every trial to the end.",
        "How long it takes is not known: no trial of DigitsTrial has trained here yet; "
        "give --seconds-per-batch.",
    ]


def test_a_preview_shows_the_ranges_and_what_the_first_trials_get() -> None:
    ranges = [PlannedRange(name="lr", range="0.0001 to 0.1", samples=["0.02", "<3>"])]
    shown = displayed_preview(preview_of(ranges=ranges), NOON)
    assert repr(shown).splitlines()[2:4] == [
        "hyperparameter  range          such as",
        "lr              0.0001 to 0.1  0.02, <3>",
    ]
    assert '<td style="text-align:left">0.02, &lt;3&gt;</td>' in shown._repr_html_()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1800.0, "about 30 min, done about 12:30"),
     (86_400.0 * 3, "about 3 days, done about Jan 8, 12:00")],
)  # fmt: skip
def test_a_preview_with_a_pace_says_when_it_is_done(seconds: float, words: str) -> None:
    pace = Pace(unit="batches", seconds_per_unit=0.02, source="measured in experiment 12")
    text = repr(displayed_preview(preview_of(pace=pace, seconds=seconds), NOON))
    assert text.splitlines()[-1] == (
        f"On 4 slots, 2 trials at once: {words} (0.02 s a batch, measured in experiment 12)."
    )


def test_a_preview_shows_its_brackets_as_a_picture() -> None:
    page = displayed_preview(preview_of(metric="<b>"), NOON)._repr_html_()
    assert page.count("<rect") == 5
    assert "16 trials, judged by &lt;b&gt;" in page
    flat = preview_of(trials=planned(b58=3), brackets=[PlannedBracket(trials=planned(b58=3))])
    assert "<svg" not in displayed_preview(flat, NOON)._repr_html_()


def test_problems_name_their_line_or_their_template() -> None:
    text = "\nresources: {priority: 3}\nlabels:\n- a\n"
    template = {"resources": {"slots_per_trial": "two"}, "searcher": {"name": "random"}}
    problems = [
        Problem("labels[0]", "got 'a', expected b"),
        Problem("resources.slots_per_trial", "got 'two', expected a number"),
        Problem.missing("resources.weight", ""),
        Problem.missing("searcher.max_trials", ""),
        Problem.missing("entrypoint", ""),
    ]
    found = located(problems, read_yaml(text), None, "base", template)
    assert str(found).splitlines() == [
        "resources.slots_per_trial: got 'two', expected a number (from template base)",
        "line 4: labels[0]: got 'a', expected b",
        "searcher.max_trials: missing (from template base)",
        "line 2: resources.weight: missing",
        "entrypoint: missing",
    ]
