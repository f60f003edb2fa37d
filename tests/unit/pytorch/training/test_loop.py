"""The loop in this process: which validations are saved, and what is told before leaving."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from det_jupyter import pytorch
from det_jupyter.contract.run.journal import BatchMetrics, CheckpointSaved, Record
from det_jupyter.core import RecordList
from det_jupyter.core.peer_errors import PeerLost
from det_jupyter.pytorch import Batch
from det_jupyter.pytorch.agreement import Agreement
from det_jupyter.pytorch.training.last_step import LastStep
from det_jupyter.pytorch.training.printing import PrintedRecords


class Scripted(pytorch.PyTorchTrial):
    """A trial whose validations come to the metrics in its hyperparameters."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.metrics = iter(context.get_hparam("metrics"))
        self.model = context.wrap_model(torch.nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 1)), 2)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return self.build_training_data_loader()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        loss = self.model(batch[0]).sum()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"batch": float(batch_idx)}

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        return {"m": next(self.metrics)}


def train(
    folder: Path, metrics: Sequence[float], *, smaller_is_better: bool = True, **arguments: Any
) -> list[Record]:
    """Return the records of a training that validates after each batch."""
    searcher = {"name": "single", "metric": "m", "smaller_is_better": smaller_is_better}
    with pytorch.init(
        hparams={"global_batch_size": 2, "metrics": list(metrics)},
        exp_conf={"searcher": {**searcher, "max_length": {"batches": len(metrics)}}},
        checkpoint_storage=folder,
    ) as context:
        periods = {"max_length": Batch(len(metrics)), "validation_period": Batch(1)} | arguments
        pytorch.Trainer(Scripted(context), context).fit(**periods)
        assert context.core is not None
        assert isinstance(context.core.sink, RecordList)
        return context.core.sink.records


@pytest.mark.parametrize(
    ("smaller_is_better", "metrics", "saved"),
    [
        (True, [0.5, 0.5, 0.4, 0.4, 0.6], [1, 3]),  # a tie is no better
        (False, [0.5, 0.5, 0.4, 0.6, 0.6], [1, 4]),
        (True, [float("nan"), 0.5, float("inf"), float("-inf")], [2]),
    ],
)
def test_a_validation_is_saved_that_is_better_than_all_before(
    tmp_path: Path, smaller_is_better: bool, metrics: list[float], saved: list[int]
) -> None:
    records = train(tmp_path, metrics, smaller_is_better=smaller_is_better)
    steps = [record.steps_completed for record in records if isinstance(record, CheckpointSaved)]
    assert steps == sorted({*saved, len(metrics)})  # and the end always is


def test_the_batches_since_the_last_flush_are_told_before_leaving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Asked(Agreement):
        """It is asked to leave after batch 3, long before the next flush is due."""

        def exchange(self, steps_completed: int, **wishes: Any) -> Any:
            verdict = super().exchange(steps_completed, **wishes | {"leave": steps_completed == 3})
            self.due_at = steps_completed + 1
            return verdict

    monkeypatch.setattr("det_jupyter.pytorch.training.batch_events.Agreement", Asked)
    monkeypatch.setattr(PrintedRecords, "write", RecordList.write)  # all, as in an experiment
    records = train(tmp_path, range(100), validation_period=None)
    told = [record for record in records if isinstance(record, BatchMetrics)]
    assert [(record.first, record.values) for record in told] == [
        (1, {"batch": [0.0]}),  # the first is told at once
        (2, {"batch": [1.0, 2.0]}),
    ]


class Interrupted(Scripted):
    """A trial that loses another rank at the place of its hyperparameters."""

    def lose(self, place: str, batch_idx: int) -> None:
        if (place, batch_idx) == (self.context.get_hparam("place"), 3):
            raise PeerLost(place)

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        trial = self

        class Losing(pytorch.PyTorchCallback):
            def on_training_epoch_start(self, epoch_idx: int) -> None:
                trial.lose("epoch start", 2 + epoch_idx)

            def on_training_epoch_end(self, epoch_idx: int) -> None:
                trial.lose("epoch end", 3 + epoch_idx)

        return {"losing": Losing()}

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.lose("batch", batch_idx)
        return super().train_batch(batch, epoch_idx, batch_idx)

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        self.lose("validation", 3)
        return {"m": 1.0}


@pytest.mark.parametrize(
    ("place", "steps", "is_whole"),
    [
        ("batch", 3, True),
        ("epoch start", 4, True),  # the next run begins the epoch again
        ("epoch end", 4, False),  # no next run would end it
        ("validation", 6, False),
    ],
)
def test_the_last_step_is_whole_unless_a_batch_or_event_is_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, steps: int, *, is_whole: bool
) -> None:
    kept = MagicMock(spec=LastStep, shards=None)
    monkeypatch.setattr(LastStep, "open", lambda *_: kept)
    with pytorch.init(
        hparams={"global_batch_size": 2, "metrics": [], "place": place},
        exp_conf={"searcher": {"name": "single", "metric": "m", "max_length": {"batches": 9}}},
        checkpoint_storage=tmp_path,
    ) as context:
        trainer = pytorch.Trainer(Interrupted(context), context)
        with pytest.raises(PeerLost, match=place):
            trainer.fit(max_length=Batch(9), validation_period=Batch(6))
    found = kept.save.call_args.kwargs
    assert (found["steps_completed"], found["is_whole"]) == (steps, is_whole)
    assert kept.forget.call_count == (place == "validation")
