"""Setting up a batch inference: its batches, arguments, context, and where it continues.

    batch of the dataset     0  1  2  3  4  5  6  7        rows [i * batch_size, ...), in order
    rank, of three           0  1  2  0  1  2  0  1        in the third round rank 2 has none
                             └ round ┘

A position is a number of batches of the dataset, so it is the same for any number of ranks.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from det_jupyter import core
from det_jupyter.core import DistributedContext, read_metadata
from det_jupyter.core.opening import BY_TORCHRUN, many_processes
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.experimental.outputs import METADATA, Stretch, stretches_in
from det_jupyter.pytorch.experimental.processor import TorchBatchProcessor
from det_jupyter.pytorch.process_groups import choose_device, open_distributed, open_process_group

_ORDER = "the records are taken in their order, so that any number of ranks can go on"
_REFUSED = {
    "dataset": "give it as the dataset argument",
    "batch_size": "give it as the batch_size argument",
    "sampler": f"{_ORDER}; to leave records out, give a torch.utils.data.Subset",
    "batch_sampler": f"{_ORDER}; give a batch_size instead",
}
_KNOWN = inspect.signature(DataLoader.__init__).parameters.keys() - {"self"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """The batches of a dataset."""

    records: int  # in the dataset
    batch_size: int  # records of a batch; the last one may have fewer
    total: int  # batches to be processed

    @classmethod
    def of(
        cls, dataset: Any, batch_size: int, most: int | None, arguments: Mapping[str, Any]
    ) -> Batches:
        """Return at most `most` batches of a dataset without problems (`find_problems`)."""
        records = len(dataset)
        whole, rest = divmod(records, batch_size)
        total = whole + (rest > 0 and not arguments.get("drop_last"))
        total = total if most is None else min(total, most)
        return cls(records=records, batch_size=batch_size, total=total)

    def rows(self, index: int) -> range:
        """Return the indices of a batch's records."""
        return range(index * self.batch_size, min(self.records, (index + 1) * self.batch_size))


class _RankRows:
    """A batch sampler for torch's loader: the rows of one rank's batches."""

    def __init__(self, batches: Batches, indices: range) -> None:
        self._batches = batches
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    def __iter__(self) -> Iterator[list[int]]:
        return (list(self._batches.rows(index)) for index in self._indices)


def make_loader(
    dataset: Any, batches: Batches, indices: range, arguments: Mapping[str, Any]
) -> DataLoader[Any]:
    """Return a torch loader of the batches with these indices, in this order."""
    kept = {key: value for key, value in arguments.items() if key not in ("shuffle", "drop_last")}
    # Without a generator torch would draw the workers' base seed from the global one.
    kept.setdefault("generator", torch.Generator().manual_seed(0))
    return DataLoader(dataset, batch_sampler=_RankRows(batches, indices), **kept)


def find_problems(dataset: Any, arguments: Mapping[str, Any]) -> list[str]:
    """Return the problems of the dataset and of the arguments for torch's loader."""
    kind = type(dataset).__name__
    missing = [name for name in ("__len__", "__getitem__") if not hasattr(dataset, name)]
    problems = []
    if missing or isinstance(dataset, IterableDataset):
        lacks = f" without {' and '.join(missing)}" if missing else ", which can only be iterated"
        problems.append(
            f"dataset: got a {kind}{lacks}; its records must have numbers, so that each can be "
            "told from what is done: give a map-style dataset, or a list of the records"
        )
    elif not len(dataset):
        problems.append(f"dataset: the {kind} has no records")
    for key, value in arguments.items():
        where = f"dataloader_kwargs[{key!r}]"
        if key == "shuffle" and value:
            problems.append(f"{where}: got {value!r}, expected it to be left out: {_ORDER}")
        elif key in _REFUSED and value is not None:
            problems.append(f"{where}: {_REFUSED[key]}")
        elif key not in _KNOWN:
            problems.append(f"{where}: torch.utils.data.DataLoader has no such argument")
    return problems


_begun_in: core.Context | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceStart:
    """The position at which a run begins, and the results of earlier runs."""

    done: int = 0  # batches
    path: Path | None = None  # folder of the checkpoint to continue from
    stretches: tuple[Stretch, ...] = ()  # batches whose results earlier runs have stored

    @classmethod
    def of(
        cls, context: core.Context, given: str | Path | None, batches: Batches
    ) -> InferenceStart:
        """Return the start: that of the trial's checkpoint, or of the `given` one.

        Raises:
            ConfigError: The checkpoint is of a dataset of another length, or other batches.
        """
        planned = context.info.plan.checkpoint if context.info else None
        path = Path(planned.path) if planned else Path(given) if given is not None else None
        saved = read_metadata(path).get(METADATA) if path is not None else None
        if saved is None:  # no checkpoint, or one that the function itself saved
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
    """Return the problems of the arguments, except those of the data."""
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


def check_only_inference(context: core.Context) -> None:
    """Check that this is the first inference of its experiment.

    Raises:
        ConfigError: The experiment has an inference already; checkpoints have the position of only
            one inference.
    """
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
    """Return the rank's context: that of the surrounding `with core.init()`, or a new one.

    With several ranks, opens a process group, as Determined does; processors may use it.

    Args:
        distributed: The ranks of a script; None: those of torch.distributed.
        during: Closed after the inference.
        until_exit: Closed at the end of the process.

    Raises:
        ConfigError: The ranks of the surrounding context differ from those of the script.
    """
    context = core.current()
    if context is None:
        device = choose_device()
        if distributed is None:
            distributed = until_exit.enter_context(open_distributed(device, "torch_batch_process"))
        elif distributed.size > 1:
            until_exit.enter_context(open_process_group(device))
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
        until_exit.enter_context(open_process_group(device))
    return context
