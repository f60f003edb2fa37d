"""What is written for TensorBoard, read back with TensorBoard's own reader."""

from __future__ import annotations

import math
from pathlib import Path

import numpy
import pytest
import torch

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.trial import tensorboard
from det_jupyter.pytorch.trial.tensorboard import TensorBoard

event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

Points = list[tuple[int, float]]


def read(folder: Path) -> dict[str, Points]:
    """Return the points of each tag, as TensorBoard would draw them."""
    events = event_accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(point.step, point.value) for point in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_metrics_have_determineds_names(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path, 0, is_enabled=True)
    board.log_training(2, {"loss": 1.5, "f1": 0.5})
    board.log_validation(2, {"error": 4.0, "val_loss": 3.0})
    board.close()
    assert read(tmp_path) == {
        "Determined/loss": [(2, 1.5)],
        "Determined/f1": [(2, 0.5)],
        "Determined/val_error": [(2, 4.0)],
        "Determined/val_loss": [(2, 3.0)],
    }


def test_only_single_numbers_are_written(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path, 0, is_enabled=True)
    metrics = {
        "tensor": torch.tensor(0.5),
        "scalar": numpy.float64(0.25),
        "whole": 2,
        "nan": math.nan,
        "text": "high",
        "none": None,
        "many": torch.ones(3),
        "nested": {"a": 1},
    }
    board.log_validation(1, metrics)
    board.close()
    found = read(tmp_path)
    assert math.isnan(found.pop("Determined/val_nan")[0][1])
    assert found == {
        "Determined/val_tensor": [(1, 0.5)],
        "Determined/val_scalar": [(1, 0.25)],
        "Determined/val_whole": [(1, 2.0)],
    }


def test_metrics_are_off_by_default_and_nothing_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "tensorboard"
    board = TensorBoard(folder, 0)
    board.log_training(1, {"loss": 1.0})
    board.log_validation(1, {"error": 1.0})
    board.flush()
    board.close()
    assert not folder.exists()


def test_logging_may_be_switched_on_and_off(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path, 0)
    board.set_enabled(True)
    board.log_training(1, {"loss": 1.0})
    board.set_enabled(False)
    board.log_training(2, {"loss": 2.0})
    board.close()
    assert read(tmp_path) == {"Determined/loss": [(1, 1.0)]}
    assert not board.is_enabled


def test_other_ranks_write_no_metrics_and_have_a_folder_of_their_own(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path, 2, is_enabled=True)
    board.log_training(1, {"loss": 1.0})
    board.writer().add_scalar("mine", 7.0, 1)
    board.close()
    assert board.path == tmp_path / "rank_2"
    assert read(tmp_path / "rank_2") == {"mine": [(1, 7.0)]}
    assert read(tmp_path) == {}


def test_the_writer_is_always_the_same_and_closing_twice_is_fine(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path, 0)
    writer = board.writer()
    assert board.writer() is writer
    board.close()
    board.close()


def test_a_writer_that_is_opened_again_takes_nothing_back(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path, 0)
    for step in (1, 2):
        board.writer().add_scalar("mine", float(step), step)
        board.close()
    assert read(tmp_path) == {"mine": [(1, 1.0), (2, 2.0)]}


def test_a_writer_from_before_the_start_takes_back_what_came_later(tmp_path: Path) -> None:
    run(tmp_path, 0, 4)
    board = TensorBoard(tmp_path, 0, is_enabled=True)
    board.writer().add_text("note", "made in __init__", 0)
    board.begin_at(2)
    board.log_training(3, {"loss": 7.0})
    board.close()
    assert read(tmp_path) == {
        "Determined/loss": [(2, 2.0), (3, 7.0)],
        "Determined/val_error": [(2, 2.0)],
    }


def run(folder: Path, first: int, last: int, *, validates_first: bool = False) -> None:
    """Train from one batch count to another, with a report and validation after every second."""
    board = TensorBoard(folder, 0, is_enabled=True, first_step=first)
    if validates_first:
        board.log_validation(first, {"error": float(first)})
    for steps in range(first + 2, last + 1, 2):
        board.log_training(steps, {"loss": float(steps)})
        board.log_validation(steps, {"error": float(steps)})
    board.close()


@pytest.mark.parametrize(("saved_at", "validates_first"), [(0, False), (2, False), (2, True)])
def test_a_resumed_run_doubles_no_points(
    tmp_path: Path, saved_at: int, validates_first: bool
) -> None:
    run(tmp_path, 0, 4)
    run(tmp_path, saved_at, 6, validates_first=validates_first)
    assert read(tmp_path) == {
        "Determined/loss": [(step, float(step)) for step in (2, 4, 6)],
        "Determined/val_error": [(step, float(step)) for step in (2, 4, 6)],
    }


def test_a_validation_that_was_still_to_come_is_written(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path, 0, is_enabled=True)
    board.log_training(2, {"loss": 1.0})
    board.close()
    run(tmp_path, 2, 2, validates_first=True)
    assert read(tmp_path)["Determined/val_error"] == [(2, 2.0)]


def test_without_the_package_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    board = TensorBoard(tmp_path, 0)
    expected = (
        r"the package tensorboard is not installed; run `pip install det-jupyter\[tensorboard\]`"
    )
    with pytest.raises(ConfigError, match=f"get_tensorboard_writer: {expected}"):
        board.writer()
    with pytest.raises(ConfigError, match=f"TensorBoard logging is enabled: {expected}"):
        board.set_enabled(True)
