"""A validation, on one rank in this process: what is computed, and what is as before after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from det_jupyter import pytorch
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import (
    DataLoader,
    PyTorchCallback,
    PyTorchTrial,
    PyTorchTrialContext,
    Reducer,
)
from det_jupyter.pytorch.metrics.evaluation import check_validation, open_stream, validate
from det_jupyter.pytorch.trial.callback_runner import Callbacks

DATA = DataLoader(torch.utils.data.TensorDataset(torch.arange(5.0)), 2)


@pytest.fixture
def context(tmp_path: Path) -> Iterator[PyTorchTrialContext]:
    config = {"searcher": {"name": "single", "metric": "mean", "max_length": {"batches": 1}}}
    with pytorch.init(
        hparams={"global_batch_size": 2}, exp_conf=config, checkpoint_storage=tmp_path
    ) as found:
        yield found


class Evaluating(PyTorchTrial):
    """Returns the mean of a batch, and has reducers that list what they are given."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.model = context.wrap_model(nn.Linear(1, 1))
        self.of_both = context.wrap_reducer(list, "both")
        self.of_training = context.wrap_reducer(list, "training", for_validation=False)
        self.of_validation = context.wrap_reducer(list, "validation", for_training=False)

    def build_training_data_loader(self) -> DataLoader:
        return DATA

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any: ...

    def note(self, what: Any) -> None:
        for reducer in (self.of_both, self.of_training, self.of_validation):
            reducer.update(what)

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        assert not self.model.training
        assert not torch.is_grad_enabled()
        (values,) = batch
        self.note(values.tolist())
        return {"mean": values.mean()}


class EvaluatingWhole(Evaluating):
    evaluate_batch = PyTorchTrial.evaluate_batch

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        for (values,) in data_loader:
            self.note(values.tolist())
        return {"mean": 2.0}


def run(trial: Evaluating, context: PyTorchTrialContext, **options: Any) -> dict[str, Any]:
    stream = open_stream(trial, context, DATA)
    try:
        callbacks = Callbacks(options.pop("callbacks", {}))
        return validate(trial, context, DATA, stream, callbacks, **options)
    finally:
        if stream is not None:
            stream.close()


def reduced(context: PyTorchTrialContext, phase: Any) -> dict[str, Any]:
    return context.reducers.reduce(context.distributed, phase)


BATCHES = [[0.0, 1.0], [2.0, 3.0], [4.0]]


@pytest.mark.parametrize("trial_class", [Evaluating, EvaluatingWhole])
def test_reducers_see_one_validation_and_begin_anew_after_it(
    context: PyTorchTrialContext, trial_class: type[Evaluating]
) -> None:
    trial = trial_class(context)
    trial.note("ahead of the first validation")
    expected = {"mean": 2.0, "both": BATCHES, "validation": BATCHES}
    assert run(trial, context) == expected
    assert reduced(context, "validation") == {}
    assert "both" not in reduced(context, "training")
    assert run(trial, context) == expected


def test_what_serves_the_training_alone_is_kept(context: PyTorchTrialContext) -> None:
    trial = Evaluating(context)
    trial.of_training.update("a batch")
    run(trial, context)
    assert reduced(context, "training") == {"training": ["a batch", *BATCHES]}


def test_models_train_again_after_it_and_after_an_error(context: PyTorchTrialContext) -> None:
    trial = Evaluating(context)
    run(trial, context)
    assert trial.model.training
    with pytest.raises(ZeroDivisionError):
        run(trial, context, after_batch=lambda: 1 / 0)
    assert trial.model.training
    assert torch.is_grad_enabled()


def test_a_limit_leaves_the_rest_of_the_batches_out(context: PyTorchTrialContext) -> None:
    called: list[int] = []
    trial = Evaluating(context)
    metrics = run(trial, context, limit=1, after_batch=lambda: called.append(1))
    assert (metrics["mean"], metrics["both"], called) == (0.5, BATCHES[:1], [1])


def test_callbacks_are_given_batches_outputs_and_metrics(context: PyTorchTrialContext) -> None:
    heard: list[Any] = []

    class Listening(PyTorchCallback):
        def on_validation_start(self) -> None:
            heard.append("start")

        def on_validation_epoch_start(self) -> None:
            heard.append("epoch")

        def on_validation_batch_end(self, outputs: Mapping[str, Any], batch_idx: int) -> None:
            heard.append((batch_idx, float(outputs["mean"])))

        def on_validation_epoch_end(self, outputs: Sequence[Any]) -> None:
            heard.append([float(each["mean"]) for each in outputs])

        def on_validation_end(self, metrics: Mapping[str, Any]) -> None:
            heard.append(metrics["mean"])

    run(Evaluating(context), context, callbacks={"it": Listening()})
    assert heard == ["start", "epoch", (0, 0.5), (1, 2.5), (2, 4.0), [0.5, 2.5, 4.0], 2.0]


def test_an_older_evaluate_batch_takes_no_index(context: PyTorchTrialContext) -> None:
    class Older(Evaluating):
        def evaluate_batch(self, batch: Any) -> dict[str, Any]:  # type: ignore[override]
            return {"mean": batch[0].mean()}

    assert run(Older(context), context)["mean"] == 2.0


def test_no_batches_are_one_clear_error(context: PyTorchTrialContext) -> None:
    with pytest.raises(ConfigError, match="the validation data has no batches"):
        run(Evaluating(context), context, limit=0)


SOME = DataLoader(torch.utils.data.TensorDataset(torch.zeros(3)), 2)
NONE = DataLoader(torch.utils.data.TensorDataset(torch.zeros(0)), 2)


def trial_with(**methods: Any) -> Any:
    """Return a trial with these methods, which nobody has initialised."""
    made = {name: lambda self, *_, value=value: value for name, value in methods.items()}
    return object.__new__(type("Trial", (PyTorchTrial,), made))


@pytest.mark.parametrize(
    ("reducer", "problem"),
    [
        ("mean", "evaluation_reducer: got 'mean', expected a Reducer, or a dict of them"),
        (Reducer, "evaluation_reducer: got <enum 'Reducer'>, expected a Reducer, or a dict of"),
        ({"a": max}, "for 'a', expected a Reducer, such as Reducer.AVG"),
    ],
)
def test_what_is_no_reducer_is_refused(reducer: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_validation(trial_with(evaluate_batch={}, evaluation_reducer=reducer), SOME)
    assert problem in str(caught.value)


@pytest.mark.parametrize("reducer", [Reducer.MAX, {"a": Reducer.AVG}])
def test_reducers_are_accepted_whatever_their_metrics_will_be(reducer: Any) -> None:
    check_validation(trial_with(evaluate_batch={}, evaluation_reducer=reducer), SOME)


def test_data_that_is_known_to_be_empty_is_refused() -> None:
    with pytest.raises(ConfigError, match="the validation data has no batches"):
        check_validation(trial_with(evaluate_batch={}), NONE)
    check_validation(trial_with(evaluate_batch={}), iter([]))  # nobody knows yet
    check_validation(trial_with(evaluate_full_dataset={}), NONE)  # it may have data of its own
