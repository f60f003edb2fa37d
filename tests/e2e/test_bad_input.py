"""The wrong thing, typed in a real notebook: one clear message where the user looks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notebook_kernel import Notebook, notebook
from tests.processes import DetHome
from tests.trials import TRIAL_SOURCE

pytestmark = pytest.mark.e2e

GOOD = """%%det_experiment
entrypoint: SmallTrial
hyperparameters: {global_batch_size: 16, pause_s: 0}
searcher: {name: single, metric: error, max_length: {batches: 4}}
resources: {slots_per_trial: 2}
"""
DRY = GOOD.replace("%%det_experiment", "%%det_experiment --dry-run")


@pytest.fixture(scope="module")
def book(home: DetHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """Return a notebook in which the trial is defined; after all mistakes it still trains."""
    with notebook(tmp_path_factory.mktemp("book")) as book:
        book.check("%load_ext det_jupyter")
        book.check(TRIAL_SOURCE)
        train(book)
        book.check("first = experiment")
        yield book
        train(book)


def train(book: Notebook) -> None:
    book.check(GOOD)
    book.check("assert experiment.wait() == 'COMPLETED'")


def message_of(book: Notebook, code: str) -> str:
    outputs = book.run(code)
    shown = outputs.error or outputs.text
    assert shown, f"no message: {outputs}"
    assert "det_jupyter/" not in shown, "our own frames are of no use to the user"
    return shown


def failure_of(book: Notebook, define: str, **changes: str) -> str:
    """Submit a trial that will fail and return what `wait()` shows."""
    book.check(define)
    book.check(variant(**changes))
    return message_of(book, "experiment.wait()")


def variant(old: str = "", new: str = "") -> str:
    return GOOD.replace(old, new) if old else GOOD


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("metric:", "metirc:",
         ["line 4: searcher.metirc: unknown key; did you mean metric?"]),
        ("entrypoint: SmallTrial", "", ["entrypoint: missing"]),
        ("slots_per_trial: 2", "slots_per_trial: two",
         ["line 5: resources.slots_per_trial: got 'two', expected a number"]),
        ("slots_per_trial: 2", "slots_per_trial: 8",
         ["resources.slots_per_trial: got 8", "4"]),
        ("SmallTrial", "SmalTrial",
         ["line 2: entrypoint: 'SmalTrial' is not defined in this notebook", "SmallTrial"]),
        ("SmallTrial", "dataset", ["entrypoint: 'dataset' is of type TensorDataset, expected"]),
        ("{batches: 4}", "{batches: 4", ["line 4: searcher: this is not YAML"]),
        ("{batches: 4}}\nresources: {slots_per_trial: 2}", "{batches: 4}\nresources: 5",
         ["line 4: searcher: this is not YAML", "line 5: resources: got 5"]),
        ("resources:", "entrypoint: SmallTrial\nresources:",
         ["entrypoint: given twice, in lines 2 and 5"]),
        ("resources: {slots_per_trial: 2}", "resources:\n\tslots_per_trial: 2",
         ["line 6: this is not YAML", "indent with spaces"]),
        ("resources: {slots_per_trial: 2}", "data: &x {y: *x}", ["line 5: ", "itself"]),
    ],
)  # fmt: skip
def test_a_wrong_configuration(book: Notebook, old: str, new: str, parts: list[str]) -> None:
    shown = message_of(book, variant(old, new))
    assert "Traceback" not in shown
    for part in parts:
        assert part in shown


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("%det_experiment lst", "invalid choice: 'lst'"),
        ("%det_experiment kill", "required: ID"),
        ("%det_experiment kill seven", "got 'seven', expected the number of an experiment"),
        ("%det_experiment kill 9999", "9999"),
        ("%det_experiment kill first.id",
         "expected the number of an experiment; write {first.id}"),
        ("%det_experiment kill {nothing.id}", "nothing.id is not defined here"),
        ("%det_experiment fork {first.id} --config a.b=1 --config a=2",
         "ConfigError: --config: got a.b=1 and a=2, expected only one of them"),
        ("%det job update-batch 8.weight=[1",
         "ConfigError: 8.weight: got '[1', expected a number above 0"),
        ("%%det_experiment --slotz 2\nname: x", "unrecognized arguments: --slotz"),
        ("%%det_experiment --var class\nname: x", "--var: got 'class', expected a name"),
        ("%det_experiment logs 9999", "9999"),
        ("import det_jupyter; det_jupyter.experiment('x')",
         "NotFound: there is no experiment of the name 'x'; `%det_experiment list` has"),
        (GOOD.replace("SmallTrial", "trials.py:SmallTrial"),
         "line 2: entrypoint: got 'trials.py:SmallTrial', expected the name of a module, a colon "
         "and a name in it; write trials:SmallTrial"),
        (GOOD.replace("%%det_experiment", "%%det_experiment --dry-run --slots 10"),
         "ConfigError: resources.slots_per_trial: got 10, but "),
    ],
)  # fmt: skip
def test_a_wrong_line(book: Notebook, line: str, part: str) -> None:
    shown = message_of(book, line)
    assert part in shown
    assert len(shown.strip().splitlines()) == 1


def test_a_dry_run_knows_what_a_submission_would_be_told(book: Notebook) -> None:
    anyway = GOOD.replace(
        "%%det_experiment", "%%det_experiment --dry-run --queue-anyway --slots 9"
    )
    shown = book.check(anyway.replace("size: 16", "size: 18")).text
    assert "is ready to queue, though it cannot run now: resources.slots_per_trial: got 9" in shown
    assert "is ready to run on 2 slots." in book.check(DRY).text


def test_a_line_of_several_changes_is_told_everything_and_changes_nothing(book: Notebook) -> None:
    book.check(variant("pause_s: 0", "pause_s: 100"))
    shown = message_of(book, "%det job update {experiment.id} --priority 5 --ahead-of 9999")
    assert shown.splitlines() == [
        "ConfigError: --ahead-of: there is no experiment 9999",
        "Nothing is changed.",
        "`%det job list` shows the experiments that are not over.",
    ]
    book.check("assert experiment.view.priority == 42")
    book.check("experiment.kill()")


def test_too_many_slots_are_told_with_all_other_problems(book: Notebook) -> None:
    cell = variant().replace("%%det_experiment", "%%det_experiment --slots 99")
    first, second = message_of(book, cell.replace("metric: error", "metric: ''")).splitlines()[:2]
    assert "line 3: hyperparameters.global_batch_size: got 16" in first
    assert "line 4: searcher.metric" in second
    assert "\nresources.slots_per_trial: got 99" in message_of(book, cell)  # in no line


def test_a_refused_cell_leaves_no_older_handle(book: Notebook) -> None:
    book.check(GOOD)
    book.check("experiment.wait()")
    message_of(book, variant("entrypoint: SmallTrial", "entrypoint: SmalTrial"))
    for use in ("experiment.wait()", "experiment.best_checkpoint()", "len(experiment.trials)"):
        shown = message_of(book, use)
        assert "the cell that was to submit it was refused" in shown
        assert "'SmalTrial' is not defined in this notebook" in shown
    assert "No experiment: the cell" in book.check("experiment").all_text
    wrong = GOOD.replace("%%det_experiment", "%%det_experiment --slots two --var other")
    book.run(wrong)
    assert "--slots" in message_of(book, "other.wait()")
    book.check("other = 5")
    book.run(
        GOOD.replace("%%det_experiment", "%%det_experiment --slots two --var other --dry-run")
    )
    assert book.check("print(other)").text == "5\n"


def test_waiting_too_short_a_time(book: Notebook) -> None:
    book.check(variant("pause_s: 0", "pause_s: 100"))
    shown = message_of(book, "experiment.wait(timeout=0.1)")
    assert "WaitTimeout: experiment " in shown
    assert " and goes on" in shown
    assert len(shown.strip().splitlines()) <= 2  # the bar, the error
    book.check("experiment.kill()")


def test_logs_of_a_trial_that_printed_nothing(book: Notebook) -> None:
    book.check(GOOD)
    book.check("experiment.wait()")
    shown = book.check("get_ipython().run_line_magic('det_experiment', f'logs {experiment.id}')")
    assert "its ranks have printed nothing yet" in shown.text


def test_a_folder_that_is_gone(book: Notebook, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    book.check(f"import os; here = os.getcwd(); os.chdir({str(tmp_path / 'gone')!r})")
    (tmp_path / "gone").rmdir()
    shown = message_of(book, GOOD)
    assert "CaptureError: the folder that this notebook runs in is not there any more" in shown
    book.check("os.chdir(here)")


def test_a_data_folder_that_cannot_be_made(tmp_path: Path) -> None:
    with notebook(tmp_path) as other:
        other.check("import os; os.environ['DET_JUPYTER_HOME'] = '/proc/det'")
        assert "/proc/det" in other.check("%load_ext det_jupyter").text
        other.check(TRIAL_SOURCE)
        shown = message_of(other, GOOD)
        assert "DetError: " in shown
        assert "/proc/det" in shown
        assert len(shown.strip().splitlines()) == 1


def test_a_class_without_its_methods(book: Notebook) -> None:
    book.check("class Empty(PyTorchTrial):\n    def __init__(self, context): pass")
    shown = message_of(book, variant("SmallTrial", "Empty"))
    for method in ("train_batch", "build_training_data_loader", "build_validation_data_loader"):
        assert method in shown


def test_a_class_that_is_no_trial(book: Notebook) -> None:
    book.check("class NoTrial: pass")
    shown = message_of(book, variant("SmallTrial", "NoTrial"))
    assert "NoTrial does not derive from PyTorchTrial" in shown


def test_what_cannot_travel_is_named_with_its_cell(book: Notebook, tmp_path: Path) -> None:
    book.check(
        "import threading, sqlite3\n"
        f"log_file = open({str(tmp_path / 'log')!r}, 'w')\n"
        "guard = threading.Lock()\n"
        "database = sqlite3.connect(':memory:')\n"
        "numbers = (n for n in range(3))"
    )
    book.check(
        "class Greedy(SmallTrial):\n"
        "    def train_batch(self, batch, epoch_idx, batch_idx):\n"
        "        log_file, guard, database, numbers\n"
        "        return super().train_batch(batch, epoch_idx, batch_idx)"
    )
    shown = message_of(book, variant("SmallTrial", "Greedy"))
    for name in ("log_file", "guard", "database", "numbers"):
        assert name in shown
    assert "In [" in shown
    book.check("log_file.close()")


RAISE = "raise ValueError('a wrong idea')"
INIT = "class Failing(SmallTrial):\n    def __init__(self, context):\n        {body}"
TRAIN = (
    "class Failing(SmallTrial):\n"
    "    def train_batch(self, batch, epoch_idx, batch_idx):\n"
    "        {body}\n"
    "        return super().train_batch(batch, epoch_idx, batch_idx)"
)


@pytest.mark.parametrize(
    ("define", "where"),
    [
        (INIT.format(body=RAISE), "__init__"),
        (TRAIN.format(body=f"if self.context.distributed.rank == 1: {RAISE}"),
         "train_batch"),
    ],
    ids=["in __init__", "on one rank only"],
)  # fmt: skip
def test_a_trial_that_raises(book: Notebook, define: str, where: str) -> None:
    shown = failure_of(book, define, old="SmallTrial", new="Failing")
    assert "ValueError: a wrong idea" in shown
    assert "Cell In[" in shown
    assert where in shown
    assert RAISE in shown  # the source line


def test_a_searcher_metric_that_the_trial_never_reports(book: Notebook) -> None:
    shown = message_of(book, variant("metric: error", "metric: accuracy"))
    assert "line 4: searcher.metric" in shown
    assert "accuracy" in shown
    assert "error" in shown


def test_a_metric_that_only_the_run_can_tell_is_missing(book: Notebook) -> None:
    hidden = (
        "class Hidden(SmallTrial):\n"
        "    def evaluate_batch(self, batch, batch_idx):\n"
        "        return dict(super().evaluate_batch(batch, batch_idx))"
    )
    book.check(hidden)
    config = variant("SmallTrial", "Hidden").replace("metric: error", "metric: accuracy")
    book.check(config)
    shown = message_of(book, "experiment.wait()")
    assert "searcher.metric" in shown
    assert "error" in shown


def test_help_and_completion(book: Notebook) -> None:
    line_help = book.check("%det_experiment --help").text
    assert "logs" in line_help
    assert "--allow-large" in line_help
    assert "  %%det_experiment --slots 2 " in line_help
    assert "%%%" not in line_help
    assert "--dry-run" in book.check("%%det_experiment --help\nx").text
    assert set(book.complete("%det_experiment pa")) == {"pause"}
    assert "--allow-large" in book.complete("%%det_experiment --al")
    assert book.complete("%%det_experiment\nresou") == ["resources: "]
    assert book.complete("%%det_experiment\nresources: {slo") == ["slots_per_trial: "]
    assert "print" in book.complete("pri")


def test_a_dry_run_lists_what_would_travel_and_submits_nothing(book: Notebook) -> None:
    before = book.check("%det_experiment list").text
    shown = book.check(DRY).text
    assert "dataset" in shown
    assert "SmallTrial" in shown
    assert book.check("%det_experiment list").text == before
