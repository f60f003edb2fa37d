"""A gang of two real ranks that hangs is named, and goes on; see tests/benchmarks/hang_doctor."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from det_jupyter.client import Client, Trial
from det_jupyter.contract.messages import ExperimentQuery, HangReport, Reason
from tests.processes import wait_until
from tests.trials import TRIAL_SOURCE, small_config, submit

pytestmark = pytest.mark.e2e

TRAINING = "        time.sleep(self.pause_s)\n"
# Opening a FIFO blocks until another process opens it too.
STALLING = """\
        if batch_idx == 7 and self.context.distributed.rank == 1:
            open({fifo!r})
"""
STEPS = 12


def test_a_rank_that_stands_still_is_named_until_it_goes_on(
    client: Client, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    source = TRIAL_SOURCE.replace(TRAINING, STALLING.format(fifo=str(fifo)))
    length = {"name": "single", "metric": "error", "max_length": {"batches": STEPS}}
    config = small_config(
        searcher=length, min_validation_period={"batches": STEPS}, hang={"after_s": 4}
    )
    experiment = submit(client, config, source)

    def found() -> HangReport | None:
        trials = experiment.view.trials
        return trials[0].hang if trials else None

    def named() -> Reason | None:
        """Return the reason once it names both: on a busy computer a look may find less."""
        hang, reason = found(), trial.why()
        kinds = [] if hang is None else [(rank.rank, rank.kind) for rank in hang.ranks]
        is_named = kinds == [(0, "waits"), (1, "still")] and reason.cause == "hangs"
        return reason if is_named else None

    wait_until(found, "the hang is found", timeout_s=120)
    trial = experiment.trials[0]
    assert isinstance(trial, Trial)
    reason = wait_until(named, "both ranks are named", timeout_s=120)
    assert reason.sentence.startswith("rank 1 has been in ")
    assert "; rank 0 waits for it in all_reduce, batch 7" in reason.sentence
    assert "in train_batch" in trial.hang_report(tmp_path / "hang.md")

    def alarms() -> list[str]:
        rows = client.find(ExperimentQuery()).rows
        return [row.alarm_kind for row in rows if row.id == experiment.id]

    wait_until(lambda: alarms() == ["hangs"], "the list says it")
    fifo.open("w").close()
    wait_until(lambda: found() is None, "it hangs no longer", timeout_s=120)
    assert experiment.wait(150) == "COMPLETED"
