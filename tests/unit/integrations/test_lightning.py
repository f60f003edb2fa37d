"""The callback for Lightning: what it reports and saves, and that a pause changes nothing."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as L
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from det_jupyter import core
from det_jupyter.contract.run.journal import CheckpointSaved, MetricsReported, Progress
from det_jupyter.contract.values.lengths import Length
from det_jupyter.errors import DetError
from det_jupyter.integrations.lightning import DetCallback

NUM_EPOCHS, NUM_BATCHES = 4, 4

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own


class Net(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Dropout(0.2))

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss = self.net(batch[0]).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val_loss", self.net(batch[0]).square().mean())

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


class Targets:
    """A control page with the targets of a search, which are there at once."""

    def __init__(self, *targets: tuple[int, bool]) -> None:
        self._targets = list(targets)

    def target(self) -> tuple[int, bool] | None:
        return self._targets.pop(0) if self._targets else None

    def check(self, name: str) -> bool:
        return not self._targets  # the search has no more for this trial: it is asked to leave


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


@pytest.fixture
def context(tmp_path: Path) -> core.Context:
    return new_context(tmp_path)


def new_context(folder: Path, latest: str | None = None, **parts: Any) -> core.Context:
    context = core.init(checkpoint_storage=folder, sink=core.RecordList())
    info: Any = SimpleNamespace(latest_checkpoint=latest, trial_id=1, device=torch.device("cpu"))
    return dataclasses.replace(context, info=info, **parts)


def fit(context: core.Context, callbacks: list[Any] | None = None, **arguments: Any) -> Any:
    L.seed_everything(5, verbose=False)
    data = TensorDataset(torch.randn(16 * NUM_BATCHES, 8))
    with context:
        if callbacks is None:
            callback = DetCallback()
            callbacks, arguments = [callback], {"ckpt_path": callback.ckpt_path, **arguments}
        trainer = L.Trainer(
            max_epochs=NUM_EPOCHS,
            callbacks=callbacks,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=bool(callbacks),
            enable_progress_bar=False,
            enable_model_summary=False,
            log_every_n_steps=2,
        )
        trainer.fit(Net(), DataLoader(data, 16, shuffle=True), DataLoader(data, 16), **arguments)
    return trainer


def records(context: core.Context, kind: type) -> list[Any]:
    sink: Any = context.sink
    return [each for each in sink.records if isinstance(each, kind)]


def metrics(context: core.Context) -> list[tuple[str, int, dict[str, float]]]:
    reported = records(context, MetricsReported)
    return [(each.group, each.steps_completed, dict(each.metrics)) for each in reported]


def weights(trainer: Any) -> Any:
    return torch.cat([each.detach().flatten() for each in trainer.lightning_module.parameters()])


def test_metrics_progress_and_checkpoints_are_those_of_the_training(context: core.Context) -> None:
    alone = fit(context, callbacks=[])
    assert records(context, MetricsReported) == []
    trainer = fit(context)
    assert torch.equal(weights(trainer), weights(alone))
    steps = [(group, at, sorted(values)) for group, at, values in metrics(context)]
    assert steps[:4] == [
        ("training", 2, ["loss_step"]),
        ("training", 4, ["loss_step"]),
        ("validation", 4, ["val_loss"]),
        ("training", 4, ["loss_epoch"]),
    ]
    assert [each.steps_completed for each in records(context, CheckpointSaved)] == [4, 8, 12, 16]
    assert records(context, Progress)[-1].fraction == 1.0


def test_paused_training_goes_on_as_if_it_had_not_been_paused(
    tmp_path: Path, context: core.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = fit(context)
    first = new_context(tmp_path / "paused")
    answers = iter([False, False, True])
    monkeypatch.setattr(first.preempt, "should_preempt", lambda: next(answers))
    assert fit(first).global_step == 2 * NUM_BATCHES
    uuid = records(first, CheckpointSaved)[-1].uuid
    second = new_context(tmp_path / "paused", uuid)
    torch.manual_seed(99)  # of another process
    trainer = fit(second)
    assert torch.equal(weights(trainer), weights(undisturbed))
    assert metrics(first) + metrics(second) == metrics(context)
    assert [each.steps_completed for each in records(second, CheckpointSaved)] == [12, 16]


def search(context: core.Context, unit: Any, metric: str, *targets: tuple[int, bool]) -> Any:
    """Return the context in a search whose first target is 1."""
    page: Any = Targets(*targets)
    searcher = core.SearcherContext(
        Length(unit, 1),
        is_last=False,
        page=page,
        distributed=context.distributed,
        sink=context.sink,
        train=context.train,
        metric=metric,
    )
    return dataclasses.replace(context, searcher=searcher)


def test_search_stops_a_trial_at_an_epoch(context: core.Context) -> None:
    searched = search(context, "epochs", "val_loss", (3, False))
    assert fit(searched).global_step == 3 * NUM_BATCHES
    assert [each.steps_completed for each in records(context, CheckpointSaved)] == [4, 8, 12]


@pytest.mark.parametrize(
    ("unit", "metric", "problem"),
    [
        ("batches", "val_loss", r"max_length is in batches.*write max_length: \{epochs: N\}"),
        ("epochs", "accuracy", "metric is accuracy, which .* not logged; it has logged: val_loss"),
    ],
)
def test_search_that_cannot_be_followed_is_refused(
    context: core.Context, unit: str, metric: str, problem: str
) -> None:
    with pytest.raises(DetError, match=problem):
        fit(search(context, unit, metric, (3, False)))


@pytest.fixture
def continued(tmp_path: Path, context: core.Context) -> core.Context:
    fit(context)
    return new_context(tmp_path, records(context, CheckpointSaved)[0].uuid)


def test_run_that_continues_does_not_begin_anew(continued: core.Context) -> None:
    with pytest.raises(DetError, match=r"write trainer\.fit\(\.\.\., ckpt_path=callback"):
        fit(continued, ckpt_path=None)


def test_callback_needs_a_context_and_is_given_once(context: core.Context) -> None:
    core.set_current(None)
    with pytest.raises(DetError, match=r"DetCallback: .* inside of `with core\.init\(\)"):
        DetCallback()
    with context:
        callbacks = [DetCallback(), DetCallback()]
    with pytest.raises(DetError, match="it twice"):
        fit(context, callbacks)
