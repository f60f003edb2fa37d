"""Whether validations have the searcher metric."""

from __future__ import annotations

import pytest

from det_jupyter import core
from det_jupyter.contract.run.journal import Notice
from det_jupyter.core.train import BestValidation, EarlyExitReason


class Training:
    """Reports of a trial whose searcher metric is `acc`."""

    def __init__(self, best: float | None = None) -> None:
        self.sink = core.RecordList()
        self.train = core.TrainContext(
            self.sink, core.DistributedContext(), best=BestValidation("acc", False, best)
        )

    def notices(self) -> list[str]:
        return [each.text for each in self.sink.records if isinstance(each, Notice)]


@pytest.fixture
def training() -> Training:
    return Training()


def test_a_searcher_metric_that_a_validation_lacks_is_named_once_when_the_training_goes_on(
    training: Training,
) -> None:
    training.train.report_validation_metrics(5, {"val_acc": 0.5})
    training.train.report_validation_metrics(5, {"loss": 1.0})
    assert training.notices() == []
    training.train.report_training_metrics(6, {"loss": 1.0})
    named = [
        "searcher.metric is acc, and validations have: loss, val_acc; so no checkpoint is the "
        "best one. Did you mean val_acc?"
    ]
    assert training.notices() == named
    training.train.report_validation_metrics(10, {"val_acc": 0.5})
    training.train.note_steps(11)
    training.train.warn_of_missing_metric()
    assert training.notices() == named


def test_a_searcher_metric_in_any_part_of_a_validation_is_not_named(training: Training) -> None:
    for metrics in ({"loss": 1.0}, {"acc": 0.5}):
        training.train.report_validation_metrics(5, metrics)
    training.train.report_progress(0.5, 6)
    training.train.warn_of_missing_metric()
    assert training.notices() == []


def test_a_training_that_was_never_validated_is_named_at_its_end(training: Training) -> None:
    training.train.report_training_metrics(5, {"acc": 1.0})
    training.train.report_progress(1.0, 6)
    assert training.notices() == []
    training.train.warn_of_missing_metric()
    assert training.notices() == [
        "searcher.metric is acc, and there is no validation; so no checkpoint is the best one. "
        "acc is reported in the group training"
    ]


@pytest.mark.parametrize("best", [None, 0.5])
def test_a_run_without_reports_or_after_a_validation_names_nothing(best: float | None) -> None:
    training = Training(best)
    if best is not None:  # of a run before
        training.train.report_training_metrics(5, {"loss": 1.0})
    training.train.warn_of_missing_metric()
    assert training.notices() == []


def test_a_trial_with_impossible_hyperparameters_needs_no_validation(training: Training) -> None:
    training.train.report_training_metrics(5, {"loss": 1.0})
    training.train.report_early_exit(EarlyExitReason.INVALID_HP)
    training.train.warn_of_missing_metric()
    assert training.notices() == []
