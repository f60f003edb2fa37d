"""Trains a small model with Keras, whose import takes seconds and reads a variable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from det_jupyter import core
from det_jupyter.integrations.keras import DetCallback, make_deterministic  # before keras

import keras  # isort: skip

NUM_EPOCHS, NUM_BATCHES = 4, 4
__all__ = ["DetCallback", "keras", "make_deterministic", "np"]


def new_model(window: int | None = None) -> Any:
    layers = keras.layers
    noise = layers.Dropout(0.2), layers.GaussianNoise(0.1)  # by torch's generator, by Keras' own
    model = keras.Sequential([layers.Input((8,)), layers.Dense(4), *noise])
    model.compile(
        optimizer=keras.optimizers.Adam(0.01, gradient_accumulation_steps=window), loss="mse"
    )
    return model


def early_stopping(patience: int) -> Any:
    return keras.callbacks.EarlyStopping("loss", patience=patience, mode="max", verbose=0)


def comparing(folder: Path) -> list[Any]:
    """Return callbacks that compare epochs: each of them does something within four epochs."""
    callbacks = keras.callbacks
    return [
        callbacks.EarlyStopping("val_loss", patience=2, mode="max", restore_best_weights=True),
        callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, mode="max"),
        callbacks.ModelCheckpoint(
            folder / "best.keras", "val_loss", save_best_only=True, mode="max"
        ),
    ]


def fit(
    context: core.Context,
    callbacks: list[Any] | None = None,
    model: Any = None,
    window: int | None = None,
    **arguments: Any,
) -> Any:
    """Train, by default with a callback that reports every second batch; return the model."""
    keras.utils.set_random_seed(5)
    data = np.random.default_rng(3).normal(size=(16 * NUM_BATCHES, 8)).astype("float32")
    with context:
        if callbacks is None:
            callbacks = [DetCallback(report_every=2)]
        model = model or new_model(window)
        arguments = {"epochs": NUM_EPOCHS, "validation_data": (data, data[:, :4])} | arguments
        model.fit(data, data[:, :4], 16, verbose=0, callbacks=callbacks, **arguments)
    return model


def weights(model: Any) -> Any:
    return np.concatenate([each.flatten() for each in model.get_weights()])
