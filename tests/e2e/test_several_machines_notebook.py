"""The example notebook about several computers, run as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from det_jupyter.connection import find_master
from tests.notebook_kernel import run_notebook
from tests.processes import det_home, processes_below

pytestmark = [pytest.mark.e2e, pytest.mark.long]


def test_ranks_on_two_computers_are_looked_into_and_go_on_when_one_was_lost(
    tmp_path: Path, examples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "t"))  # below it are the homes of its agents
    with det_home(tmp_path / "home", {}):
        _, text = run_notebook(examples / "several_machines.ipynb", tmp_path)
        assert find_master() is None, "its last cell ends its master"
    assert not processes_below(tmp_path)
    places = re.findall(r"^rank (\d) runs on (node-\d)$", text, re.MULTILINE)
    assert sorted(places) == [("0", "node-0"), ("1", "node-1")]
    assert re.search(r"^1 \d+\.\d+$", text, re.MULTILINE), "the rank's own values"
    assert re.search(r'^ *(File ".+"|Cell In\[\d+\]), line \d+, in \w+', text, re.MULTILINE)
    assert "run 2 goes on" in text
    assert re.search(r"^0 restarts, accuracy 0\.\d+$", text, re.MULTILINE)
    assert "the same weights, bit for bit" in text
