"""Interruptions at batches known beforehand: what the variable means, run by run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.training import interruptions
from det_jupyter.pytorch.training.interruptions import Interruption, write_place
from tests.problems import said

PLAN = {"DET_JUPYTER_INTERRUPT": "pause@7 kill@15"}


def test_each_run_has_its_own_interruption_and_later_ones_none() -> None:
    assert Interruption.of(PLAN, 1) == Interruption("pause", 7)
    assert Interruption.of(PLAN, 2) == Interruption("kill", 15)
    assert Interruption.of(PLAN, 3) is None
    assert Interruption.of({}, 1) is None


def test_all_that_is_not_understood_is_told() -> None:
    with pytest.raises(ConfigError) as refused:
        Interruption.of({"DET_JUPYTER_INTERRUPT": "stop@3 pause@7 kill@-1"}, 2)
    assert said(refused.value.problems) == [
        "DET_JUPYTER_INTERRUPT: got 'stop@3', expected pause@N or kill@N",
        "DET_JUPYTER_INTERRUPT: got 'kill@-1', expected pause@N or kill@N",
    ]


def test_a_pause_is_told_and_left_to_the_loop(capsys: pytest.CaptureFixture[str]) -> None:
    Interruption("pause", 7).carry_out(is_chief=True)
    assert capsys.readouterr().err == "DET_JUPYTER_INTERRUPT: pause@7\n"
    Interruption("pause", 7).carry_out(is_chief=False)
    assert capsys.readouterr().err == "", "the chief alone tells it"


def test_agent_of_a_run_is_written_only_where_resuming_is_verified(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_place(PLAN, run=2, agent_id="b")
    write_place({}, run=2, agent_id="b")
    assert capsys.readouterr().err == "DET_JUPYTER_INTERRUPT: run 2 on b\n"


def test_a_kill_ends_the_process_at_once() -> None:
    script = (  # the file alone: its package loads torch
        f"import runpy\nnames = runpy.run_path({interruptions.__file__!r})\n"
        "try:\n    names['Interruption']('kill', 3).carry_out(is_chief=True)\n"
        "finally:\n    print('still there')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (-9, "")
    assert done.stderr == "DET_JUPYTER_INTERRUPT: kill@3\n"
