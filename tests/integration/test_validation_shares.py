"""A validation of many shares is that of the whole: exact numbers, odd shapes, every mistake.

Ranks are threads here; test_validation_ranks.py has real ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import TensorDataset

from det_jupyter.core import DistributedContext
from det_jupyter.core.peer_errors import PeerFailed
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import DataLoader, PyTorchCallback, PyTorchTrial, Reducer
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.metrics.evaluation import open_stream, validate
from det_jupyter.pytorch.trial.callback_runner import Callbacks
from det_jupyter.pytorch.trial.context import PyTorchTrialContext
from tests.unit.pytorch.thread_ranks import ThreadRank, results, run_ranks

ALL = torch.randn(64, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
AVG, SUM, MAX, MIN = Reducer.AVG, Reducer.SUM, Reducer.MAX, Reducer.MIN


class Trial(PyTorchTrial):
    """Evaluates the mean, sum, largest and smallest of its numbers."""

    def __init__(self, context: PyTorchTrialContext, records: int = 20, batch_size: int = 4):
        self.context = context
        self.model = nn.Identity()
        context.models.append(self.model)
        self.records, self.batch_size = records, batch_size

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(TensorDataset(ALL[: self.records]), self.batch_size)

    def evaluation_reducer(self) -> Any:
        return {"mean": AVG, "sum": SUM, "max": MAX, "min": MIN}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        assert not self.model.training
        assert not torch.is_grad_enabled()
        (x,) = batch
        return {"mean": x.mean(), "sum": x.sum(), "max": x.max(), "min": x.min()}


def make_context(rank: DistributedContext) -> PyTorchTrialContext:
    return PyTorchTrialContext(distributed=rank, device=torch.device("cpu"), trial_seed=3)


def evaluated(
    rank: DistributedContext,
    trial_class: type[Trial] = Trial,
    *,
    callback: PyTorchCallback | None = None,
    loader: Any = None,
    **options: Any,
) -> dict[str, Any]:
    trial = trial_class(make_context(rank), **options)
    callbacks = Callbacks({"one": callback} if callback else {})
    metrics = validated(trial, loader=loader, callbacks=callbacks)
    assert trial.model.training
    return metrics


def validated(
    trial: Trial,
    *,
    loader: Any = None,
    callbacks: Callbacks | None = None,
    limit: int | None = None,
) -> dict[str, Any]:
    loader = loader or trial.build_validation_data_loader()
    stream = open_stream(trial, trial.context, loader)
    return validate(trial, trial.context, loader, stream, callbacks or Callbacks({}), limit=limit)


# Numbers


@settings(max_examples=40)
@given(st.integers(1, 64), st.integers(1, 4), st.integers(1, 9))
def test_any_number_of_ranks_finds_what_the_data_has(
    records: int, size: int, batch_size: int
) -> None:
    x = ALL[:records]
    options = {"records": records, "batch_size": batch_size}
    for metrics in results(size, lambda rank: evaluated(rank, **options)):  # type: ignore[arg-type]  # both are integers
        assert metrics == {
            "max": x.max().item(),
            "mean": pytest.approx(x.mean().item(), rel=1e-12, abs=1e-14),
            "min": x.min().item(),
            "sum": pytest.approx(x.sum().item(), rel=1e-12, abs=1e-13),
        }


def test_averages_are_by_the_trials_own_length_where_it_tells_one() -> None:
    class Tokens(Trial):
        def get_batch_length(self, batch: Any) -> int:
            return 1 if batch[0].max() == ALL.max() else 0

    def run(rank: ThreadRank) -> Any:
        return evaluated(rank, Tokens, records=64, batch_size=1)["mean"]

    assert results(2, run) == [ALL.max().item()] * 2


@pytest.mark.parametrize("length", [-1, 2.5, True, None])
def test_a_length_that_is_no_number_of_records_is_refused(length: Any) -> None:
    class Wrong(Trial):
        def get_batch_length(self, batch: Any) -> int:
            return length  # type: ignore[no-any-return]  # the mistake

    with pytest.raises(TrialMistake, match=f"get_batch_length returned {length} for validation b"):
        evaluated(DistributedContext(), Wrong)


def test_a_validation_is_one_collective_for_its_metrics() -> None:
    def run(rank: ThreadRank) -> int:
        trial = Trial(make_context(rank))
        loader = trial.build_validation_data_loader()
        stream = open_stream(trial, trial.context, loader)
        counts = []
        for _ in range(2):  # the stream serves more than once
            before = rank.collectives
            validate(trial, trial.context, loader, stream, Callbacks({}))
            rank.barrier()
            counts.append(rank.collectives - before)
        assert counts[0] == counts[1]
        return counts[0]

    assert results(2, run)[0] == 1


def test_a_loader_of_torchs_is_each_ranks_own() -> None:
    def run(rank: ThreadRank) -> Any:
        mine = ALL[:5] if rank.rank == 0 else ALL[5:13]
        return evaluated(rank, loader=TorchDataLoader(TensorDataset(mine), 4))

    for metrics in results(2, run):
        assert metrics["mean"] == pytest.approx(ALL[:13].mean().item(), rel=1e-12)


def test_more_batches_than_are_held_at_once_change_nothing() -> None:
    data = torch.arange(2500, dtype=torch.float64)
    loader = DataLoader(TensorDataset(data), 1)
    assert evaluated(DistributedContext(), loader=loader) == {
        "max": 2499.0,
        "mean": 1249.5,
        "min": 0.0,
        "sum": 3123750.0,
    }


def test_a_trial_that_is_only_tried_out_evaluates_a_few_batches() -> None:
    trial = Trial(make_context(DistributedContext()))
    metrics = validated(trial, limit=2)
    assert metrics["max"] == ALL[:8].max().item()


def test_batches_stay_where_they_are_if_the_trial_moves_them_itself() -> None:
    class Own(Trial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            context.moves_batches = False
            context.to_device = None  # type: ignore[assignment,method-assign]  # not to be called

    assert evaluated(DistributedContext(), Own)["max"] == ALL[:20].max().item()


# Reducers of the trial's own


class Classifier(Trial):
    """Reports F1 per class, which no mean of batches is."""

    def __init__(self, context: PyTorchTrialContext, **options: Any) -> None:
        super().__init__(context, **options)
        self.f1 = context.reducers.wrap(per_class_f1, "f1", for_training=False)
        self.seen = context.reducers.wrap(
            lambda values: {"first": values[0], "count": len(values)}
        )

    def evaluation_reducer(self) -> Any:
        return AVG

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        (x,) = batch
        self.f1.update((x > 0, x > 0.3))
        self.seen.update(x[0])
        return {}


def per_class_f1(values: Sequence[Any]) -> Any:
    from sklearn.metrics import f1_score  # two seconds, which other tests can do without

    truth, guess = (torch.cat(column) for column in zip(*values, strict=True))
    return f1_score(truth, guess, average=None)


@pytest.mark.parametrize(("size", "records"), [(1, 64), (2, 37), (3, 50), (3, 2)])
def test_f1_per_class_is_that_of_the_whole_data(size: int, records: int) -> None:
    from sklearn.metrics import f1_score

    x = ALL[:records]
    expected = f1_score(x > 0, x > 0.3, average=None)
    for metrics in results(size, lambda rank: evaluated(rank, Classifier, records=records)):
        assert metrics["f1"] == pytest.approx(expected.tolist(), abs=1e-15)
        assert metrics["first"] == x[0].item()


def test_a_reducer_begins_every_validation_anew() -> None:
    trial = Classifier(make_context(DistributedContext()))
    trial.seen.update(torch.tensor(9.0))  # in training
    for _ in range(2):
        metrics = validated(trial)
        assert (metrics["first"], metrics["count"]) == (ALL[0].item(), 5)
    assert trial.context.reducers.reduce(DistributedContext(), "training") == {}


def test_a_reducers_metric_has_a_name_of_its_own() -> None:
    class Clashing(Classifier):
        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            super().evaluate_batch(batch, batch_idx)
            return {"f1": 1.0}

    first, second = run_ranks(2, lambda rank: evaluated(rank, Clashing))
    told = "wrap_reducer: reducer 'f1' returns the metric 'f1', which the trial returns as well"
    assert isinstance(first, TrialMistake)
    assert str(first) == told
    assert isinstance(second, PeerFailed)
    assert str(second) == f"rank 0 failed: TrialMistake: {told}"


# The whole at once


class Whole(Trial):
    """Evaluates everything on the chief."""

    evaluate_batch = PyTorchTrial.evaluate_batch

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        x = torch.cat([batch for (batch,) in data_loader])
        return {
            "count": len(x),
            "mean": x.mean(),
            "deciles": x.quantile(torch.tensor([0.0, 1.0], dtype=torch.float64)),
            "worst": math.inf,
            "note": None,
            "by_class": {"a": True, "b": "text"},
        }


def test_metrics_of_the_whole_are_whatever_json_can_hold() -> None:
    seen: list[Any] = []

    class Listening(PyTorchCallback):
        def on_validation_end(self, metrics: Mapping[str, Any]) -> None:
            seen.append(metrics)

    x = ALL[:20]
    expected = {
        "count": 20,
        "mean": x.mean().item(),
        "deciles": [x.min().item(), x.max().item()],
        "worst": math.inf,
        "note": None,
        "by_class": {"a": True, "b": "text"},
    }
    assert results(2, lambda rank: evaluated(rank, Whole, callback=Listening())) == [expected] * 2
    assert seen == [expected] * 2


def test_an_error_of_the_chief_is_heard_by_all() -> None:
    class Broken(Whole):
        def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
            raise KeyError("no such class")

    chief, other = run_ranks(2, lambda rank: evaluated(rank, Broken))
    assert isinstance(chief, KeyError)
    assert isinstance(other, PeerFailed)
    assert str(other) == "rank 0 failed: KeyError: 'no such class'"


def test_what_json_cannot_hold_is_refused_by_name() -> None:
    class Odd(Whole):
        def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
            return {"model": [self.model]}

    with pytest.raises(TrialMistake, match=r"^evaluate_full_dataset: metric 'model'\[0\]: got Id"):
        evaluated(DistributedContext(), Odd)


# Callbacks


class Noting(PyTorchCallback):
    def __init__(self) -> None:
        self.notes: list[Any] = []

    def on_validation_start(self) -> None:
        self.notes.append("start")

    def on_validation_epoch_start(self) -> None:
        self.notes.append("epoch_start")

    def on_validation_batch_end(self, outputs: Mapping[str, Any], batch_idx: int) -> None:
        self.notes.append((batch_idx, sorted(outputs)))

    def on_validation_epoch_end(self, outputs: Sequence[Any]) -> None:
        self.notes.append(len(outputs))

    def on_validation_end(self, metrics: Mapping[str, Any]) -> None:
        self.notes.append(sorted(metrics))


def test_hooks_run_in_their_order_on_every_rank() -> None:
    names = ["max", "mean", "min", "sum"]

    def run(rank: ThreadRank) -> Any:
        noting = Noting()
        evaluated(rank, callback=noting, records=5)
        return noting.notes

    assert results(2, run) == [
        ["start", "epoch_start", (0, names), 1, names],
        ["start", "epoch_start", (0, names), 1, names],
    ]


def test_ranks_without_batches_run_their_hooks_too() -> None:
    def run(rank: ThreadRank) -> Any:
        noting = Noting()
        evaluated(rank, callback=noting, records=1)
        return len(noting.notes)

    assert results(3, run) == [5, 4, 4]


# Mistakes


@pytest.mark.parametrize(("returned", "kind"), [(None, "None"), (3, "a int"), ([], "a list")])
def test_what_is_no_dict_is_told_with_rank_and_batch(returned: Any, kind: str) -> None:
    class Wrong(Trial):
        def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
            wrong = self.context.distributed.rank == 1 and batch_idx == 1
            return returned if wrong else super().evaluate_batch(batch, batch_idx)

    outcomes = run_ranks(2, lambda rank: evaluated(rank, Wrong))
    assert isinstance(outcomes[1], TrialMistake)
    assert str(outcomes[1]).startswith(
        f"evaluate_batch returned {kind} for batch 1 on rank 1, expected a dict of metrics"
    )


def test_after_an_error_models_are_in_training_mode() -> None:
    class Failing(Trial):
        def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
            raise ZeroDivisionError

    trial = Failing(make_context(DistributedContext()))
    with pytest.raises(ZeroDivisionError):
        validated(trial)
    assert trial.model.training


def test_data_without_batches_is_an_error_on_all_ranks() -> None:
    for outcome in run_ranks(2, lambda rank: evaluated(rank, records=0)):
        assert isinstance(outcome, ConfigError)
        assert "build_validation_data_loader: the validation data has no batches" in str(outcome)


def test_reducers_that_do_not_fit_are_an_error_on_all_ranks() -> None:
    class Wrong(Trial):
        def evaluation_reducer(self) -> Any:
            return {"mean": AVG, "median": AVG, "max": MAX, "min": MIN}

    for outcome in run_ranks(3, lambda rank: evaluated(rank, Wrong, records=1)):
        assert isinstance(outcome, (ConfigError, PeerFailed))
        assert "lacks sum, which evaluate_batch returns" in str(outcome)
        assert "has median, which evaluate_batch does not return" in str(outcome)


def test_ranks_with_different_metrics_are_told_apart() -> None:
    class Wrong(Trial):
        def evaluation_reducer(self) -> Any:
            return AVG

        def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
            return {f"m{self.context.distributed.rank}": 1.0}

    for outcome in run_ranks(2, lambda rank: evaluated(rank, Wrong)):
        assert isinstance(outcome, TrialMistake)
        assert "rank 1 returns m1, rank 0 m0; all ranks have to return the same" in str(outcome)
