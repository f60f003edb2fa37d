"""The example notebook about scheduling, run as it is."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from det_jupyter.autostart import find_master
from tests.processes import det_home

pytestmark = pytest.mark.e2e


def test_the_notebook_runs_and_says_why_its_trials_wait(tmp_path: Path, examples: Path) -> None:
    document = nbformat.read(examples / "scheduling.ipynb", as_version=4)
    with det_home(tmp_path / "home", {}):
        NotebookClient(
            document, timeout=200, resources={"metadata": {"path": str(tmp_path)}}
        ).execute()
        assert find_master() is None, "its last cell ends its master"
    outputs = [o for cell in document.cells for o in cell.get("outputs", [])]
    text = "\n".join(
        o.get("text") or o.get("data", {}).get("text/plain") or "\n".join(o.get("traceback", []))
        for o in outputs
    )
    assert "pool default has 1 agent with 8 slots; values that can run: 1 to 8" in text
    assert "needs 1 slot; 2 of 8 are free, but kept for experiment 3 “large”" in text
    assert "%det job move 4 --ahead-of 3" in text
    assert "needs 4 slots; none of 8 is free; experiment 3 “large” (trial 3, priority 10" in text
    assert "the same weights, bit for bit" in text
