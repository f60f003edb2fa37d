"""The example notebooks about training, run as they are, but one of them for fewer epochs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.notebook_kernel import run_notebook

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("home")]


def test_two_optimizers_a_reducer_and_callbacks(tmp_path: Path, examples: Path) -> None:
    def fewer(source: str) -> str:
        return source.replace("epochs: 12", "epochs: 8")

    _, text = run_notebook(examples / "pytorch_trial.ipynb", tmp_path, fewer)
    told = re.findall(r"^batch (\d+): f1 (\S+) -> (\S+)$", text, re.MULTILINE)
    assert told[0][:2] == ("28", "0.000")  # the last batch of the first epoch of 29
    assert [before for _, before, _ in told[1:]] == [after for _, _, after in told[:-1]]
    by_class = re.findall(r"^(\d)  (0\.\d{3}|1\.000)  #+$", text, re.MULTILINE)
    assert [digit for digit, _ in by_class] == list("0123456789")


@pytest.mark.long
def test_a_scaled_large_batch_reaches_the_small_ones_accuracy(
    tmp_path: Path, examples: Path
) -> None:
    _, text = run_notebook(examples / "large_batch.ipynb", tmp_path)
    rows = re.findall(r"^(256|32)[ \w]*? +(\d+)  ((?: +[01]\.\d\d){10})$", text, re.MULTILINE)
    assert [(batch, steps) for batch, steps, _ in rows] == [
        ("32", "450"),
        ("256", "60"),
        ("256", "60"),
        ("256", "60"),
    ]


def test_experiments_are_found_described_and_taken_out(tmp_path: Path, examples: Path) -> None:
    pytest.importorskip("pandas")
    _, text = run_notebook(examples / "looking_back.ipynb", tmp_path)
    listed = r"^(\d+) +cancer, (?:lr \S+|a search) +Completed +100% +accuracy 0\.\d+"
    ids = {int(found) for found in re.findall(listed, text, re.MULTILINE)}
    search = max(ids)
    assert ids == set(range(search - 3, search + 1))
    assert (
        f"\nExperiment {search} “cancer, a search” (completed, 100%, 4 trials, accuracy " in text
    )
    assert f"Wrote 4 rows, trials of experiment {search}, to search.csv." in text
    assert (tmp_path / "search.csv").exists()


def test_the_better_network_is_registered_loaded_and_given_away(
    tmp_path: Path, examples: Path
) -> None:
    _, text = run_notebook(examples / "model_registry.ipynb", tmp_path)
    assert "is version 2 of model digits; delete that version first" in text
    assert re.search(r"^version 2 reads 9\d\.\d% of the digits$", text, re.MULTILINE)
    assert (tmp_path / "digits-2" / "model.json").exists()


@pytest.mark.long
def test_trials_that_are_made_to_be_limited_say_so(tmp_path: Path, examples: Path) -> None:
    _, text = run_notebook(
        examples / "bottlenecks.ipynb", tmp_path
    )  # it asserts the verdicts itself
    sentences = dict(re.findall(r"^(\w+) +(.*\.)$", text, re.MULTILINE))
    assert "waiting for data" in sentences["input"]
    assert sentences["straggler"].startswith("Rank 1 is a straggler because of its data")
    assert "num_workers=2" in text  # what `diagnose` tried, with what it gained
