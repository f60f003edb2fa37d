"""The example notebook about batch inference, whose processing waits until it is disturbed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebook_kernel import run_notebook
from tests.trials import Gate

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("home")]


def test_the_notebook_predicts_every_record_once_through_a_pause_and_a_kill(
    tmp_path: Path, examples: Path
) -> None:
    gates = [Gate(tmp_path, batch) for batch in (60, 120)]  # of 150
    disturbances = (
        "experiment.activate()",
        "os.kill(experiment.trial.ranks[1].view.pid, signal.SIGKILL)",
    )

    def wait_for_them(source: str) -> str:
        for gate, disturbance in zip(gates, disturbances, strict=True):
            line = "        time.sleep(0.04)"
            if line in source:
                source = gate.source(source, before=line)
            opens = f"open({str(gate.file)!r}, 'w').close()"
            source = source.replace(disturbance, f"{disturbance}\n{opens}")
        return source

    folder = tmp_path / "notebook"
    folder.mkdir()
    _, text = run_notebook(examples / "batch_inference.ipynb", folder, wait_for_them)
    assert "PAUSED, " in text
    assert "1 restart" in text
    assert "1797 records, 1797 different ones; accuracy 0.9" in text
    assert "reported: 0.9" in text
