"""Profiles of a running trial by torch.profiler, as Chrome traces, which Perfetto opens.

    batch       1 warm-up    2 sample    3 warm-up    4, 5, ...
    recorded                 1 batch                  as many as fit

The sample is compressed to estimate how many batches fit the size limit. Then these are recorded.
Another thread compresses and writes the trace while training continues. If it is too large because
batches differ, fewer batches are recorded again.

A profile that fails is reported, and training continues. Nothing here is collective.
"""

from __future__ import annotations

import gzip
import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.profiler import kineto_available, profile, schedule

from det_jupyter.contract.messages import ProfileOrder
from det_jupyter.contract.run.journal import TraceSaved
from det_jupyter.contract.values.text import error_text, size

logger = logging.getLogger(__name__)

MAX_FILES = 40  # kept per trial; the oldest are removed
MAX_KEPT_BYTES = 1024**3
_MARGIN = 0.8  # fraction of the size limit to plan for, since batches differ
_LEVEL = 5  # compression: twice as fast as torch's 9, a few per cent larger


def traces_folder(data_dir: Path, experiment_id: int, trial_id: int) -> Path:
    """Return the folder for the traces of a trial."""
    return data_dir / "traces" / str(experiment_id) / str(trial_id)


@dataclass(eq=False)
class Tracer:
    """Records one profile on this rank. After a batch, call `step`.

    Args:
        order: The user's order.
        folder: The trial's folder for traces.
        rank: This rank.
        steps_completed: Batches trained so far.
        write: Called with the record of the result, on the training thread.
    """

    order: ProfileOrder
    folder: Path
    rank: int
    steps_completed: int
    write: Callable[[TraceSaved], None]

    def __post_init__(self) -> None:
        self.is_over = False
        self._wanted = self.order.profile
        self._profile: Any = None
        self._is_running = False
        self._recording = 0  # number of batches to record, after one for warm-up
        self._stepped = 0  # batches since the recording began
        self._is_sample = self._wanted.steps > 1
        self._note = ""
        self._first = self.steps_completed
        self._thread: threading.Thread | None = None
        self._written: tuple[Path, int] | Exception = RuntimeError("nothing was written")

    def start(self, *, has_own_profiler: bool) -> None:
        """Begin to record with the next batch, unless the trial has a profiler of its own."""
        if has_own_profiler:
            self._fail(
                "the trial has a profiler of its own (context.set_profiler), and torch.profiler "
                "can be used only once at a time; its traces are in the trial's TensorBoard folder"
            )
        elif not kineto_available():
            self._fail("this build of torch has no Kineto, which torch.profiler needs")
        else:
            self._try(lambda: self._record(1))

    def step(self) -> None:
        """Count a batch that has ended and advance the recording. Call this after each batch."""
        self.steps_completed += 1
        if self._thread is not None:
            if not self._thread.is_alive():
                self._try(self._report)
        elif not self.is_over:
            self._try(self._step)

    def close(self) -> None:
        """End the recording early, and wait until the recorded batches are written."""
        if not self.is_over and self._thread is None:
            self._try(self._stop_early)
        if not self.is_over:
            self._try(lambda: self._report(is_last=True))

    def _record(self, steps: int) -> None:
        wanted = self._wanted
        self._recording, self._stepped = steps, 0
        self._profile = profile(
            schedule=schedule(wait=0, warmup=1, active=steps, repeat=1),
            record_shapes=wanted.record_shapes,
            profile_memory=wanted.profile_memory,
            with_stack=wanted.with_stack,
            acc_events=True,  # else torch warns
        )
        self._profile.start()
        self._is_running = True

    def _step(self) -> None:
        self._profile.step()
        self._stepped += 1
        if self._stepped <= self._recording:
            return
        self._stop()
        if self._is_sample:
            self._is_sample = False
            _, num_bytes = self._export()
            self._record(self._fitting(num_bytes))
        else:
            self._save(self._recording)

    def _stop(self) -> None:
        if self._is_running:  # torch may end the process when it is stopped twice
            self._is_running = False
            self._profile.stop()

    def _fitting(self, num_bytes: int) -> int:
        """Return how many batches fit the limit, if the recorded ones have `num_bytes`.

        Raises:
            ValueError: Not even one batch fits.
        """
        most = self._wanted.max_bytes
        steps = min(self._wanted.steps, int(self._recording * most * _MARGIN / num_bytes))
        if steps == 0:
            raise ValueError(
                f"the trace of one batch has about {size(num_bytes / self._recording)}, and the "
                f"limit is {size(most)}; give a larger max_bytes"
            )
        if steps < self._wanted.steps:
            self._note = f"{self._wanted.steps} batches would exceed the limit of {size(most)}"
        return steps

    def _stop_early(self) -> None:
        recorded = self._stepped - 1
        self._stop()
        if self._is_sample or recorded < 1:
            raise ValueError("the run ended before a batch was recorded")
        self._note = f"the run ended before {self._wanted.steps} batches were recorded"
        self._save(recorded)

    def _save(self, steps: int) -> None:
        """Write the trace of `steps` batches in another thread; compression releases the GIL."""
        self._recording = steps
        self._first = self.steps_completed - steps
        self._thread = threading.Thread(target=self._write_out, name="det-trace", daemon=True)
        self._thread.start()

    def _write_out(self) -> None:
        batches = f"{self._first}-{self._first + self._recording - 1}"
        try:
            name = f"profile-{self.order.id}-rank-{self.rank}-batches-{batches}"
            self._written = self._export(name)
            _prune(self.folder)
        except Exception as error:  # a full disk, for example; reported with the next batch
            self._written = error

    def _export(self, name: str = "") -> tuple[Path, int]:
        """Compress the recorded trace; return file and size. Without a name, it is not kept."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.folder / f"{name}.json.gz"
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".part-") as scratch:
            plain, packed = Path(scratch) / "trace.json", Path(scratch) / "packed"
            self._profile.export_chrome_trace(str(plain))
            with plain.open("rb") as source, gzip.open(packed, "wb", _LEVEL) as target:
                shutil.copyfileobj(source, target, 1 << 20)
            num_bytes = packed.stat().st_size
            if name:
                packed.replace(path)
        return path, num_bytes

    def _report(self, *, is_last: bool = False) -> None:
        """Report the trace that was written; if it is too large, record fewer batches."""
        assert self._thread is not None
        self._thread.join()
        if isinstance(self._written, Exception):
            raise self._written
        path, num_bytes = self._written
        if num_bytes <= self._wanted.max_bytes:
            self._end(str(path), num_bytes)
            return
        path.unlink(missing_ok=True)
        self._thread = None
        fewer = min(self._fitting(num_bytes), self._recording - 1)
        if is_last or fewer == 0:
            raise ValueError(f"the trace has {size(num_bytes)}, more than the limit")
        self._record(fewer)

    def _try(self, action: Callable[[], None]) -> None:
        """Call `action`; report an error as the result, so that training continues."""
        try:
            action()
        except Exception as error:  # of torch's profiler, or of the disk
            logger.warning("profile %d: %s", self.order.id, error_text(error))
            with suppress(Exception):  # the first error is reported
                self._stop()
            self._fail(str(error) if isinstance(error, ValueError) else error_text(error))

    def _fail(self, error: str) -> None:
        self._recording = 0
        self._end(error=error)

    def _end(self, path: str = "", size_bytes: int = 0, error: str = "") -> None:
        self.is_over = True
        self._profile = self._thread = None
        self.write(
            TraceSaved(
                at=time.time(),
                order_id=self.order.id,
                first=self._first,
                steps=self._recording,
                path=path,
                size_bytes=size_bytes,
                error=error,
                note="" if error else self._note,
            )
        )


def _prune(folder: Path) -> None:
    """Remove the oldest traces beyond the limits; other ranks may do the same at this time."""
    files = []
    for path in folder.glob("*.json.gz"):
        with suppress(FileNotFoundError):
            status = path.stat()
            files.append((status.st_mtime, status.st_size, path))
    kept = 0
    for number, (_, num_bytes, path) in enumerate(sorted(files, reverse=True)):
        kept += num_bytes
        if number >= MAX_FILES or (kept > MAX_KEPT_BYTES and number > 0):
            path.unlink(missing_ok=True)
