"""The example notebook about batch inference, run as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebook_kernel import run_notebook

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("home")]


def test_the_notebook_predicts_every_record_once_through_a_pause_and_a_kill(
    tmp_path: Path, examples: Path
) -> None:
    _, text = run_notebook(examples / "batch_inference.ipynb", tmp_path)
    assert "PAUSED, " in text
    assert "1 restart" in text
    assert "1797 records, 1797 different ones; accuracy 0.9" in text
    assert "reported: 0.9" in text
