"""Training from a script: `init` and `Trainer.fit` in this process."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from det_jupyter import pytorch
from det_jupyter.contract.host import interrupts
from det_jupyter.contract.run.journal import CheckpointSaved, MetricsReported
from det_jupyter.core import RecordList
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import Batch, Epoch

HPARAMS = {"global_batch_size": 8}


class Tiny(pytorch.PyTorchTrial):
    """A regression with shuffling, dropout and momentum; 30 records, so batches of 8, 8, 8, 6."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        )
        self.seen: list[float] = []

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(data(30), self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(data(10), 4)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        self.seen += x[:, 0].tolist()
        loss = nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"error": nn.functional.mse_loss(self.model(batch[0]), batch[1])}


def data(records: int) -> torch.utils.data.TensorDataset:
    x = torch.arange(records * 4.0).reshape(-1, 4) / 100
    return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))


def fit(
    folder: Path | str, trial_class: type[Tiny] = Tiny, **arguments: Any
) -> tuple[Tiny, list[Any]]:
    """Return the trained trial and the records of its training."""
    with pytorch.init(hparams=HPARAMS, seed=7, checkpoint_storage=folder) as context:
        trial = trial_class(context)
        trainer = pytorch.Trainer(trial, context)
        trainer.fit(**{"max_length": Batch(10), **arguments})
        assert context.core is not None
        assert isinstance(context.core.sink, RecordList)
        return trial, context.core.sink.records


def steps_of(records: list[Any], kind: type[Any], group: str = "") -> list[int]:
    return [
        record.steps_completed
        for record in records
        if isinstance(record, kind) and (not group or record.group == group)
    ]


def weights(trial: Tiny) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in trial.model.parameters()]


def test_periods_and_containers_say_when_things_happen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, records = fit(
        tmp_path,
        reporting_period=Batch(4),
        validation_period=Epoch([1, 2]),
        checkpoint_period=Batch([3, 5]),
        checkpoint_policy="none",
        step_zero_validation=True,
    )
    assert steps_of(records, MetricsReported, "training") == [3, 4, 5, 8, 10]
    assert steps_of(records, MetricsReported, "validation") == [0, 4, 8, 10]
    assert steps_of(records, CheckpointSaved) == [3, 5, 10]
    shown = capsys.readouterr().out
    assert "batch 10  validation  error" in shown
    assert "batch 5  checkpoint" in shown


@pytest.mark.parametrize("kind", ["directory", "zip"])
def test_a_training_that_goes_on_from_a_checkpoint_is_the_one_that_was_not_broken_off(
    tmp_path: Path, zip_location: str, kind: str
) -> None:
    storage = zip_location if kind == "zip" else str(tmp_path)
    straight, _ = fit(storage)
    first, records = fit(storage, max_length=Batch(6))
    saved = next(record for record in records if isinstance(record, CheckpointSaved))
    assert saved.path == f"{storage}/{saved.uuid}"
    second, _ = fit(storage, latest_checkpoint=saved.uuid)
    assert first.seen + second.seen == straight.seen
    assert all(map(torch.equal, weights(second), weights(straight)))
    third, records = fit(storage, latest_checkpoint=saved.path, max_length=Batch(6))
    assert third.seen == []  # it is there already


def test_a_test_run_tries_every_part_once(tmp_path: Path) -> None:
    trial, records = fit(tmp_path, max_length=Epoch(100), test_mode=True)
    assert len(trial.seen) == 8
    assert steps_of(records, MetricsReported, "validation") == [1]
    assert steps_of(records, CheckpointSaved) == [1]


@pytest.mark.parametrize("num_signals", [1, 2])
def test_an_interrupt_saves_and_the_training_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_signals: int
) -> None:
    monkeypatch.setattr(interrupts, "_TWICE_S", 60.0)

    class Interrupted(Tiny):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            if batch_idx == 3:
                for _ in range(num_signals):
                    os.kill(os.getpid(), signal.SIGINT)
            return super().train_batch(batch, epoch_idx, batch_idx)

    straight, _ = fit(tmp_path, max_length=Batch(300))
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match=r"fit\(latest_checkpoint='") as raised:
        fit(tmp_path, Interrupted, max_length=Batch(300))
    assert signal.getsignal(signal.SIGINT) is handler
    uuid = str(raised.value).split("'")[1]
    rest, _ = fit(tmp_path, max_length=Batch(300), latest_checkpoint=uuid)
    assert 0 < len(rest.seen) < len(straight.seen)
    assert all(map(torch.equal, weights(rest), weights(straight)))


def test_mistakes_are_told_in_the_users_terms(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="max_length: how long to train is missing"):
        fit(tmp_path, max_length=None)
    with pytorch.init(hparams=HPARAMS) as context:
        with pytest.raises(ConfigError, match=r"expected a PyTorchTrial \(create one: MyTrial"):
            pytorch.Trainer(Tiny, context)  # type: ignore[arg-type]  # the mistake
        with pytest.raises(TypeError, match=r"expected a whole number, or a container"):
            Batch("10 epochs".split)  # type: ignore[arg-type]  # the mistake
    with (
        pytest.raises(ConfigError, match=r"searcher\.divisor: got 1"),
        pytorch.init(exp_conf={"searcher": {"name": "adaptive_asha", "divisor": 1}}),
    ):
        pass


def test_a_second_fit_goes_on_where_the_first_has_ended(tmp_path: Path) -> None:
    straight, _ = fit(tmp_path, max_length=Batch(11))
    with pytorch.init(hparams=HPARAMS, seed=7, checkpoint_storage=tmp_path) as context:
        trial = Tiny(context)
        trainer = pytorch.Trainer(trial, context)
        trainer.fit(max_length=Batch(5))
        trainer.fit(max_length=Batch(11))
        assert trial.seen == straight.seen
        assert all(map(torch.equal, weights(trial), weights(straight)))
        with pytest.raises(ConfigError, match="this context belongs to another trial"):
            pytorch.Trainer(Tiny(context), context)


def test_a_window_begins_anew_where_a_training_had_ended(tmp_path: Path) -> None:
    steps: list[float] = []

    class Windows(Tiny):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            loss = next(self.model.parameters()).sum()
            self.context.backward(loss)
            self.context.step_optimizer(
                self.optimizer, lambda ps: steps.append(float(ps[0].grad.mean()))
            )
            return {"loss": loss}

    with pytorch.init(
        hparams=HPARAMS, seed=7, checkpoint_storage=tmp_path, aggregation_frequency=3
    ) as context:
        trainer = pytorch.Trainer(Windows(context), context)
        trainer.fit(max_length=Batch(7))
        trainer.fit(max_length=Batch(14))
    assert steps == [1.0] * 6  # batches 0-2, 3-5, 6; 7-8, 9-11, 12-13


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_length": 100}, r"max_length: got 100, expected pytorch\.Batch\(n\)"),
        ({"max_length": Batch(0)}, r"max_length: got Batch\(value=0\)"),
        ({"validation_period": 5}, "validation_period: got 5"),
        ({"checkpoint_policy": "bets"}, r"got 'bets'.*did you mean 'best'"),
        ({"latest_checkpoint": 5}, "latest_checkpoint: got 5"),
        ({"latest_checkpoint": "/nowhere/at/all"}, "there is no folder /nowhere/at/all"),
    ],
)
def test_arguments_of_fit_are_checked(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        fit(tmp_path, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hparams": ["a"]}, r"hparams: got \['a'\], expected a dict"),
        ({"exp_conf": "a.yaml"}, "exp_conf: got 'a.yaml'"),
        ({"aggregation_frequency": 0}, "aggregation_frequency: got 0"),
        ({"seed": "x"}, "seed: got 'x'"),
    ],
)
def test_arguments_of_init_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message), pytorch.init(**arguments):
        pass


def test_a_part_of_a_configuration_is_enough(tmp_path: Path) -> None:
    part = {"optimizations": {"aggregation_frequency": 2}}
    with pytorch.init(
        hparams=HPARAMS, exp_conf=part, seed=7, checkpoint_storage=tmp_path
    ) as context:
        pytorch.Trainer(Tiny(context), context).fit(
            max_length=Batch(6), validation_period=Batch(2)
        )
        assert context.core is not None
        assert isinstance(context.core.sink, RecordList)
        # Nobody has said what "best" means, so all are kept.
        assert steps_of(context.core.sink.records, CheckpointSaved) == [2, 4, 6]


def test_batches_stay_where_they_are_if_the_trial_moves_them_itself(tmp_path: Path) -> None:
    kinds: list[str] = []

    class Moving(Tiny):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            super().__init__(context)
            context.experimental.disable_auto_to_device()

        def build_training_data_loader(self) -> pytorch.DataLoader:
            def as_arrays(rows: list[Any]) -> list[Any]:
                return [torch.stack(column).numpy() for column in zip(*rows, strict=True)]

            return pytorch.DataLoader(data(16), 8, collate_fn=as_arrays)

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            kinds.append(type(batch[0]).__name__)
            return super().train_batch(self.context.to_device(batch), epoch_idx, batch_idx)

    fit(tmp_path, Moving, max_length=Batch(2))
    assert kinds == ["ndarray", "ndarray"]


def test_an_optimizer_that_is_not_wrapped_cannot_be_stepped(tmp_path: Path) -> None:
    class Careless(Tiny):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            super().__init__(context)
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    with pytest.raises(ConfigError, match="this SGD is not wrapped") as raised:
        fit(tmp_path, Careless)
    assert "train_batch, batch 0, on rank 0 of 1" in " ".join(raised.value.__notes__)


class Certain(Tiny):
    """Without dropout, whose draws are each rank's own."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        super().__init__(context)
        model: Any = self.model
        getattr(model, "module", model)[1].p = 0.0
