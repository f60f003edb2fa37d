"""The example notebooks with trainers of other libraries, run as they are.

Only by `make test-integrations`: each of their runs imports such a library, which takes seconds,
and tests/e2e/test_lightning.py and test_transformers.py train with them too.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.notebook_kernel import run_notebook

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.usefixtures("home"),
    pytest.mark.skipif(find_spec("keras") is None, reason="not an environment of all trainers"),
]


def test_a_trainer_of_lightning_is_paused_searched_and_loaded(
    tmp_path: Path, examples: Path
) -> None:
    _, text = run_notebook(examples / "lightning.ipynb", tmp_path)
    at_rest = re.search(r"^paused after (\d+) steps$", text, re.MULTILINE)
    assert at_rest is not None
    curve = re.findall(r"^step +(\d+)  [01]\.\d{3}  #* *(\(paused\))?$", text, re.MULTILINE)
    assert [int(step) for step, _ in curve] == [30 * epoch for epoch in range(1, 7)]
    assert [step for step, pause in curve if pause] == [at_rest[1]]
    assert re.search(
        r"^width \d+, lr 0\.\d+: 0\.\d{3} of the digits are right$", text, re.MULTILINE
    )


def test_a_search_over_a_trainer_of_transformers_gives_its_best_model(
    tmp_path: Path, examples: Path
) -> None:
    _, text = run_notebook(examples / "finetune.ipynb", tmp_path)
    assert "hyperparameters.learning_rat: TrainingArguments has no such argument; did you" in text
    found = re.search(r"^trial \d+: eval_loss (\S+) with", text, re.MULTILINE)
    assert found is not None
    assert float(found[1]) < 6  # of 512 tokens that are as likely: 6.24
    steps = sorted(
        int(each) for each in re.findall(r"^0\.\d{5}: (\d+) steps$", text, re.MULTILINE)
    )
    assert steps == [30, 30, 90]
    assert not (tmp_path / "trainer_output").exists() or not [*tmp_path.rglob("checkpoint-*")]
