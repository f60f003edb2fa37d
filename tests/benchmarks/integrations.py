"""The cost per step of the callbacks for trainers of other libraries.

    python -m tests.benchmarks.integrations [--quick] [--libraries lightning,keras]

In one training of each library on one core, the callback and the logger that it adds are removed
and added again every 100 steps. The result is the median of the differences of neighbours, in
processor time of all threads, and its share of a step of 5 ms. Reports are written to a file, as
in an experiment. Work that is done once per epoch or training, and checkpoints, are not counted.
On a shared machine, use the difference of the least times, as other programs can only increase
times. The last line is JSON.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from det_jupyter import core
from det_jupyter.core.journal import Journal

STEP_US = 5000  # the share is of a step of 5 ms
BLOCK = 100  # steps with the callback, then as many without it
SIZE = 8


class Turns:
    """Times blocks of steps, with the callback and without it in turn.

    Args:
        switch: Adds the callback to the trainer, or removes it.
    """

    def __init__(self, switch: Callable[[bool], object]) -> None:
        self._switch = switch
        self._is_on = True
        self._began = 0
        self._blocks: list[int] = []  # nanoseconds of blocks: with the callback, without, with ...

    def begin_step(self, index: int) -> None:
        if index % BLOCK:
            return
        now = time.process_time_ns()
        if index > BLOCK:  # the first block, which warms up, is not counted
            self._blocks.append(now - self._began)
        self._is_on = not self._is_on
        self._switch(self._is_on)
        self._began = time.process_time_ns()

    def costs(self) -> dict[str, float]:
        """Return the times per step in microseconds, and their differences."""
        us = [block / BLOCK / 1e3 for block in self._blocks]
        reporting, alone = us[0::2], us[1::2]
        pairs = list(zip(alone, reporting, strict=False))
        difference = median(b - a for a, b in pairs)
        return {
            "alone_us": round(median(alone), 1),
            "with_callback_us": round(median(reporting), 1),
            "median_difference_us": round(difference, 1),
            "least_difference_us": round(min(reporting) - min(alone), 1),
            "ratio": round(median(b / a for a, b in pairs), 3),
            "percent_of_5ms": round(100 * difference / STEP_US, 2),
        }


def data(num_steps: int) -> DataLoader[Any]:
    torch.manual_seed(0)
    return DataLoader(
        TensorDataset(torch.randn(4 * num_steps, SIZE), torch.randn(4 * num_steps, 1)), 4
    )


def train_lightning(num_steps: int) -> Turns:
    """Train with Lightning, which logs and reports the loss every 50 steps, its default."""
    import lightning.pytorch as L

    from det_jupyter.integrations.lightning import DetCallback, DetLogger

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Net(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(SIZE, 1)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    class Watch(L.Callback):
        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
            turns.begin_step(index)

    def switch(is_on: bool) -> None:
        others = [each for each in trainer.callbacks if each is not callback]
        trainer.callbacks = [*others, callback] if is_on else others
        loggers.extend(trainer.loggers)
        trainer.loggers = loggers[:1] if is_on else []

    turns, callback, loggers = Turns(switch), DetCallback(), list[DetLogger]()
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        callbacks=[Watch(), callback],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Net(), data(num_steps))
    return turns


def train_keras(num_steps: int) -> Turns:
    """Train with Keras: the average loss is reported every 100 batches, the callback's default."""
    # Before keras, as it selects torch as the backend.
    from det_jupyter.integrations.keras import DetCallback

    import keras  # isort: skip

    class Watch(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            turns.begin_step(batch)

    def switch(is_on: bool) -> None:
        others = [each for each in callbacks.callbacks if each is not callback]
        callbacks.callbacks = [*others, callback] if is_on else others

    model = keras.Sequential([keras.layers.Input((SIZE,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    turns, callback = Turns(switch), DetCallback()
    callbacks = keras.callbacks.CallbackList(
        [Watch(), callback], add_history=True, model=model, epochs=1, steps=num_steps, verbose=0
    )
    model.fit(data(num_steps), verbose=0, callbacks=callbacks)
    return turns


def train_transformers(num_steps: int) -> Turns:
    """Train with transformers' Trainer: it logs the loss every 50 steps, and saves at the end."""
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    from det_jupyter.integrations.transformers import DetCallback

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(SIZE, 1)

        def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": self.net(inputs).square().mean()}

    class Watch(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            turns.begin_step(state.global_step)

    def switch(is_on: bool) -> None:
        handler = trainer.callback_handler
        others = [each for each in handler.callbacks if each is not callback]
        handler.callbacks = [*others, callback] if is_on else others

    turns, callback = Turns(switch), DetCallback()
    with TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=num_steps,
            per_device_train_batch_size=4,
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        rows = [{"inputs": each} for each in torch.randn(4 * num_steps, SIZE)]
        callbacks = [Watch(), callback]
        trainer = Trainer(Net(), arguments, train_dataset=rows, callbacks=callbacks)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return turns


LIBRARIES: dict[str, Callable[[int], Turns]] = {
    "lightning": train_lightning,
    "transformers": train_transformers,
    "keras": train_keras,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--libraries", help="by default those that are installed")
    options = parser.parse_args()
    installed = [name for name in LIBRARIES if importlib.util.find_spec(name)]
    names = options.libraries.split(",") if options.libraries else installed
    num_blocks = 10 if options.quick else 80
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # warnings of the libraries
    found = {}
    with TemporaryDirectory() as folder:
        sink = Journal(Path(folder) / "journal")
        for name in names:
            with core.init(checkpoint_storage=folder, sink=sink):
                found[name] = LIBRARIES[name]((num_blocks + 2) * BLOCK).costs()
    columns = next(iter(found.values()))
    print(f"{'per step':14}" + "".join(f"{column:>22}" for column in columns))
    for name, row in found.items():
        print(f"{name:14}" + "".join(f"{value:22}" for value in row.values()))
    print(json.dumps({"benchmark": "integrations", "cores": os.cpu_count(), "libraries": found}))


if __name__ == "__main__":
    main()
