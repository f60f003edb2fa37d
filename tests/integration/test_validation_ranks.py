"""Validations and training metrics between real ranks, over gloo."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from det_jupyter.core import DistributedContext, RecordList
from det_jupyter.core.peer_errors import PeerFailed
from det_jupyter.pytorch import DataLoader, PyTorchTrial, Reducer
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.metrics.evaluation import open_stream, validate
from det_jupyter.pytorch.metrics.training_metrics import LossWatch, TrainingMetrics
from det_jupyter.pytorch.reducers.custom_reducers import Reducers
from det_jupyter.pytorch.reducers.metric_reducer import MetricReducer
from det_jupyter.pytorch.trial.callback_runner import Callbacks
from det_jupyter.pytorch.trial.context import PyTorchTrialContext
from tests.integration.parallel_ranks import RankRunner

X = torch.randn(23, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


class LargestRows(MetricReducer):
    """The largest sum of a row, and where each rank found its own."""

    def reset(self) -> None:
        self.largest = torch.tensor(-torch.inf, dtype=torch.float64)

    def update(self, rows: torch.Tensor) -> None:
        self.largest = torch.maximum(self.largest, rows.sum(dim=1).max())

    def per_slot_reduce(self) -> torch.Tensor:
        return self.largest

    def cross_slot_reduce(self, per_slot_metrics: list[torch.Tensor]) -> dict[str, Any]:
        return {"largest": torch.stack(per_slot_metrics).max(), "slots": len(per_slot_metrics)}


def f1_per_class(values: list[Any]) -> dict[str, Any]:
    truth, guess = (torch.cat(column) for column in zip(*values, strict=True))
    hits = torch.stack([((truth == label) & (guess == label)).sum() for label in (0, 1)])
    both = torch.stack([(truth == label).sum() + (guess == label).sum() for label in (0, 1)])
    f1 = torch.where(both > 0, 2 * hits / both.clamp(min=1).double(), 0.0)
    return {"f1": f1, "truth": truth, "guess": guess}


class Trial(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext, records: int) -> None:
        torch.manual_seed(4)
        self.records = records
        self.model = context.wrap_model(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).double())
        self.f1 = context.reducers.wrap(f1_per_class)
        self.largest = context.reducers.wrap(LargestRows())

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(TensorDataset(X[: self.records]), 4)

    def evaluation_reducer(self) -> Any:
        return {"mean": Reducer.AVG, "sum": Reducer.SUM}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        (rows,) = batch
        outputs = self.model(rows)
        self.f1.update(((rows[:, 0] > 0).long(), outputs.argmax(dim=1)))
        self.largest.update(rows)
        return {"mean": outputs.mean(), "sum": outputs.sum()}


def evaluate(rank: DistributedContext, records: int) -> dict[str, Any]:
    context = PyTorchTrialContext(distributed=rank, device=torch.device("cpu"), trial_seed=1)
    trial = Trial(context, records)
    buffers = dict(trial.model.named_buffers())
    for name, buffer in buffers.items():
        if name.endswith("running_mean"):
            buffer += rank.rank  # as after a training batch: the chief's are evaluated
    loader = trial.build_validation_data_loader()
    stream = open_stream(trial, context, loader)
    return validate(trial, context, loader, stream, Callbacks({}))


def evaluate_each(rank: DistributedContext, sizes: list[int]) -> list[dict[str, Any]]:
    return [evaluate(rank, records) for records in sizes]


@pytest.mark.parametrize(("ranks", "sizes"), [(2, [23]), (3, [23, 1, 13])])
def test_ranks_find_what_one_finds_however_unequal_their_shares(
    run: RankRunner, ranks: int, sizes: list[int]
) -> None:
    found = run(evaluate_each, ranks, sizes)
    for index, records in enumerate(sizes):
        check_metrics([of_rank[index] for of_rank in found], records)


def check_metrics(found: list[dict[str, Any]], records: int) -> None:
    from sklearn.metrics import f1_score  # seconds, which the ranks can do without

    alone, ranks = evaluate(DistributedContext(), records), len(found)
    f1 = f1_score(alone["truth"], alone["guess"], labels=[0, 1], average=None, zero_division=0)
    for metrics in found:
        assert metrics["mean"] == pytest.approx(alone["mean"], rel=1e-12, abs=1e-13)
        assert metrics["sum"] == pytest.approx(alone["sum"], rel=1e-12, abs=1e-12)
        assert metrics["f1"] == pytest.approx(f1.tolist(), abs=1e-15)
        assert metrics["truth"] == (X[:records, 0] > 0).long().tolist()  # the order of the data
        assert metrics["largest"] == alone["largest"]
        assert metrics["slots"] == min(ranks, records)


def train(rank: DistributedContext, flushes: list[int]) -> tuple[str, list[list[float]]]:
    metrics = TrainingMetrics(rank, average=True)
    for batch_idx in range(40):
        records = (batch_idx + rank.rank) % 3
        value = torch.tensor(0.1 * batch_idx + rank.rank, dtype=torch.float64)
        metrics.add({"b": value if records else float("nan"), "a": value * 3}, batch_idx, records)
        if batch_idx in flushes:
            metrics.flush()
    metrics.flush()
    averages, values = metrics.report()
    return " ".join(number.hex() for number in averages.values()), values.tolist()


def train_twice(rank: DistributedContext) -> list[tuple[str, list[list[float]]]]:
    return [train(rank, [0, 1, 6, 7, 31]), train(rank, [])]


def test_the_bits_of_an_average_do_not_depend_on_when_it_was_flushed(run: RankRunner) -> None:
    found = [answer for of_rank in run(train_twice, 3) for answer in of_rank]
    assert [answer == found[0] for answer in found] == [True] * 6


def diverge(rank: DistributedContext) -> str:
    metrics = TrainingMetrics(rank, average=True, watch=LossWatch("stop", rank, RecordList()))
    metrics.add({"loss": float("nan") if rank.rank == 1 else 1.0}, 4, 1)
    metrics.flush(first_step=5)
    with pytest.raises(TrialMistake) as caught:
        metrics.check_losses()
    return str(caught.value).split(";")[0]


def test_a_loss_that_ends_the_trial_ends_it_on_every_rank(run: RankRunner) -> None:
    assert run(diverge, 2) == ["train_batch: loss became NaN at batch 4 on rank 1"] * 2


def fail(rank: DistributedContext) -> str:
    class Failing(LargestRows):
        def per_slot_reduce(self) -> torch.Tensor:
            if rank.rank == 1:
                raise ArithmeticError("nothing seen")
            return super().per_slot_reduce()

    reducers = Reducers()
    reducers.wrap(Failing())
    with pytest.raises((TrialMistake, PeerFailed)) as caught:
        reducers.reduce(rank, "training")
    return f"{type(caught.value).__name__}: {caught.value}"


def test_a_failing_reducer_leaves_nobody_waiting(run: RankRunner) -> None:
    told = (
        "TrialMistake: wrap_reducer: reducer Failing (training): "
        "per_slot_reduce raised ArithmeticError: nothing seen"
    )
    assert run(fail, 2) == [f"PeerFailed: rank 1 failed: {told}", told]
