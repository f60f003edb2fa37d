"""TensorBoard's event files, and torch's profiler.

    folder/            of the chief: events that the trial writes, and Determined/<metric>
    folder/rank_1/     of rank 1: events that the trial writes there

The master stores all metrics, so they are written here only on request. The step of a point is the
number of batches trained: 1 for the first batch. A run that continues from a checkpoint lets
TensorBoard drop the points that an earlier run wrote after it, and does not write a validation
again that the earlier run has written. So no point occurs twice.

The package `tensorboard` is needed only when something is written.
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
_VALIDATED = ".validated"  # file with the steps of the last validation that was written


class TensorBoard:
    """The TensorBoard files of one rank.

    Args:
        folder: The trial's folder, for all ranks and runs.
        rank: This rank.
        is_enabled: Whether metrics are written.
        first_step: Batches that earlier runs have trained; None: `begin_at` will set it.

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
        self._has_dropped = False
        self.set_enabled(is_enabled)

    @property
    def path(self) -> Path:
        """This rank's folder, created if it does not exist."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    def set_enabled(self, is_enabled: bool) -> None:
        """Switch the writing of metrics on or off."""
        if is_enabled:
            _check_installed("TensorBoard logging is enabled")
        self.is_enabled = is_enabled

    def begin_at(self, first_step: int) -> None:
        """Set how many batches earlier runs have trained, before the first batch of this run."""
        self._first_step = first_step
        if self._writer is not None:
            self._drop_later_points()

    def writer(self) -> Any:
        """Return this rank's `torch.utils.tensorboard.SummaryWriter`, always the same.

        Count steps from 1 (`batch_idx + 1`): points after a checkpoint are dropped when training
        continues from it.
        """
        if self._writer is None:
            _check_installed("get_tensorboard_writer")
            from torch.utils.tensorboard import SummaryWriter

            _await_next_second(self.path)
            self._writer = SummaryWriter(str(self.path))
            self._drop_later_points()
        return self._writer

    def _drop_later_points(self) -> None:
        """Write a SessionLog.START: TensorBoard drops points of earlier runs after this step."""
        if self._has_dropped or self._first_step is None:
            return
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]  # no stubs

        step = self._first_step + 1 if self._first_step else 0
        start = SessionLog(status=SessionLog.START)
        self._writer.file_writer.add_event(Event(step=step, session_log=start))
        self._has_dropped = True

    def log_training(self, steps: int, averages: Mapping[str, Any]) -> None:
        """Write a report's averages, at the number of batches trained."""
        if not self._is_writing():
            return
        self._write(averages, steps)
        self.flush()  # points before a checkpoint, which may follow, are not written again

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
        """Write buffered events to the file."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Write buffered events and close the file. Idempotent."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _is_writing(self) -> bool:
        return self.is_enabled and self._is_chief

    def _has_validated(self, steps: int) -> bool:
        """Return whether an earlier run wrote the validation that this run begins with."""
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
    """Wait while the folder has an event file created in this second.

    TensorBoard reads the files of a folder in the order of their names, which begin with the
    second of their creation.
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
    """Return a scalar as a float; None for other values, which TensorBoard cannot plot."""
    if isinstance(value, (torch.Tensor, numpy.ndarray)):
        return float(value) if value.ndim == 0 else None
    return float(value) if isinstance(value, (int, float, numpy.number)) else None


class Instruments:
    """Methods of a PyTorchTrialContext for TensorBoard and torch's profiler.

    Args:
        folder: The trial's folder for TensorBoard's files.
        rank: This rank.
        profiler: The profiler of the Core API.

    Attributes:
        profiler: The trial's own sections and counters, for its timings.
        torch_profiler: Created by `set_profiler`; the loop enters it and steps it with each batch.
        tensorboard: The TensorBoard files of this rank.
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

        Traces are written to the trial's TensorBoard folder, unless `on_trace_ready` is given. The
        profiler steps with each batch; without a `schedule` it records all batches.
        """
        path = str(self.get_tensorboard_path())
        kwargs.setdefault("on_trace_ready", torch.profiler.tensorboard_trace_handler(path))
        self.torch_profiler = torch.profiler.profile(*args, **kwargs)

    def close(self) -> None:
        """Close TensorBoard's files (called by the loop)."""
        self.tensorboard.close()
