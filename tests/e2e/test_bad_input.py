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


@pytest.fixture(scope="module")
def book(home: DetHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """Return a notebook in which the trial is defined; it stays usable through all mistakes."""
    with notebook(tmp_path_factory.mktemp("book")) as book:
        book.check("%load_ext det_jupyter")
        book.check(TRIAL_SOURCE)
        yield book


@pytest.fixture(autouse=True)
def _nothing_is_harmed(book: Notebook) -> Iterator[None]:
    yield
    book.check(GOOD)
    book.check("assert experiment.wait(60) == 'COMPLETED'")


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
    return message_of(book, "experiment.wait(60)")


def variant(old: str = "", new: str = "") -> str:
    return GOOD.replace(old, new) if old else GOOD


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("metric:", "metirc:",
         ["line 4: searcher.metirc: unknown key; did you mean metric?",
          "line 4: searcher.metric: missing"]),
        ("entrypoint: SmallTrial", "", ["entrypoint: missing"]),
        ("slots_per_trial: 2", "slots_per_trial: two",
         ["line 5: resources.slots_per_trial: got 'two', expected a number"]),
        ("slots_per_trial: 2", "slots_per_trial: 8",
         ["resources.slots_per_trial: got 8", "4"]),
        ("SmallTrial", "SmalTrial",
         ["line 2: entrypoint: 'SmalTrial' is not defined in this notebook", "SmallTrial"]),
        ("SmallTrial", "dataset", ["entrypoint: 'dataset' is a TensorDataset, expected a class"]),
        ("{batches: 4}", "{batches: 4", ["line ", "this is not YAML"]),
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
        ("%det_experiment kill", "required: id"),
        ("%det_experiment kill seven", "got 'seven', expected the number of an experiment"),
        ("%det_experiment kill 9999", "9999"),
        ("%%det_experiment --slotz 2\nname: x", "unrecognized arguments: --slotz"),
    ],
)
def test_a_wrong_line(book: Notebook, line: str, part: str) -> None:
    shown = message_of(book, line)
    assert part in shown
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
        (TRAIN.format(body=RAISE), "train_batch"),
        (TRAIN.format(body=f"if self.context.distributed.rank == 1: {RAISE}"),
         "train_batch"),
    ],
    ids=["in __init__", "in train_batch", "on one rank only"],
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
    shown = message_of(book, "experiment.wait(60)")
    assert "searcher.metric" in shown
    assert "error" in shown


def test_help_and_completion(book: Notebook) -> None:
    assert "logs" in book.check("%det_experiment --help").text
    assert "--dry-run" in book.check("%%det_experiment --help\nx").text
    assert set(book.complete("%det_experiment pa")) == {"pause"}
    assert "--allow-large" in book.complete("%%det_experiment --al")
    assert book.complete("%%det_experiment\nresou") == ["resources: "]
    assert book.complete("%%det_experiment\nresources: {slo") == ["slots_per_trial: "]
    assert "print" in book.complete("pri")


def test_a_dry_run_lists_what_would_travel_and_submits_nothing(book: Notebook) -> None:
    before = book.check("%det_experiment list").text
    shown = book.check(GOOD.replace("%%det_experiment", "%%det_experiment --dry-run")).text
    assert "dataset" in shown
    assert "SmallTrial" in shown
    assert book.check("%det_experiment list").text == before
