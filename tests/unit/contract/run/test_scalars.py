"""Scalars of other tools as metrics."""

from __future__ import annotations

import pytest

from det_jupyter.contract.run.journal import MetricsReported
from det_jupyter.contract.run.scalars import Scalar, is_metric, metric_of, records_of


@pytest.mark.parametrize(
    ("tag", "metric"),
    [
        ("train/loss", ("training", "loss")),
        ("Loss/train", ("training", "Loss")),
        ("eval/loss", ("validation", "eval_loss")),
        ("val/loss", ("validation", "loss")),
        ("Loss/Val", ("validation", "Loss")),
        ("valid/top/5", ("validation", "top/5")),
        ("val_loss", ("validation", "val_loss")),
        ("train_loss", ("training", "train_loss")),
        ("test/f1", ("test", "test_f1")),
        ("f1/test", ("test", "f1")),
        ("test_f1", ("test", "test_f1")),
        ("lr-AdamW", ("training", "lr-AdamW")),
        ("validity", ("training", "validity")),
        ("train", ("training", "train")),
    ],
)
def test_a_tag_names_the_phase_of_its_metric(tag: str, metric: tuple[str, str]) -> None:
    assert metric_of(tag, "error") == metric


@pytest.mark.parametrize(
    ("tag", "searched"), [("accuracy", "accuracy"), ("train/loss", "train_loss"), ("a/b", "a/b")]
)
def test_the_searcher_metric_is_one_of_validations(tag: str, searched: str) -> None:
    assert metric_of(tag, searched) == ("validation", searched)


def test_scalars_of_one_step_are_one_record_for_each_group() -> None:
    scalars = [
        Scalar("train/loss", 1, 0.5, 10.0),
        Scalar("val/loss", 1, 0.25, 11.0),
        Scalar("train/lr", 1, 0.125, 12.0),
        Scalar("train/loss", 2, 0.75, 13.0),
    ]
    assert records_of(scalars, "error") == [
        MetricsReported(
            at=10.0, group="training", steps_completed=1, metrics={"loss": 0.5, "lr": 0.125}
        ),
        MetricsReported(at=11.0, group="validation", steps_completed=1, metrics={"loss": 0.25}),
        MetricsReported(at=13.0, group="training", steps_completed=2, metrics={"loss": 0.75}),
    ]


def test_a_value_that_is_written_again_replaces_none() -> None:
    scalars = [Scalar("loss", 0, 1.0, 1.0), Scalar("loss", 0, 2.0, 2.0)]
    assert [record.metrics for record in records_of(scalars, "")] == [{"loss": 1.0}, {"loss": 2.0}]


@pytest.mark.parametrize(
    "name",
    [
        "epoch",
        "total_flos",
        "num_input_tokens_seen",
        "train_runtime",
        "eval_samples_per_second",
        "eval_first_steps_per_second",  # of one of several data sets
        "train_tokens_per_second",
        "eval_model_preparation_time",
        "eval/model_preparation_time",  # as in TensorBoard
        "train/num_input_tokens_seen",
        "train/train_runtime",
        "before_init_mem_cpu",
        "train_mem_gpu_peaked_delta",
        "eval/mem_cpu_alloc_delta",
    ],
)
def test_counters_times_and_memory_of_trainers_are_no_metrics(name: str) -> None:
    assert not is_metric(name)


@pytest.mark.parametrize(
    "name", ["eval_loss", "best_epoch", "tokens_per_second", "train_time_loss", "eval_memory"]
)
def test_a_metric_of_a_similar_name_is_one(name: str) -> None:
    assert is_metric(name)


def test_what_is_no_metric_is_left_out() -> None:
    scalars = [
        Scalar("epoch", 1, 3.0, 1.0),  # counters of Lightning and transformers
        Scalar("train/epoch", 1, 0.5, 1.0),
        Scalar("eval/runtime", 1, 0.5, 1.0),
        Scalar("train/train_samples_per_second", 1, 0.5, 1.0),
        Scalar("hp_metric", 0, -1.0, 1.0),  # Lightning's placeholder
        Scalar("loss", -1, 1.0, 1.0),  # no step of a training
    ]
    assert records_of(scalars, "") == []
