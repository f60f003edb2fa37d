"""A rehearsal: a short run that only measures how fast a trial trains, with one thing changed.

    DET_JUPYTER_REHEARSAL="seconds=5 warmup=4 replay=16"

    warm-up     at least `warmup` batches and one second (or `seconds`, if that is less), and until
                batches to replay are recorded
    measured    `seconds`, in ten slices of a multiple of `every` batches (so that each has the
                same share of exchanges); in each, the records that all ranks train per second
    the end     the chief reports the median of the slices and the run leaves, without a checkpoint

`experiment.diagnose()` sets the variable to run its recipes, and an estimate before a submission.
Changes that a configuration can express are made there; others are made here: `replay=16` trains
the first 16 batches over and over from memory, `workers=1` gives the training data more loader
workers. `memory=1` counts the memory of tensors in the warm-up (memory_meter.py); with `fake=1`,
too, nothing else is done, and tensors have no values (meta_batches.py).

All ranks end at the same batch, because the chief's request to leave is exchanged
(batch_events.py). If the run has to leave earlier for another reason, it ends without a report.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle
from statistics import quantiles
from typing import Any

from det_jupyter.core import Context
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.data import BatchStream, DataLoader, Share
from det_jupyter.pytorch.training.memory_meter import MemoryMeter
from det_jupyter.pytorch.trial.context import PyTorchTrialContext

VARIABLE = "DET_JUPYTER_REHEARSAL"
GROUP = "rehearsal"  # group of the metrics that a rehearsal reports
_SLICES = 10
_MIN_SLICES = 3
_WARMUP_S = 1.0
_MORE_WORKERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalPlan:
    """The content of the environment variable DET_JUPYTER_REHEARSAL."""

    seconds: float = 5.0
    warmup: float = 4
    every: float = 1
    replay: float = 0
    workers: float = 0
    memory: float = 0
    fake: float = 0

    @classmethod
    def parse(cls, text: str) -> RehearsalPlan:
        """Parse the content of the environment variable.

        Raises:
            ConfigError: The text is malformed.
        """
        try:
            given = dict(entry.split("=") for entry in text.split())
            return cls(**{name: float(value) for name, value in given.items()})
        except (TypeError, ValueError):
            raise ConfigError(
                f"{VARIABLE}: got {text!r}, expected seconds=S warmup=N every=N replay=N "
                "workers=1 memory=1 fake=1"
            ) from None


@dataclass(eq=False)
class Rehearsal:
    """Measures a run, on one rank."""

    plan: RehearsalPlan
    core: Context
    clock: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        self._replay: Replay | None = None
        self._workers: dict[str, int] = {}
        self._batches = 0
        self._first_at = 0.0
        self._slice_at: float | None = None  # beginning of the present slice; None in the warm-up
        self._first = 0  # batches of the warm-up
        self._records = 0
        self._measured_s = 0.0
        self._rates: list[float] = []
        self._batch_records = 0  # of all ranks
        self._meter: MemoryMeter | None = None
        self._counting = ExitStack()

    @classmethod
    def of(cls, environment: Mapping[str, str], core: Context) -> Rehearsal | None:
        """Return the rehearsal that this rank runs; None if it trains as usual.

        Raises:
            ConfigError: The variable is malformed.
        """
        text = environment.get(VARIABLE)
        if text is None:
            return None
        if core.distributed.is_chief:
            sys.stderr.write(f"{VARIABLE}={text}: this run only measures; nothing is saved\n")
        return cls(RehearsalPlan.parse(text), core)

    @contextmanager
    def counting(self, context: PyTorchTrialContext) -> Iterator[None]:
        """Count the memory of batches that are trained in the block, if the plan has `memory`."""
        with self._counting:
            if self.plan.memory:
                self._meter = MemoryMeter(context)
            yield

    def prepare(self, loader: Any) -> None:
        """Give the loader of the training data more workers, if the plan has `workers`.

        Raises:
            ConfigError: The loader is no det_jupyter DataLoader.
        """
        if not self.plan.workers:
            return
        if not isinstance(loader, DataLoader):
            kind = type(loader).__name__
            raise ConfigError(
                f"the loader is a {kind}; only a det_jupyter.pytorch.DataLoader gets workers"
            )
        before = loader.num_workers
        processors = (os.cpu_count() or 1) // self.core.distributed.local_size
        more = min(processors, max(_MORE_WORKERS, 2 * before))  # twice as many, if there is room
        loader.num_workers = max(before + 1, more)
        self._workers = {"workers_before": before, "workers": loader.num_workers}

    def replayed(self, stream: BatchStream) -> BatchStream:
        """Return the stream to train: the given one, or a replay of its first batches."""
        if self._meter is not None:  # the first batch is next
            self._counting.enter_context(self._meter.counting())
        if not self.plan.replay:
            return stream
        self._replay = Replay(stream, int(self.plan.replay))
        return self._replay

    def after_batch(self, share: Share) -> None:
        """Count a batch; `share` is this rank's share of it."""
        now = self.clock()
        self._batches += 1
        self._batch_records = share.total
        if self._slice_at is None:
            self._warm_up(now)
            return
        self._records += share.total
        elapsed_s = now - self._slice_at
        is_whole = (self._batches - self._first) % self.plan.every == 0
        if elapsed_s >= self.plan.seconds / _SLICES and is_whole:
            self._rates.append(self._records / elapsed_s)
            self._measured_s += elapsed_s
            self._slice_at, self._records = now, 0

    def _warm_up(self, now: float) -> None:
        if self._batches == 1:
            self._first_at = now
        is_recorded = self._replay is None or self._replay.is_recorded
        is_late = now - self._first_at >= min(_WARMUP_S, self.plan.seconds)
        if is_late and is_recorded and self._batches >= self.plan.warmup:
            self._counting.close()  # which takes time
            self._slice_at, self._first = self.clock(), self._batches

    def is_over(self) -> bool:
        """Return whether the chief has measured enough."""
        if not self.core.distributed.is_chief:
            return False
        is_enough = self._measured_s >= self.plan.seconds
        return is_enough and len(self._rates) >= _MIN_SLICES

    def end(self, steps: int) -> None:
        """Report the rates; nothing if the run leaves before the measurement is over."""
        if self.is_over():
            low, middle, high = quantiles(self._rates, n=4, method="inclusive")
            rates = {"records_per_s": middle, "low": low, "high": high}
            found = rates | {"seconds": self._measured_s} | self._workers
            if self._meter is not None:
                found |= self._meter.read() | {"seconds_per_batch": self._batch_records / middle}
            self.core.train.report_metrics(GROUP, steps, found)


_MIN_RECORDED = 2  # batches, however slow the stream is
_RECORDING_S = 3.0


class Replay:
    """A stream that repeats the first batches of another one forever, from memory.

    A trial that changes its batches in place gets the changed ones again.

    Args:
        stream: The stream to record. Its workers end with the recording.
        most: How many batches are recorded; fewer if that takes longer than _RECORDING_S.
        clock: Returns seconds.

    Attributes:
        is_recorded: Whether the recording is over.
    """

    def __init__(
        self, stream: BatchStream, most: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.is_recorded = False
        self.batches_per_epoch = stream.batches_per_epoch
        self.smallest_share = stream.smallest_share
        self._stream = stream
        self._most = most
        self._clock = clock

    def __iter__(self) -> Iterator[tuple[Any, Share]]:
        recorded: list[tuple[Any, Share]] = []
        end = self._clock() + _RECORDING_S
        for batch in self._stream:
            recorded.append(batch)
            yield batch
            is_late = self._clock() >= end and len(recorded) >= _MIN_RECORDED
            if is_late or len(recorded) >= self._most:
                break
        self._stream.close()
        self.is_recorded = True
        yield from cycle(recorded)

    def close(self) -> None:
        self._stream.close()
