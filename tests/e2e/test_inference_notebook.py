"""The example notebook about batch inference, run as it is."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("home")]


def test_the_notebook_predicts_every_record_once_through_a_pause_and_a_kill(
    tmp_path: Path, examples: Path
) -> None:
    document = nbformat.read(examples / "batch_inference.ipynb", as_version=4)
    NotebookClient(
        document, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [o for cell in document.cells for o in cell.get("outputs", [])]
    text = "\n".join(o.get("text") or o.get("data", {}).get("text/plain") or "" for o in outputs)
    assert "PAUSED, " in text
    assert "1 restart" in text
    assert "1797 records, 1797 different ones; accuracy 0.9" in text
    assert "reported: 0.9" in text
