"""Setting up a batch inference: arguments, context, and the checkpoint to continue from."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from det_jupyter import core
from det_jupyter.core import DistributedContext, read_metadata
from det_jupyter.core.opening import BY_TORCHRUN, many_processes
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.experimental.batches import Batches
from det_jupyter.pytorch.experimental.outputs import METADATA, Stretch, stretches_in
from det_jupyter.pytorch.experimental.processor import TorchBatchProcessor
from det_jupyter.pytorch.ranks.groups import choose_device, grouped, joined

_begun_in: core.Context | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a run begins: after how many batches."""

    done: int = 0
    path: Path | None = None  # of the checkpoint that says so
    stretches: tuple[Stretch, ...] = ()  # where its results are

    @classmethod
    def of(cls, context: core.Context, given: str | Path | None, batches: Batches) -> Start:
        """Return where to continue from.

        Raises:
            ConfigError: The checkpoint is of other data, or other batches.
        """
        known = context.info.plan.checkpoint if context.info else None
        path = Path(known.path) if known else Path(given) if given is not None else None
        saved = read_metadata(path).get(METADATA) if path is not None else None
        if saved is None:  # there is none, or the function has saved one of its own before
            return cls()
        present = {"records": batches.records, "batch_size": batches.batch_size}
        problems = [
            f"{path}: it is of {name} {saved[name]}, now it is {value}; start a new experiment"
            for name, value in present.items()
            if saved[name] != value
        ]
        if problems:
            raise ConfigError([f"torch_batch_process: {problem}" for problem in problems])
        return cls(done=saved["done"], path=path, stretches=stretches_in(saved))


def find_argument_problems(
    processor_class: Any, batch_size: Any, max_batches: Any, checkpoint_interval: Any
) -> list[str]:
    """Return what is wrong with the arguments, but for those of the data."""
    problems = []
    is_class = isinstance(processor_class, type)
    if not is_class or not issubclass(processor_class, TorchBatchProcessor):
        name = getattr(processor_class, "__name__", repr(processor_class))
        problems.append(
            f"batch_processor_cls: got {name}, expected a class derived from TorchBatchProcessor"
        )
    numbers = {"batch_size": batch_size, "max_batches": max_batches}
    given = {name: value for name, value in numbers.items() if value is not None}
    for name, value in {**given, "checkpoint_interval": checkpoint_interval}.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            problems.append(f"{name}: got {value!r}, expected a whole number from 1 on")
    return problems


def begin(context: core.Context) -> None:
    """Refuse a second inference in one experiment: a checkpoint holds the position of one."""
    global _begun_in
    if context.info is not None and _begun_in is context:
        raise ConfigError(
            [
                "torch_batch_process: this function has called it already, and an experiment "
                "keeps the position of one; submit another experiment for the second"
            ]
        )
    _begun_in = context


def open_context(
    distributed: DistributedContext | None, during: ExitStack, until_exit: ExitStack
) -> core.Context:
    """Return the rank's context, that of the surrounding `with core.init()`, or a new one.

    Several ranks have a process group, as with Determined; processors may use it.

    Args:
        during: Closed after the inference.
        until_exit: Closed at the end of the process.
    """
    context = core.current()
    if context is None:
        device = choose_device()
        if distributed is None:
            distributed = until_exit.enter_context(joined(device, "torch_batch_process"))
        elif distributed.size > 1:
            until_exit.enter_context(grouped(device))
        return during.enter_context(core.init(distributed=distributed))
    if distributed is not None and distributed.size != context.distributed.size:
        raise ConfigError(
            [
                f"torch_batch_process: distributed_context has {distributed.size} ranks, the "
                f"context of this process has {context.distributed.size}; leave it out"
            ]
        )
    variable = many_processes()
    if context.info is None and context.distributed.size == 1 and variable:
        raise ConfigError(
            [
                f"torch_batch_process: {variable}, but `core.init()` around it got no "
                "distributed, so each process would process every record; "
                f"pass {BY_TORCHRUN} there"
            ]
        )
    if context.distributed.size > 1:
        device = context.info.device if context.info else choose_device()
        until_exit.enter_context(grouped(device))
    return context
