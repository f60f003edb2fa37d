"""Ranks that die without a word, what their user is told, how often it is tried; and logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.messages import LogQuery
from det_jupyter.errors import RankFailed
from tests.trials import TRIAL_SOURCE, Gate, small_config, submit

pytestmark = pytest.mark.e2e

STEPS = 12
TRAINING = "        time.sleep(self.pause_s)\n"
BATCHES = 20
# As tqdm writes: a carriage return before each state, and a line end after the last one.
PRINTING = f"""\
        time.sleep(self.pause_s)
        if batch_idx == 0:
            import logging
            logging.warning("rank %d begins", self.context.distributed.rank)
        if self.context.distributed.rank == 0:
            bar = f"\\rbatch {{batch_idx + 1}}/{BATCHES}"
            sys.stderr.write(bar + "\\n" * (batch_idx + 1 == {BATCHES}))
            sys.stderr.flush()
"""


def crashing(act: str) -> str:
    """Return a trial that does this in batch 7."""
    source = TRIAL_SOURCE.replace(TRAINING, f"        if batch_idx == 7:\n            {act}\n")
    assert source != TRIAL_SOURCE
    return source


def crash(client: Client, act: str) -> tuple[Experiment, RankFailed]:
    length = {"name": "single", "metric": "error", "max_length": {"batches": STEPS}}
    config = small_config(searcher=length, min_validation_period={"batches": STEPS})
    experiment = submit(client, config, crashing(act))
    with pytest.raises(RankFailed) as caught:
        experiment.wait()
    return experiment, caught.value


def rank_is(rank: int) -> str:
    return f"if self.context.distributed.rank == {rank}: "


def test_a_crash_shows_its_stack_and_is_tried_three_times_without_progress(client: Client) -> None:
    experiment, error = crash(client, rank_is(1) + "import ctypes; ctypes.string_at(0)")
    trial = experiment.view.trials[0]
    assert "rank 1 was killed by SIGSEGV in batch 7. Failed 3 times with the same error." in str(
        error
    )
    assert "Fatal Python error: Segmentation fault" in str(error)
    assert "in train_batch" in error.remote_traceback
    assert "det_jupyter/pytorch" not in error.remote_traceback
    assert (trial.restarts, trial.num_recoveries) == (0, 2)


@pytest.mark.parametrize("act", ["os._exit(0)", "os.execv('/bin/true', ['true'])"])
def test_a_rank_that_leaves_without_a_word_is_the_one_that_is_blamed(
    client: Client, act: str
) -> None:
    experiment, error = crash(client, rank_is(0) + f"import os; {act}")
    assert "rank 0 ended with exit code 0 in batch 7, before the trial was over" in str(error)
    assert error.rank == 0
    assert experiment.view.trials[0].restarts == 1


def test_an_error_that_names_its_process_is_the_same_in_the_same_batch(client: Client) -> None:
    act = "import os; raise RuntimeError(f'process {os.getpid()} is out of memory')"
    experiment, error = crash(client, act)
    assert "is out of memory. Failed twice with the same error." in str(error)
    assert experiment.view.trials[0].restarts == 1


def test_ranks_in_different_collectives_are_told_so(client: Client) -> None:
    size = "self.context.distributed.rank or 1000"
    act = f"torch.distributed.all_reduce(torch.zeros({size}))"
    _, error = crash(client, act)
    told = (
        "was killed by SIGABRT in batch 7: rank 1 entered all_reduce [1] float32 where rank 0 "
        "entered all_reduce [1000] float32"
    )
    assert told in str(error)
    assert "in all_reduce" in error.remote_traceback


def test_a_rank_that_is_killed_at_the_same_batch_again_and_again_is_given_up(
    client: Client,
) -> None:
    experiment, error = crash(client, rank_is(1) + "import os; os.kill(os.getpid(), 9)")
    assert "in batch 7. Failed 3 times with the same error." in str(error)
    trial = experiment.view.trials[0]
    assert (trial.restarts, trial.num_recoveries) == (0, 2)


def test_a_thread_that_fails_is_a_notice_of_the_trial(client: Client) -> None:
    act = rank_is(0) + "import threading; t = threading.Thread(target=lambda: 1 / 0); t.start()"
    length = {"name": "single", "metric": "error", "max_length": {"batches": STEPS}}
    experiment = submit(client, small_config(searcher=length), crashing(act))
    experiment.wait()
    (notice,) = experiment.view.trials[0].notices
    assert "ended with ZeroDivisionError: division by zero" in notice


def test_logs_are_followed_while_a_trial_trains_and_its_bar_is_one_line(
    client: Client, tmp_path: Path
) -> None:
    gate = Gate(tmp_path, 10)
    source = "import sys\n" + gate.source().replace(TRAINING, PRINTING)
    length = {"name": "single", "metric": "error", "max_length": {"batches": BATCHES}}
    experiment = submit(client, small_config(searcher=length), source)
    states, is_over = set(), False
    query_after = 0
    while not is_over:
        page = client.experiment_logs(
            experiment.id, LogQuery(after=query_after, wait_s=10, search="batch ")
        )
        states |= {line.text for line in page.lines if line.is_open}
        if states:
            gate.open()
        query_after, is_over = page.last_id, page.is_over
    assert states, "the bar was seen while it moved"
    lines = [line.text for line in experiment.logs(follow=True, rank=0)]
    assert lines[-1] == f"batch {BATCHES}/{BATCHES}"
    assert sum("batch" in line for line in lines) == 1
    warnings = experiment.logs(level="warning", trial=experiment.trial)
    assert sorted(line.text.partition(" WARNING ")[2] for line in warnings) == [
        "rank 0 begins", "rank 1 begins"
    ]  # fmt: skip
    assert experiment.trial.logs(search="/rank [1-9]/", tail=1).total == 1
