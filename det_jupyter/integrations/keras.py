"""Keras on torch: `Model.fit` reports to its experiment, is paused, and follows its search.

    model.compile(...)
    model.fit(x, y, epochs=8, validation_data=..., callbacks=[..., DetCallback()])

within an epoch     Keras' averages since its beginning are reported, every `report_every` batches
after an epoch      its metrics are reported, and the state is saved; then the trial leaves if it
                    is requested to, or if the search has stopped it here, or if its length is
                    reached

A run that continues has the same order of data and metrics as one that was never paused: besides
weights and optimizer, a checkpoint has the random generators of Python, NumPy, torch and Keras'
layers, and the metrics of the epochs.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch

from det_jupyter import core
from det_jupyter.errors import DetError
from det_jupyter.integrations import require
from det_jupyter.integrations.common import (
    Operations,
    generators_file,
    origin_of,
    own_names,
    reporting_context,
    restore_generators,
    save_generators,
)
from det_jupyter.integrations.loading import KERAS_FILE

require("keras")
os.environ.setdefault("KERAS_BACKEND", "torch")

import keras

_STATE = "state.pkl"
_VALIDATION = "val_"  # Keras' prefix of the metrics of a validation
_OWN = {"_model", "params"}  # attributes that `fit` gives every callback


class DetCallback(keras.callbacks.Callback):
    """Makes a model's training by `fit` a trial: metrics, progress, checkpoints, pauses, search.

    It must be the last of the callbacks, so that it saves what the others have done, and a pause
    does not cancel an end of the training that another one has set.

    Args:
        context: The Core API's; by default the current one.
        report_every: Batches between reports within an epoch; 0: only epochs are reported.
        keep: Callbacks whose attributes are saved in checkpoints, because they compare epochs:
            EarlyStopping, ReduceLROnPlateau, ModelCheckpoint. They must come before this one.

    Raises:
        DetError: There is no context, Keras' backend is not torch, or the trial has several ranks.
    """

    def __init__(
        self,
        context: core.Context | None = None,
        *,
        report_every: int = 100,
        keep: Sequence[keras.callbacks.Callback] = (),
    ) -> None:
        super().__init__()
        self._context = reporting_context(context, "DetCallback")
        _check_place(self._context.distributed.size)
        self._report_every = report_every
        self._keep = keep
        info = self._context.info
        self._latest = info.latest_checkpoint if info is not None else None
        self._belongs_to: Any = None  # a checkpoint of anything else gives only the model
        self._save_every = 1  # epochs
        self._followed: Operations | None = None
        self._steps = 0  # batches trained
        self._is_within = False  # a batch has begun and not ended
        # Index and metrics of the epochs that have ended.
        self._epochs: list[tuple[int, dict[str, float]]] = []
        self._saved_at = -1
        self._is_leaving = False
        # States of the callbacks in `keep`, until training begins.
        self._remembered: Sequence[Mapping[str, Any]] | None = None

    def set_model(self, model: keras.Model) -> None:
        """Take the model that is trained (called by Keras)."""
        super().set_model(model)
        _last[model] = self

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Take the length of the training (called by Keras, in the order of the callbacks).

        Raises:
            DetError: A callback of `keep` comes after this one: what it does would not be saved.
        """
        super().set_params(params)
        late = [type(each).__name__ for each in self._keep if each.params is not params]
        if late:
            raise DetError(
                f"DetCallback: keep has {', '.join(late)}, which fit does not call before it; "
                "write fit(callbacks=[..., DetCallback(keep=[...])]), with DetCallback last"
            )

    @property
    def _next_epoch(self) -> int:
        return self._epochs[-1][0] + 1 if self._epochs else 0

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Continue from the trial's checkpoint, if it has one.

        Raises:
            DetError: `fit` does not fit the trial: its callbacks, its length, or that of the
                search.
        """
        if _last[self.model] is not self:
            raise DetError("DetCallback: fit has it twice in `callbacks`; give it once")
        if self._latest is not None:
            with self._context.checkpoint.restore_path(self._latest) as folder:
                self._restore(folder)
            self._latest = None
        self._followed = Operations(self._context, "DetCallback", "Keras' validation")
        self._check_length()
        if not self._goes_on(self._length):
            self._is_leaving = True
            self.model._initial_epoch = self.params["epochs"]

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Restore the state of the callbacks in `keep`, which Keras has reset."""
        self._remember()
        if self._epochs and epoch != self._next_epoch:
            raise DetError(
                f"DetCallback: the trial continues from epoch {self._next_epoch}, and fit begins "
                f"at {epoch}; this version of Keras needs fit(initial_epoch={self._next_epoch})"
            )

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Count the previous batch, and report the metrics of the epoch so far if that is due."""
        self._end_batch()
        if batch and self._report_every and self._steps % self._report_every == 0:
            self._report("training", self.model.get_metrics_result())
            self._report_progress()
        self._is_within = True

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """End the training here if that is its length in batches."""
        if self._operations.unit is core.Unit.BATCHES and not self._goes_on(self._steps + 1):
            self.model.stop_training = True

    def on_test_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Count the last batch of the epoch before its validation."""
        self._end_batch()

    def _end_batch(self) -> None:
        if self._is_within:
            self._is_within = False
            self._steps += 1
            self._context.profiler.step()  # Keras' optimizers are no optimizers of torch

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Report the epoch and save; then leave if that is requested, or if the search ends."""
        self._end_batch()
        metrics = dict(logs or {})
        self._epochs.append((epoch, metrics))
        trained = {name: value for name, value in metrics.items() if not _is_validated(name)}
        self._report("training", trained)
        if validated := self._validated():
            self._report("validation", validated)
            self._operations.check_metric(validated)
        self._report_progress()
        is_over = self._next_epoch >= self.params["epochs"] or self.model.stop_training
        if is_over or (self._save_every and self._next_epoch % self._save_every == 0):
            self._save()
        goes_on = self._goes_on(self._length)
        if not goes_on or (not is_over and self._context.preempt.should_preempt()):
            self._is_leaving = self.model.stop_training = True
            self._save()

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Report that a callback has ended the training before the length of the search."""
        self._remember()
        self.model._initial_epoch = 0  # of a next `fit`
        if self._is_leaving:
            return
        self._save()
        if self._operations.is_compared:
            self._context.train.report_early_exit(core.EarlyExitReason.USER_REQUESTED_STOP)

    # Reports.

    def _validated(self) -> dict[str, float]:
        """Return the metrics of the validation of the last epoch; {} if it had none."""
        metrics = self._epochs[-1][1] if self._epochs else {}
        return {name: value for name, value in metrics.items() if _is_validated(name)}

    def _report(self, group: str, metrics: Mapping[str, Any]) -> None:
        values = {name: float(value) for name, value in metrics.items()}
        self._context.train.report_metrics(group, self._steps, values)

    def _report_progress(self) -> None:
        num_batches, num_epochs = self.params["steps"], self.params["epochs"]
        done = self._steps / num_batches if num_batches else self._next_epoch
        self._context.train.report_progress(min(1.0, done / max(1, num_epochs)), self._steps)

    # Checkpoints.

    def _save(self) -> None:
        if self._steps == self._saved_at:
            return
        self._saved_at = self._steps
        state = {
            "belongs_to": self._belongs_to,
            "steps": self._steps,
            "epochs": self._epochs,
            "seeds": [each.numpy() for each in _seeds(self.model)],
            "kept": [_attributes(each) for each in self._keep],
        }
        metadata = {"steps_completed": self._steps}
        has_own = bool(own_names(keras.saving.serialize_keras_object(self.model)))
        origin = origin_of(self._context, "keras", self.model, needs_code=has_own)
        with self._context.checkpoint.store_path(metadata, origin=origin) as (folder, _):
            self.model.save(folder / KERAS_FILE)
            (folder / _STATE).write_bytes(pickle.dumps(state))
            save_generators(generators_file(folder, 0))

    def _restore(self, folder: Path) -> None:
        self.model.load_weights(folder / KERAS_FILE)
        state = pickle.loads((folder / _STATE).read_bytes())
        if state["belongs_to"] != self._belongs_to:
            return
        self._steps = self._saved_at = state["steps"]
        self._epochs = state["epochs"]
        self._remembered = state["kept"]
        for seed, value in zip(_seeds(self.model), state["seeds"], strict=True):
            seed.assign(value)
        restore_generators(generators_file(folder, 0))
        self.model._initial_epoch = self._next_epoch  # as Keras' BackupAndRestore does

    def _remember(self) -> None:
        """Restore Keras' history and the callbacks of `keep`, which Keras has reset."""
        if self._remembered is None:
            return
        for callback, attributes in zip(self._keep, self._remembered, strict=True):
            vars(callback).update(attributes)
        self._remembered = None
        history = self.model.history
        for epoch, metrics in self._epochs:
            history.epoch.append(epoch)
            for name, value in metrics.items():
                history.history.setdefault(name, []).append(value)

    # The search.

    @property
    def _operations(self) -> Operations:
        assert self._followed is not None
        return self._followed

    @property
    def _length(self) -> int:
        is_batches = self._operations.unit is core.Unit.BATCHES
        return self._steps if is_batches else self._next_epoch

    def _check_length(self) -> None:
        if not self._operations.is_compared:
            return
        searcher = self._context.searcher
        if searcher.get_configured_units() is not core.Unit.EPOCHS:
            raise DetError(
                f"DetCallback: searcher.max_length is in {searcher.target.unit}, and Keras "
                "continues from whole epochs; write max_length: {epochs: N}"
            )
        self._operations.check_length(self.params["epochs"], "fit", "fit(epochs=N)")

    def _goes_on(self, length: int) -> bool:
        """Return whether the trial trains on from this length; it may wait for others first."""
        if not self._operations.is_reached(length):
            return True
        goes_on = self._operations.go_on(length, self._validated())
        self._check_length()
        return goes_on


_last: WeakKeyDictionary[keras.Model, DetCallback] = WeakKeyDictionary()  # of each model's `fit`


def make_deterministic(seed: int | None = None) -> int:
    """Make training a function of its seed, bit for bit; return the seed.

    It seeds Python, NumPy, torch and Keras, and lets torch use only deterministic algorithms and,
    on CPUs, one thread: sums of several threads depend on their number. Call it before the model
    is made. On CPUs training with Keras on torch is then deterministic. On GPUs torch raises an
    error for an operation without a deterministic algorithm.

    Args:
        seed: The seed; by default the trial's, and 0 outside of experiments.

    Raises:
        DetError: Keras' backend is not torch.
    """
    _check_place(1)
    if seed is None:
        context = core.current()
        seed = context.info.trial_seed if context is not None and context.info is not None else 0
    keras.utils.set_random_seed(seed)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA is first used
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.set_num_threads(1)
    return seed


def _check_place(num_ranks: int) -> None:
    backend = keras.backend.backend()
    problems = []
    if backend != "torch":
        problems.append(
            f"Keras' backend is {backend}, and only torch can be continued exactly; set the "
            "variable KERAS_BACKEND=torch before keras is imported, as "
            "`environment: {environment_variables: [KERAS_BACKEND=torch]}` does"
        )
    if num_ranks > 1:
        problems.append(
            f"Keras trains in one process on torch, and the trial has {num_ranks} ranks; write "
            "resources: {slots_per_trial: 1}"
        )
    if problems:
        raise DetError("\n".join(f"det_jupyter.integrations.keras: {each}" for each in problems))


def _is_validated(name: str) -> bool:
    return name.startswith(_VALIDATION)


def _seeds(model: keras.Model) -> list[Any]:
    """Return the states of the generators of layers, which Keras does not save."""
    saved = {id(each) for each in model.weights}
    return [each for each in model.variables if id(each) not in saved]


def _attributes(callback: keras.callbacks.Callback) -> dict[str, Any]:
    return {name: value for name, value in vars(callback).items() if name not in _OWN}
