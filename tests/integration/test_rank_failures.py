"""Whatever goes wrong in a rank is told once, where it happened, by the rank where it did."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.run.journal import (
    BatchMetrics,
    CheckpointSaved,
    Notice,
    Progress,
    RankFailure,
    RunEnded,
)
from tests.integration.rank_support import Lab, running_zygote

# `act(context)` runs where `place` says, on the rank that `on_rank` says (or on all).
FRAIL = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from det_jupyter.pytorch import DataLoader, PyTorchTrial

data = TensorDataset(torch.arange(32.0).reshape(-1, 1), torch.zeros(32, 1))
empty = TensorDataset(torch.zeros(0, 1), torch.zeros(0, 1))


class FrailTrial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.001))
        self.maybe_act("__init__")

    def maybe_act(self, place, batch_idx=0):
        wanted = self.context.get_hparams()
        if wanted["place"] == place and self.context.distributed.rank in wanted["on_ranks"]:
            if batch_idx == wanted["batch_idx"]:
                exec(wanted["act"], globals(), {"self": self})

    def build_training_data_loader(self):
        return DataLoader(data, self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self):
        return DataLoader(data, 8)

    def train_batch(self, batch, epoch_idx, batch_idx):
        self.maybe_act("train_batch", batch_idx)
        x, y = batch
        loss = nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx):
        self.maybe_act("evaluate_batch", batch_idx)
        x, y = batch
        metrics = {"error": nn.functional.mse_loss(self.model(x), y)}
        return metrics
"""


SLEEP = "import time; time.sleep({})"


def frail(
    act: str, place: str, *, on_ranks: tuple[int, ...] = (1,), batch_idx: int = 0, **changes: Any
) -> dict[str, Any]:
    return {
        "entrypoint": "FrailTrial",
        "hyperparameters": {
            "global_batch_size": 4,
            "act": act,
            "place": place,
            "on_ranks": list(on_ranks),
            "batch_idx": batch_idx,
        },
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 12}},
    } | changes


def only_failure(lab: Lab, source: str, config: dict[str, Any], *, ranks: int = 2) -> RankFailure:
    """Return the failure that a user is told: the earliest."""
    gang = lab.start(source, config, ranks=ranks)
    codes = gang.wait()
    assert 1 in codes, gang.output()
    assert not gang.of(RunEnded)
    return gang.failures()[0]


@pytest.mark.parametrize(
    ("place", "batch_idx", "final", "line"),
    [
        ("__init__", 0, True, 'self.maybe_act("__init__")'),
        ("train_batch", 0, True, 'self.maybe_act("train_batch", batch_idx)'),
        ("train_batch", 5, False, 'self.maybe_act("train_batch", batch_idx)'),
        ("evaluate_batch", 1, False, 'self.maybe_act("evaluate_batch", batch_idx)'),
    ],
)
def test_an_error_on_one_rank_is_told_with_its_cell_and_line(
    lab: Lab, place: str, batch_idx: int, final: bool, line: str
) -> None:
    failure = only_failure(lab, FRAIL, frail("raise KeyError('lost')", place, batch_idx=batch_idx))
    assert failure.rank == 1
    assert failure.error == "KeyError: 'lost'"
    assert failure.final is final
    assert failure.where.startswith("Cell In[5], line ")
    assert f"in {place}\n    {line}" in failure.traceback
    assert "det_jupyter/" not in failure.traceback


def test_a_rank_prints_its_traceback_and_peers_that_lose_it_do_not_speak_before_it(
    lab: Lab,
) -> None:
    gang = lab.start(FRAIL, frail("raise KeyError('lost')", "train_batch", batch_idx=3), ranks=3)
    gang.wait()
    assert [failure.rank for failure in gang.failures()] == [1]
    assert "KeyError: 'lost'" in gang.folder.output(1).read_text()


def test_a_rank_that_was_killed_is_told_as_gone_and_may_be_tried_again(lab: Lab) -> None:
    gang = lab.start(
        FRAIL, frail("import os; os.kill(os.getpid(), 9)", "train_batch", batch_idx=0)
    )
    # Nobody ends the peer here, so it says what it saw: not the cause, and no reason to give up.
    assert gang.wait_for_all() == [1, -signal.SIGKILL]
    (failure,) = gang.of(RankFailure, rank=0)
    assert failure.error.startswith("another rank is gone: ")
    assert failure.final is False


def test_a_trial_that_calls_exit_has_failed(lab: Lab) -> None:
    failure = only_failure(
        lab, FRAIL, frail("import sys; sys.exit(0)", "train_batch", on_ranks=(0, 1))
    )
    assert failure.error == "SystemExit: 0"


@pytest.mark.parametrize("on_ranks", [(0,), (1,), (0, 1)])
def test_invalid_hyperparameters_end_the_run_whoever_finds_them(
    lab: Lab, on_ranks: tuple[int, ...]
) -> None:
    act = "from det_jupyter.errors import InvalidHP; raise InvalidHP('too wide')"
    gang = lab.start(FRAIL, frail(act, "train_batch", on_ranks=on_ranks, batch_idx=2))
    gang.wait()
    ends = [end for rank in (0, 1) for end in gang.of(RunEnded, rank)]
    assert ends
    assert {(end.reason, end.message) for end in ends} == {("invalid_hp", "too wide")}
    assert not gang.failures()


def test_a_metric_that_is_never_reported_is_told_before_training(lab: Lab) -> None:
    source = FRAIL.replace("        metrics = {", "        return {").replace(
        "        return metrics\n", ""
    )
    gang = lab.start(
        source,
        frail("", "") | {"searcher": _searcher("eror")},
    )
    gang.wait()
    failure = gang.failures()[0]
    assert failure.error == (
        "searcher.metric: the trial reports error; got 'eror' (did you mean 'error'?)"
    )
    assert failure.final is True
    assert not gang.of(BatchMetrics)


def test_a_metric_that_only_running_shows_to_be_missing_is_final(lab: Lab) -> None:
    gang = lab.start(FRAIL, frail("", "") | {"searcher": _searcher("accuracy")})
    gang.wait()
    failure = gang.failures()[0]
    assert failure.error == ("searcher.metric: the trial reports error; got 'accuracy'")
    assert failure.final is True
    assert gang.validations()  # what it did report is not lost


def _searcher(metric: str) -> dict[str, Any]:
    return {"name": "single", "metric": metric, "max_length": {"batches": 12}}


def test_all_missing_methods_are_named_at_once(lab: Lab) -> None:
    source = FRAIL.replace("def train_batch", "def train").replace("def evaluate_batch", "def ev")
    failure = only_failure(lab, source, frail("", ""), ranks=1)
    assert failure.error == (
        "entrypoint: FrailTrial lacks train_batch; define it in the class; "
        "entrypoint: FrailTrial lacks evaluate_batch; define it (or evaluate_full_dataset)"
    )
    assert failure.final is True


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("context.wrap_model(nn.Linear(1, 1))", "nn.Linear(1, 1)", "wrap the model first"),
        ("context.wrap_optimizer(torch", "(torch", "has to call context.wrap_optimizer"),
        ("DataLoader(data, self", "torch.utils.data.DataLoader(data, self",
         "build_training_data_loader: returned a torch.utils.data.dataloader.DataLoader"),
        ('{"loss": loss}', "None", "expected a dict of metrics such as"),
        ('{"loss": loss}', '{"loss": "high"}', "metric 'loss' is a str, expected a number"),
        ('return {"loss": loss}', 'return {"loss": loss} if batch_idx < 3 else {"lost": loss}',
         "batch 3: lacks loss and adds lost"),
        ("return metrics", "return 3", "evaluate_batch returned a int for batch 0 on rank"),
        ("DataLoader(data, 8)", "DataLoader(empty, 8)", "the validation data has no batches"),
        ("DataLoader(data, self", "DataLoader(empty, self", "TensorDataset has no records"),
        ('return {"loss": loss}', 'return {f"loss{self.context.distributed.rank}": loss}',
         "rank 1 returns loss1, rank 0 loss0; all ranks have to return the same metrics"),
    ],
)  # fmt: skip
def test_mistakes_in_a_trial_are_told_with_their_remedy(
    lab: Lab, old: str, new: str, message: str
) -> None:
    source = FRAIL.replace(old, new)
    assert source != FRAIL
    ranks = 2 if "batch" in message or "rank 1" in message else 1
    failure = only_failure(lab, source, frail("", ""), ranks=ranks)
    assert message in failure.error
    assert failure.final is True
    assert failure.traceback == "", "it has no more to say than the error"
    method = re.match(r"(train_batch|evaluate_batch)\b", failure.error)
    if method:
        assert re.fullmatch(rf"Cell In\[5\], line \d+, in {method[1]}", failure.where)


def test_a_failure_that_cannot_be_put_into_words_is_told_all_the_same(lab: Lab) -> None:
    act = """
class Mute(Exception):
    def __str__(self):
        raise KeyboardInterrupt
import sys
sys.stderr = None
raise Mute
"""
    failure = only_failure(lab, FRAIL, frail(act, "train_batch"))
    assert "Mute" in failure.error
    assert failure.rank == 1


def test_what_a_notebook_displays_is_printed_by_its_ranks(lab: Lab) -> None:
    gang = lab.start(FRAIL, frail("display([1], 'two')", "train_batch", on_ranks=(0,)), ranks=1)
    gang.ended()
    assert "[1]\n'two'\n" in gang.output()


def test_a_thread_that_fails_is_told_while_the_training_goes_on(lab: Lab) -> None:
    act = """
import threading
def work():
    raise ValueError('no queue')
thread = threading.Thread(target=work, name='feeder')
thread.start()
thread.join()
"""
    gang = lab.start(FRAIL, frail(act, "train_batch", batch_idx=3))
    assert gang.ended().reason == "completed"
    (notice,) = gang.of(Notice, rank=1)
    assert notice.text.startswith("rank 1: the thread 'feeder' ended with ValueError: no queue")
    assert "ValueError: no queue" in gang.folder.output(1).read_text()
    assert not gang.failures()


def test_the_last_batches_before_an_error_are_on_the_curve_of_a_single_rank(lab: Lab) -> None:
    gang = lab.start(
        FRAIL, frail("raise KeyError('lost')", "train_batch", on_ranks=(0,), batch_idx=9), ranks=1
    )
    gang.wait()
    assert gang.steps_completed() == 9
    steps = [
        step
        for record in gang.of(BatchMetrics)
        for step in range(record.first, record.first + len(record.values["loss"]))
    ]
    assert steps == list(range(1, 10))
    last = gang.of(Progress)[-1]
    assert (last.steps_completed, last.fraction) == (9, 0.75)


def test_of_several_ranks_the_error_tells_what_is_no_average_and_what_was_printed(
    lab: Lab,
) -> None:
    act = "print(' 10%\\r 20%\\nalmost', end=''); raise KeyError('lost')"
    gang = lab.start(FRAIL, frail(act, "train_batch", batch_idx=9))
    gang.wait()
    (failure,) = gang.of(RankFailure, rank=1)
    assert failure.traceback.startswith("It printed at last:\n 20%\nalmost\n\nTraceback (most")
    told = re.search(r"^Of rank 1 alone, and not on the curves: (.*)$", failure.traceback, re.M)
    assert told is not None
    # At most five; those that a slow computer has averaged in time before are on the curves.
    assert re.fullmatch(r"(batch \d: loss [\d.]+; ){0,4}batch 8: loss [\d.]+\.", told[1])
    assert gang.of(Progress, rank=1)[-1].steps_completed == 9
    assert not gang.of(BatchMetrics, rank=1)


def test_a_loss_that_ends_the_trial_is_on_the_curve(lab: Lab) -> None:
    source = FRAIL.replace('{"loss": loss}', '{"loss": loss / (batch_idx != 5)}')
    assert source != FRAIL
    gang = lab.start(source, frail("", "") | {"on_nan_loss": "stop"})
    gang.wait()
    values = [value for record in gang.of(BatchMetrics) for value in record.values["loss"]]
    assert "Infinity" in values
    assert "on_nan_loss is stop" in gang.failures()[0].error


def test_the_page_tells_in_which_batch_a_rank_was_killed(lab: Lab) -> None:
    gang = lab.start(
        FRAIL, frail("import os; os.kill(os.getpid(), 9)", "train_batch", batch_idx=6)
    )
    gang.wait()
    assert gang.page.batch_of(1) == 6


def test_a_missing_folder_is_a_failure_that_can_be_read(lab: Lab) -> None:
    lab.cwd.rmdir()
    failure = only_failure(lab, FRAIL, frail("", ""), ranks=1)
    assert failure.error.startswith("FileNotFoundError: ")
    assert failure.final is True


def test_ranks_die_with_their_agent(tmp_path: Path, lab: Lab) -> None:
    with running_zygote(tmp_path) as zygote:
        own = lab.with_zygote(zygote)
        gang = own.start(FRAIL, frail(SLEEP.format(60), "train_batch", on_ranks=(0, 1)))
        gang.wait_until(lambda: gang.records(0) and gang.records(1), "both ranks are up")
        zygote.cut_lifeline()
        assert gang.wait_for_all() == [-signal.SIGKILL, -signal.SIGKILL]


def test_a_sigint_does_not_end_training(lab: Lab) -> None:
    gang = lab.start(FRAIL, frail(SLEEP.format(1), "train_batch", on_ranks=(0, 1), batch_idx=2))
    gang.wait_until(lambda: gang.of(BatchMetrics), "training has begun")
    for pid in gang.pids:
        os.kill(pid, signal.SIGINT)
    assert gang.ended().reason == "completed"
    assert "interrupts do not stop training" in gang.output()


def test_a_resumed_run_that_fails_at_once_may_be_tried_again(lab: Lab) -> None:
    first = lab.start(FRAIL, frail("", ""))
    first.ended()
    assert first.of(CheckpointSaved)
    longer = frail("raise OSError('disk')", "__init__") | {
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 20}}
    }
    second = lab.start(FRAIL, longer, checkpoint=first.last_checkpoint())
    second.wait()
    assert second.failures()[0].final is False
