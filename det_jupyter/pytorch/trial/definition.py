"""The trial class that a user writes, and the checks of it that need no training."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, ClassVar, Literal

import torch

from det_jupyter.contract.trial.source import method_of, returned_metrics
from det_jupyter.contract.values.text import listed
from det_jupyter.errors import Problem
from det_jupyter.pytorch.data import DataLoader, Share, data_length
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.reducers.builtin_reducers import Reducer
from det_jupyter.pytorch.trial.callback import PyTorchCallback
from det_jupyter.pytorch.trial.context import PyTorchTrialContext

_REQUIRED = (
    "__init__",
    "train_batch",
    "build_training_data_loader",
    "build_validation_data_loader",
)
_ONE_OF = ("evaluate_batch", "evaluate_full_dataset")


class PyTorchTrial:
    """One training run: build the model, train a batch, evaluate a batch.

    `evaluate_batch` runs on all ranks, each on its share of the validation data, and its metrics
    are reduced by `evaluation_reducer`. Define `evaluate_full_dataset` instead if a metric cannot
    be combined from batches; it runs on the chief only.
    """

    # Other kinds of trials have others.
    _context_class: ClassVar[type[PyTorchTrialContext]] = PyTorchTrialContext
    _loop_class: ClassVar[Any] = None  # None: training.loop.Loop

    def __init__(self, context: PyTorchTrialContext) -> None:
        """Build and wrap models, optimizers and schedulers.

        Define it; calling `super().__init__(context)` is allowed, and has no effect.
        """

    def train_batch(
        self, batch: Any, epoch_idx: int, batch_idx: int
    ) -> torch.Tensor | dict[str, Any]:
        """Train on one batch of this rank, and return its metrics, or only its loss."""
        raise NotImplementedError

    def build_training_data_loader(self) -> DataLoader:
        """Return the loader of the training data, with batches of `get_per_slot_batch_size()`."""
        raise NotImplementedError

    def build_validation_data_loader(self) -> DataLoader:
        """Return the loader of the validation data."""
        raise NotImplementedError

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        """Return the metrics of one batch of this rank."""
        raise NotImplementedError

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        """Return the metrics of the whole validation data."""
        raise NotImplementedError

    def evaluation_reducer(self) -> Reducer | dict[str, Reducer]:
        """Return the reducer of all metrics, or a dict of reducers by name."""
        return Reducer.AVG

    def get_batch_length(self, batch: Any) -> int:
        """Return the number of records in a batch of this rank, for the weights of metrics.

        Override it if a record is not a row: graphs, tokens. Without it, a DataLoader counts rows.
        It is called with batches before they are moved to the device, and weights metrics of
        training and validation. Gradients of a DataLoader's batches are always weighted by rows;
        if the loss is a mean over something else, pass its weight: `context.backward(loss,
        weight=...)`. With loaders of other kinds it weights gradients too, because their rows are
        not known.
        """
        return data_length(batch)

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        """Return callbacks, by the names under which their state is saved."""
        return {}


def context_class(trial_class: Any) -> type[PyTorchTrialContext]:
    """Return the class of a trial's context; PyTorchTrialContext for what is no trial class."""
    found: type[PyTorchTrialContext]
    found = getattr(trial_class, "_context_class", PyTorchTrialContext)
    return found


def overrides(trial_class: type, method: str) -> bool:
    """Return whether the class defines the method itself."""
    given = getattr(trial_class, method, None)
    kinds = [vars(each) for each in trial_class.__mro__ if "_context_class" in vars(each)]
    return all(given is not kind.get(method) for kind in kinds)


_VARIADIC = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


def check_trial_class(trial_class: Any) -> list[str]:
    """Return the problems of the class, one line each. It is not instantiated."""
    if not isinstance(trial_class, type):
        return [f"got a {type(trial_class).__name__}, expected a class derived from PyTorchTrial"]
    name = trial_class.__name__
    if not issubclass(trial_class, PyTorchTrial):
        return [f"{name} does not derive from PyTorchTrial; write `class {name}(PyTorchTrial)`"]
    problems = []
    missing = [method for method in _REQUIRED if not overrides(trial_class, method)]
    if missing:
        pronoun = "it" if len(missing) == 1 else "them"
        problems.append(f"{name} lacks {listed(missing)}; define {pronoun} in the class")
    evaluating = [method for method in _ONE_OF if overrides(trial_class, method)]
    if not evaluating:
        problems.append(f"{name} lacks evaluate_batch; define it (or evaluate_full_dataset)")
    if len(evaluating) == 2:
        problems.append(f"{name} defines both {listed(evaluating)}; keep one of them")
    return problems


def check_constructor(trial_class: type) -> list[str]:
    """Return a problem if `trial_class(context)`, as a rank calls it, is not possible."""
    where = f"{trial_class.__name__}.__init__"
    try:
        signature = inspect.signature(trial_class)
    except (TypeError, ValueError):  # in C, without a signature
        return []
    with suppress(TypeError):
        signature.bind(None)
        return []
    named = [each for each in signature.parameters.values() if each.kind not in _VARIADIC]
    if not named or named[0].kind is inspect.Parameter.KEYWORD_ONLY:
        return [f"{where} does not take the context alone; write `def __init__(self, context)`"]
    surplus = [each.name for each in named[1:] if each.default is each.empty]
    return [
        f"{where} requires {listed(surplus)}, and ranks give it the context alone; read "
        "hyperparameters from context.get_hparams(), and give other parameters a default"
    ]


def check_searcher_metric(trial_class: type, metric: str) -> list[Problem]:
    """Return a problem if the class's source shows that it never reports `metric`.

    It is certain only if every `return` has a dict display with literal keys; otherwise returns
    [].
    """
    # The names of reducers' metrics are not known before they return them.
    codes = (getattr(function, "__code__", None) for function in vars(trial_class).values())
    if any("wrap_reducer" in code.co_names for code in codes if code):
        return []
    method = "evaluate_batch" if overrides(trial_class, "evaluate_batch") else _ONE_OF[1]
    source = method_of(trial_class, method)
    returned = None if source is None else returned_metrics(source)
    if returned is None or not returned.is_all:
        return []
    return describe_missing_metric(metric, set(returned.names))


def describe_missing_metric(metric: str, reported: set[str]) -> list[Problem]:
    """Return a problem if `metric` is not among the names of the reported metrics."""
    if metric in reported:
        return []
    nearest = get_close_matches(metric, sorted(reported), n=1)
    hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    known = ", ".join(sorted(reported)) or "nothing"
    return [Problem("searcher.metric", f"the trial reports {known}; got {metric!r}{hint}")]


def length_function(
    trial: PyTorchTrial, phase: Literal["training", "validation"]
) -> Callable[[Any, Share, int], int] | None:
    """Return a function that counts the records of a batch; None if the loader counts them.

    The function takes a batch as it was loaded, this rank's share of the global batch, and the
    batch's index. For a stand-in, whose share has 0 records, it returns 0. It raises a
    TrialMistake if `get_batch_length` returns no number of records.
    """
    if not overrides(type(trial), "get_batch_length"):
        return None

    def length(batch: Any, share: Share, batch_idx: int) -> int:
        if not share.records:
            return 0
        records = trial.get_batch_length(batch)
        if isinstance(records, bool) or not isinstance(records, int) or records < 0:
            raise TrialMistake(
                "get_batch_length",
                f"get_batch_length returned {records!r} for {phase} batch {batch_idx}, "
                "expected a number of records",
            )
        return records

    return length
