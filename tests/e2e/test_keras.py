"""A model of Keras, trained by `fit` in a trial that is paused."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from det_jupyter.client import Client
from det_jupyter.contract.messages import State
from tests.scripts import create, pause, wait_for_line
from tests.trials import Gate

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(find_spec("keras") is None, reason="needs keras"),
]

SOURCE = """
import keras
import numpy as np
from det_jupyter.integrations.keras import DetCallback, make_deterministic

class Slow(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        print(f"epoch {epoch} begins;", flush=True)

def main(core_context):
    make_deterministic()
    x = np.random.default_rng(3).normal(size=(64, 8)).astype("float32")
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    callbacks = [Slow(), DetCallback()]
    history = model.fit(
        x, x[:, :1], 16, epochs=6, validation_data=(x, x[:, :1]), verbose=0, callbacks=callbacks
    )
    print(f"trained {len(history.epoch)} epochs;")
"""
CONFIG = """
entrypoint: fits:main
environment: {environment_variables: [KERAS_BACKEND=torch]}
searcher: {name: single, metric: val_loss, max_length: {epochs: 6}}
max_restarts: 0
"""


def test_paused_trial_goes_on_at_the_next_epoch(client: Client, tmp_path: Path) -> None:
    folder, gate = tmp_path / "context", Gate(tmp_path, 2)
    folder.mkdir()
    before = '        print(f"epoch {epoch} begins;", flush=True)'
    (folder / "fits.py").write_text(gate.source(SOURCE, before=before, step="epoch"))
    experiment = create(client, CONFIG, context=folder)
    wait_for_line(experiment, "epoch 1 begins;")
    assert pause(experiment) == State.PAUSED
    at_rest = experiment.view.trials[0].steps_completed
    assert at_rest < 24
    gate.open()
    experiment.activate()
    assert experiment.wait() == State.COMPLETED
    trial = experiment.trials[0]
    assert [each.steps_completed for each in experiment.checkpoints()] == [4, 8, 12, 16, 20, 24]
    begun = [line.text for line in trial.logs(search="begins;")]
    assert begun == [f"epoch {epoch} begins;" for epoch in range(6)]
    assert trial.logs(search="trained 6 epochs;")
