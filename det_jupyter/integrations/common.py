"""Functions that several integrations use: for contexts, searches, origins and generators.

Also for classes and functions of a Keras model that are not Keras' own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from det_jupyter import core
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.trial.origin import Origin, name_of_class
from det_jupyter.errors import DetError


def current_context(context: core.Context | None, who: str) -> core.Context:
    """Return the given context, else the current one.

    Args:
        context: A context of the Core API; None: the current one.
        who: Name of the class that needs it, for the message.

    Raises:
        DetError: There is no context.
    """
    found = context or core.current()
    if found is None:
        raise DetError(
            f"{who}: there is no context of the Core API; write it inside of "
            "`with core.init() as context:`"
        )
    return found


def reporting_context(context: core.Context | None, who: str) -> core.Context:
    """Return the context of a callback, whose reports replace metrics that are read from events.

    Args and errors are those of `current_context`.
    """
    found = current_context(context, who)
    found.train.on_report()
    return found


def find_size_problem(
    what: str, num_processes: int, size: int, device: torch.device, for_cpu: str
) -> str:
    """Return why a trainer with `num_processes` cannot train a trial; "" if it can.

    Args:
        what: Name of the trainer.
        num_processes: Its number of processes.
        size: The number of the trial's ranks.
        device: The device of this process.
        for_cpu: The code with which ranks without GPUs train together, for the message.
    """
    if num_processes == size:
        return ""
    remedy = f"start the {what} on the trial's ranks only"
    if num_processes == 1 and device.type == "cpu":
        remedy = f"write {for_cpu}: without it, ranks without GPUs train alone"
    processes = "1 process" if num_processes == 1 else f"{num_processes} processes"
    return f"the {what} has {processes}, and the trial {size}; {remedy}"


class Operations:
    """How far a trial trains: to the end of each operation of its search, or only to its own end.

    A trial that no search compares any more (`single`, `random`, `grid`; a last rung, in a new
    process) has no operations. It trains to the target of its run.

    Args:
        context: The Core API's.
        who: Name of the callback, for messages.
        source: The code that evaluates the model, for messages.
    """

    def __init__(self, context: core.Context, who: str, source: str) -> None:
        self._context = context
        self._who = who
        self._source = source
        self._searcher = context.searcher
        self._rest: Iterator[core.SearcherOperation] = iter(())
        self._operation: core.SearcherOperation | None = None
        if not self._searcher.is_last:
            self._rest = self._searcher.operations()
            self._operation = next(self._rest)
        # Outside of experiments the trainer alone decides, and none of them counts records.
        is_counted = context.info is not None and self.unit is not core.Unit.RECORDS
        self._has_end = self._searcher.is_last and is_counted

    @property
    def unit(self) -> core.Unit:
        """The unit of the lengths."""
        return self._searcher.get_configured_units()

    @property
    def is_compared(self) -> bool:
        """Whether the search compares the trial where an operation ends."""
        return self._operation is not None

    def is_reached(self, length: float) -> bool:
        """Return whether the trial has trained up to the length of its operation, or its end."""
        if self._operation is not None:
            return length >= self._operation.length
        return self._has_end and length >= self._searcher.target.amount

    def go_on(self, length: float, metrics: Mapping[str, Any]) -> bool:
        """Return whether the trial trains on; it may wait for other trials first. Collective.

        Args:
            length: How far it has trained, in the unit of the operations.
            metrics: The metrics of the last validation; read on the chief.

        Raises:
            DetError: The searcher metric is not among them.
        """
        while self.is_reached(length):
            if self._operation is None:
                if not self._searcher.was_extended():
                    return False
                continue
            if self._context.distributed.is_chief:
                self._operation.report_completed(self._metric(metrics))
            self._operation = next(self._rest, None)
            if self._operation is None:
                return False
        return True

    def check_length(self, length: float, trainer: str, setting: str) -> None:
        """Check that a trainer trains up to the length of the operation, if there is one.

        Args:
            length: How far it trains, in the unit of the operations.
            trainer: Its name, for the message.
            setting: The setting to change, for the message.

        Raises:
            DetError: The trainer ends before the operation does.
        """
        if self._operation is not None and length < self._operation.length:
            unit = self._operation.unit.value
            raise DetError(
                f"{self._who}: {trainer} trains {length:g} {unit}, the search has "
                f"{self._operation.length} for this trial; write {setting} with the N of "
                f"searcher.max_length: {{{unit}: N}}"
            )

    def check_metric(self, metrics: Mapping[str, Any]) -> None:
        """Check that an evaluation has the searcher metric, if trials are compared by it.

        If they are not compared, the Core API writes a notice instead.

        Args:
            metrics: The metrics of the evaluation.

        Raises:
            DetError: The metric is not among them.
        """
        if self._operation is not None:
            self._metric(metrics)

    def _metric(self, metrics: Mapping[str, Any]) -> float:
        name = self._context.searcher.metric
        if name not in metrics:
            found = ", ".join(sorted(metrics)) or "none"
            raise DetError(
                f"{self._who}: searcher.metric is {name}, which {self._source} has not logged; "
                f"it has logged: {found}"
            )
        return float(metrics[name])


def origin_of(
    context: core.Context, library: str, model: object = None, *, needs_code: bool | None = None
) -> Origin:
    """Return the origin of a checkpoint, by which `Checkpoint.load` builds the model again.

    Args:
        context: The Core API's.
        library: The module of det_jupyter.integrations.
        model: The model; None: its class is not needed for loading.
        needs_code: Whether the captured code is needed to load it; by default if the class of the
            model is not the library's own.
    """
    name = "" if model is None else name_of_class(type(model))
    if needs_code is None:
        needs_code = model is not None and name.partition(".")[0] != library
    info = context.info
    if info is None:
        return Origin(trial_class=name, library=library)
    blobs = BlobStore.of(info.data_dir)
    origin = Origin.of_plan(info.plan, blobs, trial_class=name, library=library)
    return origin if needs_code else replace(origin, capsule=None, blobs=None)


def own_names(config: Any) -> dict[str, str]:
    """Return the classes and functions in a serialized Keras model that are not Keras' own.

    They are returned as `module:name`, by their registered names. Keras does not store the module
    of a function.

    >>> own_names({"module": "nets", "class_name": "Net", "registered_name": "mine>Net"})
    {'mine>Net': 'nets:Net'}
    >>> own_names({"module": "builtins", "class_name": "function", "config": "loss"})
    {'loss': '__main__:loss'}
    """
    if not isinstance(config, dict | list):
        return {}
    parts = config.values() if isinstance(config, dict) else config
    found = {name: place for each in parts for name, place in own_names(each).items()}
    if isinstance(config, list):
        return found
    module, name = config.get("module") or "__main__", config.get("class_name")
    if name == "function" and isinstance(config["config"], str):
        return found | {config["config"]: f"__main__:{config['config']}"}
    if config.get("registered_name") and module.partition(".")[0] not in ("keras", "builtins"):
        return found | {config["registered_name"]: f"{module}:{name}"}
    return found


def generators_file(folder: Path, rank: int) -> Path:
    """Return the file of a checkpoint with the states of a rank's random generators."""
    return folder / f"generators-{rank}.pt"


def save_generators(file: Path) -> None:
    """Save the states of Python's, NumPy's and torch's random generators."""
    state = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }
    torch.save(state, file)


def restore_generators(file: Path) -> None:
    """Restore the states that `save_generators` has saved."""
    set_generators(load_generators(file))


def load_generators(file: Path) -> dict[str, Any]:
    """Return the states that `save_generators` has saved."""
    state: dict[str, Any] = torch.load(file, weights_only=False)
    return state


def set_generators(state: Mapping[str, Any]) -> None:
    """Set Python's, NumPy's and torch's random generators to these states."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
