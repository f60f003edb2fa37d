"""Observing a training: TensorBoard's event files, and torch's profiler.

    folder/            the chief's: what the trial writes, and Determined/<metric>
    folder/rank_1/     another rank's: what the trial writes there

det_jupyter stores all metrics itself, so it writes them here only on request. The step of a point
is the number of batches trained: 1 for the first batch. A run that continues from a checkpoint
withdraws the points that an earlier run wrote after it, and does not repeat a validation that the
earlier run had written. So no point occurs twice.

Needs the package `tensorboard`, but only when something is written.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy
import torch

from det_jupyter.core import ProfilerContext
from det_jupyter.errors import ConfigError

PREFIX = "Determined/"
_VALIDATED = ".validated"  # batches before the last validation that was written


class TensorBoard:
    """The TensorBoard files of one rank.

    Args:
        folder: The trial's, for all ranks and runs.
        rank: This rank.
        is_enabled: Whether metrics are written.
        first_step: Batches that earlier runs have trained; None if that is not known yet.

    Raises:
        ConfigError: Metrics are to be written, but tensorboard is not installed.
    """

    def __init__(
        self, folder: Path, rank: int, *, is_enabled: bool = False, first_step: int | None = None
    ) -> None:
        self._folder = folder if rank == 0 else folder / f"rank_{rank}"
        self._is_chief = rank == 0
        self._first_step = first_step
        self._writer: Any = None
        self._has_taken_back = False
        self.set_enabled(is_enabled)

    @property
    def path(self) -> Path:
        """This rank's folder, made if it is not there."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    def set_enabled(self, is_enabled: bool) -> None:
        """Write metrics from now on, or no longer."""
        if is_enabled:
            _check_installed("TensorBoard logging is enabled")
        self.is_enabled = is_enabled

    def begin_at(self, first_step: int) -> None:
        """Say how many batches earlier runs have trained, before the first of this one."""
        self._first_step = first_step
        if self._writer is not None:
            self._take_back()

    def writer(self) -> Any:
        """Return this rank's `torch.utils.tensorboard.SummaryWriter`, always the same.

        Count steps from 1 (`batch_idx + 1`): what lies after a checkpoint is taken back when
        training continues from it.
        """
        if self._writer is None:
            _check_installed("get_tensorboard_writer")
            from torch.utils.tensorboard import SummaryWriter

            _await_next_second(self.path)
            self._writer = SummaryWriter(str(self.path))
            self._take_back()
        return self._writer

    def _take_back(self) -> None:
        """Let TensorBoard drop what former runs wrote after the checkpoint, once it is known."""
        if self._has_taken_back or self._first_step is None:
            return
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]  # has no stubs

        step = self._first_step + 1 if self._first_step else 0
        start = SessionLog(status=SessionLog.START)
        self._writer.file_writer.add_event(Event(step=step, session_log=start))
        self._has_taken_back = True

    def log_training(self, steps: int, averages: Mapping[str, Any]) -> None:
        """Write a report's averages, at the number of batches trained."""
        if not self._is_writing():
            return
        self._write(averages, steps)
        self.flush()  # a checkpoint may follow, and what lies before it is not written again

    def log_validation(self, steps: int, metrics: Mapping[str, Any]) -> None:
        """Write a validation's metrics, as `val_<name>` unless their names begin with `val`."""
        if not self._is_writing() or self._has_validated(steps):
            return
        named = {
            name if name.startswith("val") else f"val_{name}": value
            for name, value in metrics.items()
        }
        self._write(named, steps)
        self.flush()
        (self.path / _VALIDATED).write_text(str(steps), encoding="utf-8")

    def flush(self) -> None:
        """Write out what is waiting."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Write out what is waiting, and end. May be called twice."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _is_writing(self) -> bool:
        return self.is_enabled and self._is_chief

    def _has_validated(self, steps: int) -> bool:
        """Whether a former run wrote the validation that this one begins with."""
        if steps != self._first_step or steps == 0:
            return False
        try:
            return int((self.path / _VALIDATED).read_text(encoding="utf-8")) >= steps
        except (FileNotFoundError, ValueError):
            return False

    def _write(self, metrics: Mapping[str, Any], step: int) -> None:
        writer = self.writer()
        for name, value in metrics.items():
            if (number := _to_number(value)) is not None:
                writer.add_scalar(PREFIX + name, number, step)


def _await_next_second(folder: Path) -> None:
    """Wait while an event file of this second is there.

    TensorBoard reads the files of a folder by name, which begins with the second they were made.
    """
    seconds = {file.name.split(".")[3] for file in folder.glob("events.out.tfevents.*")}
    while f"{int(time.time()):010d}" in seconds:
        time.sleep(0.02)


def _check_installed(where: str) -> None:
    if find_spec("tensorboard") is None:
        raise ConfigError(
            f"{where}: the package tensorboard is not installed; "
            "run `pip install det-jupyter[tensorboard]`"
        )


def _to_number(value: Any) -> float | None:
    """Return a scalar as a number; None for what TensorBoard cannot draw."""
    if isinstance(value, (torch.Tensor, numpy.ndarray)):
        return float(value) if value.ndim == 0 else None
    return float(value) if isinstance(value, (int, float, numpy.number)) else None


class Instruments:
    """The part of a PyTorchTrialContext that is about looking at the training.

    Args:
        folder: Where files for TensorBoard go.
        rank: This rank.
        profiler: The Core API's.

    Attributes:
        profiler: Sections and counters of the trial's own, for its timings.
        torch_profiler: What `set_profiler` made; the loop enters it and steps it with each batch.
        tensorboard: The files for TensorBoard of this rank.
    """

    def __init__(self, folder: Path, rank: int, profiler: ProfilerContext | None = None) -> None:
        self.profiler = profiler or ProfilerContext()
        self.torch_profiler: Any = None
        self.tensorboard = TensorBoard(folder, rank)

    def get_tensorboard_path(self) -> Path:
        """Return the folder for this rank's TensorBoard files."""
        return self.tensorboard.path

    def get_tensorboard_writer(self) -> Any:
        """Return a `torch.utils.tensorboard.SummaryWriter` that is closed with the trial."""
        return self.tensorboard.writer()

    def set_enable_tensorboard_logging(self, enable_tensorboard_logging: bool) -> None:
        """Write reported metrics to TensorBoard files too (off by default)."""
        if not isinstance(enable_tensorboard_logging, bool):
            raise TypeError(
                f"set_enable_tensorboard_logging: got {enable_tensorboard_logging!r}, "
                "expected True or False"
            )
        self.tensorboard.set_enabled(enable_tensorboard_logging)

    def get_enable_tensorboard_logging(self) -> bool:
        """Return whether reported metrics go to TensorBoard files too."""
        return self.tensorboard.is_enabled

    def set_profiler(self, *args: Any, **kwargs: Any) -> None:
        """Profile training with a `torch.profiler.profile` of these arguments.

        Traces go to the trial's TensorBoard folder unless `on_trace_ready` says otherwise. The
        profiler steps with each batch; give it a `schedule`, or it records all of them.
        """
        path = str(self.get_tensorboard_path())
        kwargs.setdefault("on_trace_ready", torch.profiler.tensorboard_trace_handler(path))
        self.torch_profiler = torch.profiler.profile(*args, **kwargs)

    def close(self) -> None:
        """Close the files for TensorBoard (called by the loop)."""
        self.tensorboard.close()
