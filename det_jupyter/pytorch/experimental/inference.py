"""Batch inference: all ranks together process every record of a dataset once.

    each round            rank r processes batch `first + r`, if there is one (setup.py)
    about 5 times a s     the ranks agree whether to leave (agreement.py)
    at intervals, and at  on_checkpoint_start; the chief saves one checkpoint of the position, the
    the end of the run    files that processors wrote since the last one, and the reducers' states

The files of a batch and the position become visible in the same moment (outputs.py). So however a
run ends, the next one continues with the first batch whose results are not stored, and each record
counts exactly once. Other effects of a processor (in a database, a web service) are not undone:
batches since the last checkpoint are processed again after a kill.
"""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from det_jupyter import core
from det_jupyter.core import DistributedContext
from det_jupyter.core.together import run_on_chief, settle
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.agreement import Agreement
from det_jupyter.pytorch.experimental.outputs import (
    METADATA,
    REDUCERS,
    Workspace,
    open_workspace,
)
from det_jupyter.pytorch.experimental.processor import (
    TorchBatchProcessor,
    TorchBatchProcessorContext,
    get_default_device,
)
from det_jupyter.pytorch.experimental.reducer_states import InferenceReducers
from det_jupyter.pytorch.experimental.setup import (
    Batches,
    InferenceStart,
    check_only_inference,
    find_argument_problems,
    find_problems,
    make_loader,
    open_context,
)
from det_jupyter.pytorch.messages import warn_user

_METADATA_VERSION = 1
_until_exit = ExitStack()  # keeps the process group open for code after the inference
atexit.register(_until_exit.close)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a batch inference ended.

    Args:
        finished: Whether all batches are done; if not, the run was preempted, and another run
            continues.
        batches: Number of batches of the dataset that are done.
        metrics: Results of the reducers; empty if `finished` is False.
        path: Folder of the newest checkpoint, which lists the output files.
    """

    finished: bool
    batches: int
    metrics: dict[str, Any]
    path: Path


def torch_batch_process(
    batch_processor_cls: type[TorchBatchProcessor],
    dataset: Any,
    batch_size: int | None = None,
    max_batches: int | None = None,
    checkpoint_interval: int = 5,
    dataloader_kwargs: Mapping[str, Any] | None = None,
    distributed_context: DistributedContext | None = None,
    *,
    latest_checkpoint: str | Path | None = None,
) -> Outcome:
    """Process every record of the dataset once, on all ranks together. Collective.

    Call it in a function that an experiment's `entrypoint` names, in a script under torchrun, or
    in a plain notebook (one rank). Batches are processed in order: rank r gets every `size`-th. In
    an experiment it continues where an earlier run ended. If it returns because the experiment was
    paused (`finished` is False), return from the function.

    Args:
        batch_processor_cls: The class that processes batches.
        dataset: A map-style dataset with a length, or a list of records.
        batch_size: Records of a batch; by default 1.
        max_batches: Number of batches of the dataset to process; by default all.
        checkpoint_interval: Batches that each rank processes between two checkpoints.
        dataloader_kwargs: More arguments of torch's DataLoader, such as num_workers.
        distributed_context: The ranks of a script; by default those of torch.distributed.
        latest_checkpoint: Outside of experiments: the folder of a checkpoint to continue from.

    Raises:
        ConfigError: Arguments are wrong (the error has all of them), or do not fit the checkpoint.
    """
    arguments = dict(dataloader_kwargs or {})
    problems = [
        *find_argument_problems(batch_processor_cls, batch_size, max_batches, checkpoint_interval),
        *find_problems(dataset, arguments),
    ]
    if problems:
        raise ConfigError([f"torch_batch_process: {problem}" for problem in problems])
    with ExitStack() as stack:
        context = open_context(distributed_context, stack, _until_exit)
        check_only_inference(context)
        if batch_size is None:
            batch_size = 1
            if context.distributed.is_chief:
                warn_user(
                    "torch_batch_process: batch_size is not given, so it is 1, which is slow; "
                    "give a larger one"
                )
        batches = Batches.of(dataset, batch_size, max_batches, arguments)
        start = InferenceStart.of(context, latest_checkpoint, batches)
        workspace = stack.enter_context(
            open_workspace(context.checkpoint, context.distributed, start.done, start.stretches)
        )
        inference = _Inference(batch_processor_cls, context, batches, workspace, start)
        return inference.run(dataset, arguments, checkpoint_interval)


class _Inference:
    """One run of an inference, on one rank."""

    def __init__(
        self,
        processor_class: type[TorchBatchProcessor],
        context: core.Context,
        batches: Batches,
        workspace: Workspace,
        start: InferenceStart,
    ) -> None:
        self._core = context
        self._distributed = context.distributed
        self._batches = batches
        self._workspace = workspace
        self._done = start.done
        self._saved = start.done
        self._path = start.path
        device = get_default_device(context)
        self._reducers = InferenceReducers(context.distributed, device)
        self._context = TorchBatchProcessorContext(
            context, device, workspace.outputs, self._reducers
        )
        self._processor = processor_class(self._context)
        if start.path is not None:
            self._reducers.restore(start.path / REDUCERS)

    def run(self, dataset: Any, arguments: Mapping[str, Any], interval: int) -> Outcome:
        """Process the remaining batches, save, and return the outcome."""
        size, total = self._distributed.size, self._batches.total
        own = range(self._done + self._distributed.rank, total, size)
        loader = iter(make_loader(dataset, self._batches, own, arguments))
        try:
            is_finished = self._process_rounds(loader, interval)
        finally:
            del loader  # ends its workers, which os._exit would leave behind
        metrics = self._finish() if is_finished else {}
        assert self._path is not None
        return Outcome(finished=is_finished, batches=self._done, metrics=metrics, path=self._path)

    def _process_rounds(self, loader: Iterator[Any], interval: int) -> bool:
        """Process batches until all are done (True), or until the run has to leave."""
        size, total = self._distributed.size, self._batches.total
        agreement = Agreement(self._distributed, self._core.preempt, steps_completed=0)
        starts = range(self._done, total, size)
        for round_number, first in enumerate(starts, start=1):
            if (index := first + self._distributed.rank) < total:
                batch = next(loader)
                self._reducers.took_part = True
                with torch.no_grad():
                    self._processor.process_batch(batch, index)
            self._done = min(first + size, total)
            self._core.train.note_steps(self._done)
            is_last = round_number == len(starts)
            is_due = round_number % interval == 0 and not is_last
            if is_due or round_number == agreement.due_at:
                agreement.measure(round_number)
                decision = agreement.exchange(
                    round_number, leave=False, stop=False, is_written=False
                )
                leaves = decision.leave and not is_last
                if is_due or leaves:
                    self._save()
                self._report_progress()
                if leaves:
                    self._core.preempt.acknowledge_preemption_signal()
                    return False
        return True

    def _finish(self) -> dict[str, Any]:
        """Save the last checkpoint, unless an earlier run did, and report. Collective."""
        if self._path is None or self._saved < self._done:
            self._save(is_last=True)
        metrics = self._reducers.reduce()
        if self._distributed.is_chief and metrics:
            self._core.train.report_validation_metrics(self._done, metrics)
        self._report_progress()
        return metrics

    def _report_progress(self) -> None:
        if self._distributed.is_chief:
            total = max(self._done, self._batches.total)  # max_batches may be lower than before
            self._core.train.report_progress(self._done / total, self._done)

    def _save(self, *, is_last: bool = False) -> None:
        """Save a checkpoint of what was processed since the last one. Collective."""

        def flush() -> None:
            self._processor.on_checkpoint_start()
            if is_last:
                self._processor.on_finish()
            self._reducers.save(self._workspace.reducers)

        settle(self._distributed, flush, len, on_chief=False)
        # Only the chief has the path, since it draws the uuid.
        self._path = run_on_chief(self._distributed, self._commit)
        self._saved = self._done

    def _commit(self) -> Path:
        batches = self._batches
        described = {
            "version": _METADATA_VERSION,
            "done": self._done,
            "total": batches.total,
            "batch_size": batches.batch_size,
            "records": batches.records,
            "sources": self._context.sources,
        }
        return self._workspace.commit(
            self._core.checkpoint,
            range(self._saved, self._done),
            {"steps_completed": self._done, METADATA: described},
        )
