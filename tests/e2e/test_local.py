"""`%%det_experiment --local`: a few batches in the notebook's own kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.notebook_kernel import Notebook, notebook
from tests.processes import DetHome
from tests.trials import TRIAL_SOURCE

pytestmark = pytest.mark.e2e

CELL = """%%det_experiment {options}
entrypoint: SmallTrial
hyperparameters: {{global_batch_size: {batch}, pause_s: 0}}
searcher: {{name: single, metric: {metric}, max_length: {{epochs: 100}}}}
resources: {{slots_per_trial: 2}}
"""


@pytest.fixture(scope="module")
def book(home: DetHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """Return a notebook in which the trial is defined."""
    with notebook(tmp_path_factory.mktemp("book")) as book:
        book.check("%load_ext det_jupyter")
        book.check(TRIAL_SOURCE)
        home.client().session.close()  # the master is up: one that is just starting would stay
        yield book


def cell(options: str = "--local", batch: int = 16, metric: str = "error") -> str:
    return CELL.format(options=options, batch=batch, metric=metric)


def test_a_few_batches_run_right_here(book: Notebook) -> None:
    shown = book.check(cell("--local 3")).all_text
    assert "batch 3  training    loss" in shown
    assert "batch 3  validation  error" in shown
    assert "3 batches, their validation and a checkpoint worked in" in shown
    assert "<__main__.SmallTrial at" in shown
    assert book.check("print(next(_.model.parameters()).shape)").text == "torch.Size([16, 8])\n"


def test_what_is_wrong_is_told_before_and_the_users_own_errors_as_they_are(
    book: Notebook,
) -> None:
    refused = book.run(cell(metric="loss"))
    assert refused.error is not None
    assert "searcher.metric: the trial reports error; got 'loss'" in refused.error
    book.check("def broken(self, *args): return {'loss': 1 / (args[2] - 2)}")
    book.check("SmallTrial.train_batch = broken")
    failed = book.run(cell())
    assert failed.error is not None
    assert "ZeroDivisionError" in failed.error
    plain = re.sub(r"\x1b\[[0-9;]*m", "", failed.error)
    assert "args[2] - 2" in plain  # the user's own line, for %debug
    wrong = book.run(cell("--local none")).text
    assert "got 'none', expected a whole number, 1 or more" in wrong
