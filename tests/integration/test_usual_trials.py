"""Trials as users write them, for Determined or for us: each trains, pauses and goes on."""

from __future__ import annotations

import logging
import random
from collections import UserDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset, IterableDataset, TensorDataset, random_split

from det_jupyter import pytorch
from det_jupyter.contract.run.journal import CheckpointSaved, MetricsReported
from det_jupyter.core import RecordList
from det_jupyter.pytorch import (
    Batch,
    DataLoader,
    Epoch,
    LRScheduler,
    MetricReducer,
    PyTorchCallback,
    PyTorchTrial,
    PyTorchTrialContext,
    Reducer,
    load_trial_from_checkpoint_path,
)

HPARAMS = {
    "global_batch_size": 8,
    "lr": 0.05,
    "layers": {"width": 16, "dropout": 0.2},
}


class Images(Dataset[Any]):
    """As torchvision's: a transform that draws, a target transform, `classes`."""

    classes = ("cat", "dog", "bird")

    def __init__(self, number: int, transform: Any = None, target_transform: Any = None) -> None:
        generator = numpy.random.default_rng(0)
        self.data = generator.integers(0, 255, (number, 6, 6), dtype=numpy.uint8)
        self.targets = (self.data.mean(axis=(1, 2)) // 3 % 3).astype(int).tolist()
        self.transform = transform
        self.target_transform = target_transform

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image, target = self.data[index], self.targets[index]
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target


def augmented(image: Any) -> torch.Tensor:
    """Flip and shift at random, as transforms do, from two generators."""
    found = torch.from_numpy(image.copy()).float().div_(255)[None]
    if torch.rand(()) < 0.5:
        found = found.flip(-1)
    return found.roll(random.randint(0, 2), -1)


def plain(image: Any) -> torch.Tensor:
    return torch.from_numpy(image.copy()).float().div_(255)[None]


class Classifier(PyTorchTrial):
    """The common trial: an image classifier; the others change a part of it."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.context = context
        self.logger = logging.getLogger(__name__)
        layers = context.get_hparam("layers")
        self.model = context.wrap_model(self.build_model(layers["width"], layers["dropout"]))
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(
                self.model.parameters(), lr=float(context.get_hparam("lr")), momentum=0.9
            )
        )

    def build_model(self, width: int, dropout: float) -> nn.Module:
        return nn.Sequential(
            nn.Flatten(), nn.Linear(36, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 3)
        )

    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(
            Images(44, augmented), batch_size=self.context.get_per_slot_batch_size(), shuffle=True
        )

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(Images(20, plain), batch_size=8)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        images, labels = batch
        loss = cross_entropy(self.model(images), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        images, labels = batch
        output = self.model(images)
        accuracy = (output.argmax(dim=-1) == labels).float().mean()
        return {"validation_loss": cross_entropy(output, labels), "accuracy": accuracy}


class OldSignatures(Classifier):
    """Determined's older forms: no index in `evaluate_batch`, a bare loss, `zero_grad`."""

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = cross_entropy(self.model(batch[0]), batch[1])
        self.context.backward(loss)
        self.context.step_optimizer(
            self.optimizer,
            clip_grads=lambda params: nn.utils.clip_grad_norm_(params, 0.5),
            auto_zero_grads=False,
        )
        self.optimizer.zero_grad(set_to_none=False)
        return loss

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:  # type: ignore[override]
        return super().evaluate_batch(batch, 0)


class Gan(PyTorchTrial):
    """Two models, two optimizers, three backward passes in a batch."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.generator = context.wrap_model(nn.Sequential(nn.Linear(4, 16), nn.Linear(16, 36)))
        self.discriminator = context.wrap_model(nn.Sequential(nn.Linear(36, 16), nn.Linear(16, 1)))
        self.opt_g = context.wrap_optimizer(torch.optim.Adam(self.generator.parameters(), 1e-3))
        self.opt_d = context.wrap_optimizer(
            torch.optim.Adam(self.discriminator.parameters(), 1e-3)
        )
        self.lossf = nn.BCEWithLogitsLoss()

    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(Images(44, plain), self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(Images(20, plain), self.context.get_per_slot_batch_size())

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        real = batch[0].flatten(1)
        noise = self.context.to_device(torch.randn(len(real), 4))
        valid, fake = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        self.discriminator.requires_grad_(False)
        g_loss = self.lossf(self.discriminator(self.generator(noise)), valid)
        self.context.backward(g_loss)
        self.context.step_optimizer(self.opt_g)
        self.discriminator.requires_grad_(True)
        real_loss = self.lossf(self.discriminator(real), valid)
        fake_loss = self.lossf(self.discriminator(self.generator(noise).detach()), fake)
        d_loss = (real_loss + fake_loss) / 2
        self.context.backward(d_loss)
        self.context.step_optimizer(self.opt_d)
        return {"loss": d_loss, "g_loss": g_loss, "d_loss": d_loss.item()}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        score = self.discriminator(batch[0].flatten(1))
        return {"loss": self.lossf(score, torch.ones_like(score))}


class Schedulers(Classifier):
    """A scheduler of each step mode, on one optimizer; the manual one steps by hand."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        modes = LRScheduler.StepMode
        lr = torch.optim.lr_scheduler
        self.by_batch = context.wrap_lr_scheduler(
            lr.OneCycleLR(self.optimizer, max_lr=0.1, total_steps=60), modes.STEP_EVERY_BATCH
        )
        self.by_step = context.wrap_lr_scheduler(
            lr.LambdaLR(self.optimizer, lambda step: 0.99**step),
            step_mode=modes.STEP_EVERY_OPTIMIZER_STEP,
        )
        self.by_epoch = context.wrap_lr_scheduler(
            lr.StepLR(self.optimizer, 1, gamma=0.9), modes.STEP_EVERY_EPOCH, frequency=2
        )
        self.plateau = context.wrap_lr_scheduler(
            lr.ReduceLROnPlateau(self.optimizer, patience=0), modes.MANUAL_STEP
        )

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        metrics = super().train_batch(batch, epoch_idx, batch_idx)
        if self.context.is_epoch_end():
            self.plateau.step(metrics["loss"].detach())
        return metrics | {"lr": self.by_batch.get_last_lr()[0]}

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"plateau": OnPlateau(self.plateau)}


class OnPlateau(PyTorchCallback):
    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler

    def on_validation_end(self, metrics: Mapping[str, Any]) -> None:
        self.scheduler.step(metrics["validation_loss"])


class F1(MetricReducer):
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.hits = self.total = 0

    def update(self, output: torch.Tensor, labels: torch.Tensor) -> None:
        self.hits += int((output.argmax(1) == labels).sum())
        self.total += len(labels)

    def per_slot_reduce(self) -> Any:
        return self.hits, self.total

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        hits, totals = zip(*per_slot_metrics, strict=True)
        return {"f1": sum(hits) / max(1, sum(totals))}


class Reduced(Classifier):
    """Reducers of both kinds, in training and validation, and `evaluation_reducer` by name."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.f1 = context.wrap_reducer(F1())
        self.spread = context.wrap_reducer(
            lambda values: float(numpy.ptp(values)), name="spread", for_training=False
        )

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        with torch.no_grad():
            self.f1.update(self.model(batch[0]), batch[1])
        return super().train_batch(batch, epoch_idx, batch_idx)

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        output = self.model(batch[0])
        self.f1.update(output, batch[1])
        self.spread.update(output.max().item())
        return {"loss": cross_entropy(output, batch[1]), "largest": output.max()}

    def evaluation_reducer(self) -> dict[str, Reducer]:
        return {"loss": Reducer.AVG, "largest": Reducer.MAX}


class FullDataset(Classifier):
    """`evaluate_full_dataset` divides by what the loader's dataset says, as examples do."""

    evaluate_batch = PyTorchTrial.evaluate_batch

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        assert isinstance(data_loader, torch.utils.data.DataLoader)
        assert type(data_loader.dataset) is Images
        assert data_loader.batch_size == 8
        assert len(data_loader) == 3
        correct, loss = 0, 0.0
        for images, labels in data_loader:
            images, labels = self.context.to_device((images, labels))
            output = self.model(images)
            loss += cross_entropy(output, labels, reduction="sum").item()
            correct += output.argmax(1).eq(labels).sum().item()
        total = len(data_loader.dataset)
        by_class = dict.fromkeys(data_loader.dataset.classes, 0.5)
        return {"validation_loss": loss / total, "accuracy": correct / total, "by": by_class}


class Encoding(UserDict[str, torch.Tensor]):
    """What tokenizers and data collators return."""

    def to(self, device: Any) -> Encoding:
        return Encoding({name: tensor.to(device) for name, tensor in self.data.items()})


class Output(NamedTuple):
    loss: torch.Tensor
    logits: torch.Tensor


class Encoder(nn.Module):
    """A model as of transformers: called with names, returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8, padding_idx=0)
        self.head = nn.Linear(8, 2)

    def forward(self, input_ids: Any, attention_mask: Any, labels: Any = None) -> Output:
        mask = attention_mask[..., None]
        pooled = (self.embedding(input_ids) * mask).sum(1) / mask.sum(1)
        logits = self.head(pooled)
        return Output(cross_entropy(logits, labels), logits)


def collate(features: list[dict[str, Any]]) -> Encoding:
    """Pad to the longest, as `DataCollatorWithPadding` does."""
    longest = max(len(feature["input_ids"]) for feature in features)
    ids = torch.zeros(len(features), longest, dtype=torch.long)
    for row, feature in zip(ids, features, strict=True):
        row[: len(feature["input_ids"])] = torch.tensor(feature["input_ids"])
    labels = torch.tensor([feature["label"] for feature in features])
    return Encoding({"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels})


class Transformer(PyTorchTrial):
    """Dict batches, groups of parameters with weight decay, a warm-up, clipped gradients."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.context = context
        self.model = context.wrap_model(Encoder())
        no_decay = ("bias",)
        groups = [
            {
                "params": [
                    p for n, p in self.model.named_parameters() if n.endswith(no_decay) == is_bias
                ],
                "weight_decay": 0.0 if is_bias else 0.01,
            }
            for is_bias in (False, True)
        ]
        self.optimizer = context.wrap_optimizer(torch.optim.AdamW(groups, lr=1e-3))
        self.scheduler = context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, step / 5)),
            step_mode=LRScheduler.StepMode.STEP_EVERY_BATCH,
        )

    def _loader(self, records: int) -> DataLoader:
        features = [
            {"input_ids": list(range(1, 2 + index % 9)), "label": index % 2}
            for index in range(records)
        ]
        return DataLoader(
            features,
            batch_size=self.context.get_per_slot_batch_size(),
            collate_fn=collate,
            pin_memory=True,
        )

    def build_training_data_loader(self) -> DataLoader:
        return self._loader(44)

    def build_validation_data_loader(self) -> DataLoader:
        return self._loader(20)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> torch.Tensor:
        outputs = self.model(**batch)
        self.context.backward(outputs.loss)
        self.context.step_optimizer(
            self.optimizer, clip_grads=lambda p: nn.utils.clip_grad_norm_(p, 1.0)
        )
        found: torch.Tensor = outputs[0]
        return found

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        outputs = self.model(**batch)
        return {"loss": outputs.loss, "right": (outputs.logits.argmax(1) == batch["labels"]).sum()}

    def evaluation_reducer(self) -> dict[str, Reducer]:
        return {"loss": Reducer.AVG, "right": Reducer.SUM}


class Recorder(PyTorchCallback):
    """Keeps a history and injects a key into checkpoints."""

    def __init__(self) -> None:
        self.history: list[float] = []
        self.heard: list[str] = []

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        self.heard.append(f"epoch {epoch_idx}")

    def on_training_workload_end(self, avg_metrics: Mapping[str, Any], batch_metrics: Any) -> None:
        assert all(set(one) == set(avg_metrics) for one in batch_metrics)
        self.history.append(avg_metrics["loss"])

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["mine"] = {"epochs": 1}

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
        assert checkpoint["mine"] == {"epochs": 1}

    def on_checkpoint_write_end(self, checkpoint_dir: Any) -> None:
        (checkpoint_dir / "notes.txt").write_text("mine")

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        self.heard.append("uploaded")

    def state_dict(self) -> dict[str, Any]:
        return {"history": self.history}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history = state_dict["history"]


class WithCallbacks(Classifier):
    """Callbacks with state, metrics as arrays and numbers, TensorBoard off."""

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        self.recorder = Recorder()
        return {"recorder": self.recorder}

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        metrics = super().train_batch(batch, epoch_idx, batch_idx)
        norms = numpy.array([1.0, 3.0])
        return {"loss": metrics["loss"], "norms": norms, "is_first": batch_idx == 0, "epoch": 1}


class AmpAndScaler(Classifier):
    """A scaler of the trial's own, and autocast by hand, as for a GPU."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.scaler = context.wrap_scaler(torch.amp.GradScaler("cpu", init_scale=64.0))
        super().__init__(context)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        with torch.autocast(self.context.device.type, dtype=torch.bfloat16):
            loss = cross_entropy(self.model(batch[0]), batch[1])
        self.context.backward(self.scaler.scale(loss))
        self.context.step_optimizer(self.optimizer, scaler=self.scaler)
        self.scaler.update()
        return {"loss": loss}


class FrozenBackbone(Classifier):
    """Fine-tuning: a frozen backbone in eval mode, only the head's parameters trained."""

    def build_model(self, width: int, dropout: float) -> nn.Module:
        backbone = nn.Sequential(nn.Flatten(), nn.Linear(36, width), nn.BatchNorm1d(width))
        return nn.Sequential(backbone.requires_grad_(False), nn.Linear(width, 3))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.model[0].eval()  # type: ignore[index]
        return super().train_batch(batch, epoch_idx, batch_idx)


class Split(Classifier):
    """`random_split` in the constructor's stream, `SubsetRandomSampler`, `drop_last`."""

    def build_training_data_loader(self) -> DataLoader:
        self.train_set, self.val_set = random_split(Images(60, plain), [44, 16])
        return DataLoader(
            self.train_set,
            self.context.get_per_slot_batch_size(),
            sampler=torch.utils.data.WeightedRandomSampler([1.0, 2.0] * 22, 44),
            drop_last=True,
        )

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(self.val_set, 8, sampler=torch.utils.data.SubsetRandomSampler(range(16)))


class Lines(IterableDataset[Any]):
    def __len__(self) -> int:
        return 44

    def __iter__(self) -> Iterator[Any]:
        order = list(range(44))
        random.shuffle(order)
        images = Images(44, plain)
        return (images[index] for index in order)


class Streamed(Classifier):
    """An iterable dataset, and a plain torch loader for the validation."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        context.experimental.disable_dataset_reproducibility_checks()

    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(Lines(), self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self) -> Any:
        return torch.utils.data.DataLoader(Images(20, plain), batch_size=8)


class TeacherAndStudent(Classifier):
    """A model that is not trained and not wrapped, EMA weights in a wrapped one, two losses."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.teacher = context.wrap_model(self.build_model(16, 0.0).requires_grad_(False))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        images, labels = batch
        with torch.no_grad():
            target = self.teacher(images).softmax(1)
        output = self.model(images)
        parts = {"hard": cross_entropy(output, labels), "soft": cross_entropy(output, target)}
        self.context.backward(parts["hard"], retain_graph=True)
        self.context.backward(0.1 * parts["soft"])
        self.context.step_optimizer(self.optimizer)
        with torch.no_grad():
            pairs = zip(self.teacher.parameters(), self.model.parameters(), strict=True)
            for averaged, current in pairs:
                averaged.lerp_(current, 0.01)
        return parts | {"loss": sum(parts.values())}


class Regularized(Classifier):
    """Properties of models and hyperparameters read in hooks; weights tied and initialised."""

    def build_model(self, width: int, dropout: float) -> nn.Module:
        model = super().build_model(width, dropout)
        model.apply(_initialised)
        return model

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        images, labels = batch
        penalty = sum(p.pow(2).sum() for n, p in self.model.named_parameters() if "weight" in n)
        loss = cross_entropy(self.model(images), labels) + 1e-3 * penalty
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        assert self.context.current_train_batch() == batch_idx
        assert self.context.current_train_epoch() == epoch_idx
        if self.context.is_epoch_start():
            self.logger.info("epoch %d, lr %s", epoch_idx, self.optimizer.param_groups[0]["lr"])
        return {"loss": loss}


def _initialised(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)


class InMemory(Classifier):
    """Tensors moved to the device once, batches not moved again."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        context.experimental.disable_auto_to_device()

    def build_training_data_loader(self) -> DataLoader:
        images = Images(44)
        x = torch.tensor(images.data, device=self.context.device).float().div(255)
        data = TensorDataset(x, torch.tensor(images.targets, device=self.context.device))
        return DataLoader(data, self.context.get_per_slot_batch_size(), shuffle=True)


TRIALS = [
    Classifier,
    OldSignatures,
    Gan,
    Schedulers,
    Reduced,
    FullDataset,
    Transformer,
    WithCallbacks,
    AmpAndScaler,
    FrozenBackbone,
    Split,
    Streamed,
    TeacherAndStudent,
    Regularized,
    InMemory,
]


def fit(
    folder: Path, trial_class: type[PyTorchTrial], length: Batch | Epoch, **arguments: Any
) -> tuple[PyTorchTrialContext, list[Any]]:
    with pytorch.init(hparams=HPARAMS, seed=3, checkpoint_storage=folder) as context:
        trainer = pytorch.Trainer(trial_class(context), context)
        trainer.fit(
            max_length=length,
            validation_period=Epoch(1),
            checkpoint_policy="none",
            reporting_period=Batch(4),
            **arguments,
        )
        assert context.core is not None
        assert isinstance(context.core.sink, RecordList)
        return context, context.core.sink.records


@pytest.mark.parametrize("trial_class", TRIALS)
def test_a_usual_trial_trains_pauses_goes_on_and_is_loaded(
    trial_class: type[PyTorchTrial], tmp_path: Path
) -> None:
    whole, _ = fit(tmp_path, trial_class, Epoch(3))
    _, records = fit(tmp_path, trial_class, Batch(8))
    (saved,) = [record for record in records if isinstance(record, CheckpointSaved)]
    again, records = fit(tmp_path, trial_class, Epoch(3), latest_checkpoint=saved.uuid)
    for model, other in zip(whole.models, again.models, strict=True):
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, other.state_dict()[name]), name
    reported = [record for record in records if isinstance(record, MetricsReported)]
    assert {record.group for record in reported} == {"training", "validation"}
    loaded = load_trial_from_checkpoint_path(
        saved.path, trial_class=trial_class, map_location="cpu"
    )
    assert isinstance(loaded, trial_class)
