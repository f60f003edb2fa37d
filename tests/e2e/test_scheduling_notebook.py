"""The example notebook about scheduling, run as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.connection import find_master
from tests.notebook_kernel import run_notebook
from tests.processes import det_home

pytestmark = [pytest.mark.e2e, pytest.mark.long]


def test_the_notebook_runs_and_says_why_its_trials_wait(tmp_path: Path, examples: Path) -> None:
    with det_home(tmp_path / "home", {}):
        _, text = run_notebook(examples / "scheduling.ipynb", tmp_path)
        assert find_master() is None, "its last cell ends its master"
    assert "pool default has 1 agent with 8 slots; values that can run: 1 to 8" in text
    assert "needs 1 slot; 2 of 8 are free, but kept for experiment 3 “large”" in text
    assert "%det job move 4 --ahead-of 3" in text
    assert "needs 4 slots; none of 8 is free; experiment 3 “large” (trial 3, priority 10" in text
    assert "the same weights, bit for bit" in text
