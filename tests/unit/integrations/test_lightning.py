"""The callback for Lightning: what it reports and saves, and that a pause changes nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter import core
from det_jupyter.contract.run.journal import MetricsReported, Progress, RunEnded
from det_jupyter.core.event_reading import EventReading, wrap_csv_logger
from det_jupyter.errors import DetError
from tests.unit.integrations.contexts import (
    compared_at_the_end,
    metrics,
    new_context,
    notices,
    records,
    runs_of,
    saved,
    searched,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own


@pytest.fixture(scope="module")
def runs() -> Iterator[Any]:
    yield from runs_of("lightning")


@pytest.fixture
def context(tmp_path: Path, runs: Any) -> core.Context:
    return new_context(tmp_path)


def test_metrics_progress_and_checkpoints_are_those_of_the_training(
    runs: Any, context: core.Context
) -> None:
    alone = runs.fit(context, callbacks=[])
    assert records(context, MetricsReported) == []
    trainer = runs.fit(context)
    assert runs.torch.equal(runs.weights(trainer), runs.weights(alone))
    steps = [(group, at, sorted(values)) for group, at, values in metrics(context)]
    assert steps[:4] == [
        ("training", 2, ["loss_step"]),
        ("training", 4, ["loss_step"]),
        ("validation", 4, ["val_loss"]),
        ("training", 4, ["loss_epoch"]),
    ]
    assert [each.steps_completed for each in saved(context)] == [4, 8, 12, 16]
    progress = [(each.steps_completed, each.fraction) for each in records(context, Progress)]
    assert progress == [*((at, at / 16) for at in range(2, 17, 2)), (16, 1.0)]
    assert records(context, RunEnded) == []  # nothing has stopped it early


@pytest.mark.parametrize(("log_every", "reported"), [(0, 1), (1, 1), (3, 3), (99, 99)])
def test_progress_is_reported_as_often_as_lightning_logs(
    runs: Any, context: core.Context, log_every: int, reported: int
) -> None:
    runs.fit(context, log_every=log_every)  # 0: never
    steps = [each.steps_completed for each in records(context, Progress)]
    assert steps == [*range(reported, 17, reported), 16]  # and at the end


def test_sigterm_of_a_trial_goes_to_the_ranks_handler_and_not_to_lightnings(
    runs: Any, context: core.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Signalled(runs.Net):
        def training_step(self, batch: Any, index: int) -> Any:
            if self.trainer.global_step == 5:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().training_step(batch, index)

    got = list[int]()
    before = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    try:
        monkeypatch.setattr(context.preempt, "should_preempt", lambda: bool(got))
        assert runs.fit(context, module=Signalled()).global_step == 2 * runs.NUM_BATCHES
    finally:
        signal.signal(signal.SIGTERM, before)
    assert got == [signal.SIGTERM]
    assert [each.steps_completed for each in saved(context)] == [4, 8]


def test_paused_training_goes_on_as_if_it_had_not_been_paused(
    runs: Any, tmp_path: Path, context: core.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = runs.fit(context)
    first = new_context(tmp_path / "paused")
    answers = iter([False, False, True])
    monkeypatch.setattr(first.preempt, "should_preempt", lambda: next(answers))
    assert runs.fit(first).global_step == 2 * runs.NUM_BATCHES
    uuid = saved(first)[-1].uuid
    second = new_context(tmp_path / "paused", uuid)
    runs.torch.manual_seed(99)  # of another process
    trainer = runs.fit(second)
    assert runs.torch.equal(runs.weights(trainer), runs.weights(undisturbed))
    assert metrics(first) + metrics(second) == metrics(context)
    assert [each.steps_completed for each in saved(second)] == [12, 16]


def test_training_that_a_callback_ends_in_the_epoch_of_a_pause_is_over(
    runs: Any, context: core.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([False, False, True])
    monkeypatch.setattr(context.preempt, "should_preempt", lambda: next(answers))
    with context:
        callbacks = [runs.early_stopping(), runs.DetCallback()]
    assert runs.fit(context, callbacks).global_step == 2 * runs.NUM_BATCHES
    assert next(answers)  # it was not asked for: the training is over


@pytest.fixture
def continued(runs: Any, tmp_path: Path, context: core.Context) -> core.Context:
    runs.fit(context)
    return new_context(tmp_path, saved(context)[0].uuid)


def test_search_stops_a_trial_at_an_epoch(runs: Any, context: core.Context) -> None:
    runs_to = searched(context, "epochs", "val_loss", (3, False))
    assert runs.fit(runs_to).global_step == 3 * runs.NUM_BATCHES
    assert [each.steps_completed for each in saved(context)] == [4, 8, 12]
    assert records(context, RunEnded) == []


def test_trial_that_was_paused_where_the_search_compares_is_compared_when_it_goes_on(
    runs: Any, tmp_path: Path, continued: core.Context
) -> None:
    search = searched(continued, "epochs", "val_loss", (3, False))  # the checkpoint is of epoch 1
    assert runs.fit(search).global_step == 3 * runs.NUM_BATCHES


def test_training_that_a_callback_ends_is_enough_for_the_search(
    runs: Any, context: core.Context
) -> None:
    search = searched(context, "epochs", "val_loss", (4, True))
    with search:
        callbacks = [runs.early_stopping(), runs.DetCallback()]
    assert runs.fit(search, callbacks).global_step == 2 * runs.NUM_BATCHES
    assert [each.reason for each in records(context, RunEnded)] == ["stopped"]


@pytest.mark.parametrize(
    ("unit", "metric", "target", "problem"),
    [
        ("batches", "val_loss", 3, r"max_length is in batches.*write max_length: \{epochs: N\}"),
        ("epochs", "accuracy", 3, "is accuracy, which .* not logged; it has logged: val_loss"),
        ("epochs", "val_loss", 5, r"trains 4 epochs, the search has 5 .*max_epochs=N\)"),
    ],
)
def test_search_that_cannot_be_followed_is_refused(
    runs: Any, context: core.Context, unit: str, metric: str, target: int, problem: str
) -> None:
    with pytest.raises(DetError, match=problem):
        runs.fit(searched(context, unit, metric, (target, False)))


def test_a_trainer_without_a_number_of_epochs_trains_as_far_as_the_search_asks(
    runs: Any, context: core.Context, tmp_path: Path
) -> None:
    search = searched(context, "epochs", "val_loss", (2, False))
    assert runs.fit(search, max_epochs=-1).global_step == 2 * runs.NUM_BATCHES
    nothing = searched(new_context(tmp_path), "epochs", "val_loss", (2, False))
    with pytest.raises(DetError, match=r"the Trainer trains 0 epochs, the search has 1 .*=N\)"):
        runs.fit(nothing, max_epochs=0)


def test_metric_that_is_not_validated_is_an_error_after_the_first_validation(
    runs: Any, context: core.Context
) -> None:
    search = searched(context, "epochs", "accuracy", (4, True), first=3)
    with pytest.raises(DetError, match=r"is accuracy, which .* it has logged: val_loss"):
        runs.fit(search)
    assert [at for group, at, _ in metrics(context) if group == "validation"] == [4]


@pytest.mark.parametrize(
    ("batches", "found"),
    [(4, "validations have: val_loss"), (0, "there is no validation")],
)
def test_metric_that_is_not_validated_is_named_though_nothing_is_compared(
    runs: Any, context: core.Context, batches: int, found: str
) -> None:
    alone = compared_at_the_end(context, "accuracy")
    runs.fit(alone, limit_val_batches=batches)
    ((text, steps),) = notices(alone).items()
    assert text == f"searcher.metric is accuracy, and {found}; so no checkpoint is the best one"
    assert steps in (4, 6)  # of the first epoch, or of the first batches after it


def test_training_without_the_checkpoint_is_refused_at_its_start(
    runs: Any, context: core.Context, continued: core.Context
) -> None:
    with context:
        callback = runs.DetCallback()
    with pytest.raises(DetError, match=r"may be paused, .* which is None where training begins"):
        runs.fit(context, [callback], ckpt_path=None)
    with continued:
        callback = runs.DetCallback()
    assert callback.ckpt_path is not None  # asked for, and not given
    with pytest.raises(DetError, match=r"continues, .* write trainer\.fit\(\.\.\., ckpt_path="):
        runs.fit(continued, [callback], ckpt_path=None)


def test_what_its_csv_logger_logs_is_read_if_nothing_is_reported(
    runs: Any, context: core.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lightning.fabric.loggers import csv_logs
    from lightning.pytorch.loggers import CSVLogger

    monkeypatch.setattr(csv_logs.CSVLogger, "log_metrics", csv_logs.CSVLogger.log_metrics)
    reading = EventReading(context.sink, lambda steps: None, "val_loss")
    wrap_csv_logger("lightning.fabric.loggers.csv_logs", reading)
    runs.fit(context, callbacks=[], logger=CSVLogger(tmp_path))
    reading.flush()
    read = [(group, at, sorted(values)) for group, at, values in metrics(context)]
    assert read[:3] == [
        ("training", 1, ["loss_step"]),
        ("training", 3, ["loss_epoch", "loss_step"]),
        ("validation", 3, ["val_loss"]),
    ]
    files = (tmp_path / "lightning_logs").rglob("metrics.csv")
    assert len([*files]) == 1  # which it writes as before


def test_callback_needs_a_context_and_is_given_once(runs: Any, context: core.Context) -> None:
    core.set_current(None)
    with pytest.raises(DetError, match=r"DetCallback: .* inside of `with core\.init\(\)"):
        runs.DetCallback()
    with context:
        callbacks = [runs.DetCallback(), runs.DetCallback()]
    with pytest.raises(DetError, match="it twice"):
        runs.fit(context, callbacks)


RANKS: Any = SimpleNamespace(
    size=4, rank=2, local_rank=1, cross_rank=1, cross_size=2, is_chief=False
)


def test_a_strategy_has_the_ranks_of_the_trial(
    runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "2950")
    context = new_context(tmp_path, distributed=RANKS)
    strategy = runs.DetStrategy(context, find_unused_parameters=True)
    ranks = strategy.cluster_environment
    assert ranks.creates_processes_externally
    assert (ranks.main_address, ranks.main_port) == ("10.0.0.1", 2950)
    assert (ranks.world_size(), ranks.global_rank()) == (4, 2)
    assert (ranks.local_rank(), ranks.node_rank()) == (1, 1)
    assert strategy.distributed_sampler_kwargs == {"num_replicas": 4, "rank": 2}
    assert context.info is not None
    assert strategy.root_device is context.info.device
    assert not ranks.detect()  # outside of a trial Lightning chooses
    core.set_current(context)
    assert ranks.detect()
    core.set_current(None)


def test_parts_of_a_state_need_ranks_on_one_computer(runs: Any, tmp_path: Path) -> None:
    two = new_context(tmp_path, distributed=RANKS)
    with pytest.raises(DetError, match=r"ranks are on 2 computers, .*is_single_node: true"):
        runs.DetModelParallelStrategy(two)
    ranks = SimpleNamespace(**{**vars(RANKS), "cross_size": 1})
    made = runs.DetModelParallelStrategy(new_context(tmp_path, distributed=ranks))
    assert made.cluster_environment.world_size() == 4
    assert (made._data_parallel_size, made._tensor_parallel_size) == (4, 1)


def test_a_trainer_of_other_processes_is_refused(runs: Any, tmp_path: Path) -> None:
    with pytest.raises(DetError, match=r"has 1 processes, and the trial 4; write .*DetStrategy"):
        runs.fit(new_context(tmp_path, distributed=RANKS))


@pytest.mark.parametrize(
    ("validating", "testing", "group"),
    [(False, False, "training"), (True, False, "validation"), (False, True, "test")],
)
def test_metrics_belong_to_what_the_trainer_does(
    runs: Any, context: core.Context, validating: bool, testing: bool, group: str
) -> None:
    trainer = SimpleNamespace(validating=validating, testing=testing, global_step=7)
    logger = runs.DetLogger(context, trainer)
    assert (logger.name, logger.version) == ("det_jupyter", "1")
    logger.log_metrics({"epoch": 1})  # no metric
    logger.log_metrics({"loss": 0.5, "epoch": 1})
    assert metrics(context) == [(group, 7, {"loss": 0.5})]
    logger = runs.DetLogger(replace(context, distributed=RANKS), trainer)
    logger.log_metrics({"loss": 0.25})  # of another rank
    assert len(metrics(context)) == 1
