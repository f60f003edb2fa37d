"""Values that are valid by themselves, and contradict or require each other."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.config import check_sanity, find_missing_batch_size

PER_EPOCH = {"records_per_epoch": 100}
IN_EPOCHS = {"searcher": {"max_length": {"epochs": 2}}}


@pytest.mark.parametrize(
    ("resources", "is_right"),
    [
        ({"max_slots": 4, "slots_per_trial": 4}, True),
        ({"max_slots": 3, "slots_per_trial": 4}, False),
        ({"max_slots": 1}, True),
        ({"max_slots": 0}, False),
    ],
)
def test_the_limit_of_slots_suffices_for_one_trial(
    resources: dict[str, int], is_right: bool
) -> None:
    problems = check_sanity({"resources": resources})
    assert [problem.path for problem in problems] == ["resources.max_slots"] * (not is_right)


@pytest.mark.parametrize(
    ("document", "problems"),
    [
        ({"resources": {"slots_per_trial": {"max": 8}}}, []),
        ({"resources": {"slots_per_trial": {"min": 2, "max": 8}, "max_slots": 2}}, []),
        (
            {"resources": {"slots_per_trial": {"min": 4, "max": 2}}},
            ["resources.slots_per_trial.max: got 2, expected at least 4 (min)"],
        ),
        (
            {"resources": {"slots_per_trial": {"min": 4, "max": 8}, "max_slots": 3}},
            ["resources.max_slots: got 3, expected at least resources.slots_per_trial.min (4)"],
        ),
        (
            {"resources": {"slots_per_trial": {"min": 0, "max": "8"}}},
            [
                "resources.slots_per_trial.max: got '8', expected a number; write 8",
                "resources.slots_per_trial.min: got 0, expected at least 1",
            ],
        ),
        (
            {"resources": {"slots_per_trial": {"min": 1, "most": 8}}},
            [
                "resources.slots_per_trial.most: unknown key; expected one of max, min",
            ],
        ),
        (
            {"searcher": {"elastic": True}, "resources": {"slots_per_trial": 0}},
            ["searcher.elastic: got true, but resources.slots_per_trial is 0: no slot"],
        ),
    ],
)
def test_a_range_of_slots_is_checked(document: dict[str, Any], problems: list[str]) -> None:
    assert [*map(str, check_sanity(document))] == problems


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (PER_EPOCH | IN_EPOCHS, "records_per_epoch (100) is divided by it"),
        (PER_EPOCH | {"min_validation_period": {"epochs": 1}}, "records_per_epoch (100)"),
        (PER_EPOCH | {"searcher": {"time_metric": "epochs"}}, "records_per_epoch (100)"),
        ({"min_checkpoint_period": {"records": 9}}, "min_checkpoint_period is in records"),
        (PER_EPOCH, ""),
        (IN_EPOCHS, ""),
        (PER_EPOCH | IN_EPOCHS | {"hyperparameters": {"global_batch_size": 8}}, ""),
    ],
)
def test_lengths_that_are_divided_by_the_batch_size_need_one(
    document: dict[str, Any], why: str
) -> None:
    problems = find_missing_batch_size(document)
    assert [problem.path for problem in problems] == ["hyperparameters.global_batch_size"] * bool(
        why
    )
    assert all(why in problem.text for problem in problems)


def test_a_class_that_reads_the_batch_size_needs_one() -> None:
    (problem,) = find_missing_batch_size({}, "train_batch")
    assert "train_batch requires it" in problem.text


@pytest.mark.parametrize("value", [True, False, "fp16", "bf16", "powersgd"])
def test_all_kinds_of_gradient_compression_are_taken(value: bool | str) -> None:
    assert check_sanity({"optimizations": {"gradient_compression": value}}) == []
