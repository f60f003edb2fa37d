"""The example notebook about elastic trials, run as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.connection import find_master
from tests.notebook_kernel import run_notebook
from tests.processes import det_home

pytestmark = [pytest.mark.e2e, pytest.mark.long]


def test_the_notebook_runs_and_shows_its_sizes(tmp_path: Path, examples: Path) -> None:
    with det_home(tmp_path / "home", {}):
        _, text = run_notebook(examples / "elastic.ipynb", tmp_path)
        assert find_master() is None, "its last cell ends its master"
    assert "4 slots: so many were free" in text
    assert "2 slots: gave 2 slots to experiment 2" in text
    assert "4 slots: grew by 2 slots, free for 10 s" in text
    assert "300 batches, 0 restarts" in text
    assert "the same weights, but for rounding" in text
    assert "to run on 1 to 48 slots, as they are free" in text
