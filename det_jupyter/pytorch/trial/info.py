"""Information for a trial: hyperparameters, configuration, ids, and its position."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from det_jupyter.config import ExperimentConfig
from det_jupyter.core import DistributedContext
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.steps.position import Position


class TrialInfo:
    """The part of a PyTorchTrialContext with a trial's information. Nothing here is collective."""

    distributed: DistributedContext
    config: ExperimentConfig | None
    position: Position  # shared with the loop, which writes it
    _hparams: Mapping[str, Any] | None
    _experiment_id: int | None  # None, as the next ones, if nothing was submitted
    _trial_id: int | None
    _trial_seed: int | None
    _stop_requested = False

    @property
    def has_hparams(self) -> bool:
        """Whether there are hyperparameters."""
        return self._hparams is not None

    @property
    def has_batch_size(self) -> bool:
        """Whether the hyperparameters say how many records a batch has."""
        return "global_batch_size" in (self._hparams or {})

    def get_per_slot_batch_size(self) -> int:
        """Return how many records this rank trains per batch.

        The ranks' sizes add up to `get_global_batch_size()`: what does not divide goes, one record
        each, to the first ranks.
        """
        each, rest = divmod(self.get_global_batch_size(), self.distributed.size)
        return each + (self.distributed.rank < rest)

    def get_global_batch_size(self) -> int:
        """Return how many records all ranks together train per batch."""
        where = "hyperparameters.global_batch_size"
        slots = self.distributed.size
        wanted = self.get_hparams().get("global_batch_size")
        if isinstance(wanted, bool) or not isinstance(wanted, int):
            given = "missing" if wanted is None else f"got {wanted!r}"
            raise ConfigError(f"{where}: {given}, expected a whole number of records")
        if wanted < slots:
            raise ConfigError(
                f"{where}: got {wanted}, expected at least resources.slots_per_trial "
                f"({slots}): each rank needs a record of every batch"
            )
        return wanted

    def get_hparams(self) -> dict[str, Any]:
        """Return all hyperparameters."""
        if self._hparams is None:
            raise ValueError(
                "get_hparams: no hyperparameters were given to this context; "
                "pass them: pytorch.init(hparams={...})"
            )
        return dict(self._hparams)

    def get_hparam(self, name: str) -> Any:
        """Return one hyperparameter."""
        hparams = self.get_hparams()
        if name not in hparams:
            raise ValueError(
                f"get_hparam: no hyperparameter {name!r}; there are {', '.join(sorted(hparams))}"
            )
        if name == "global_batch_size":
            warnings.warn(
                "get_hparam('global_batch_size') is the size for all slots together; "
                "use get_per_slot_batch_size() or get_global_batch_size()",
                stacklevel=2,
            )
        return hparams[name]

    def get_experiment_config(self) -> dict[str, Any]:
        """Return the experiment's effective configuration."""
        return self._known_config("get_experiment_config").to_document()

    def get_data_config(self) -> dict[str, Any]:
        """Return the `data` section of the configuration."""
        return dict(self._known_config("get_data_config").data)

    def _known_config(self, method: str) -> ExperimentConfig:
        if self.config is None:
            raise ValueError(
                f"{method}: no configuration was given to this context; "
                "pass it: pytorch.init(exp_conf={...})"
            )
        return self.config

    def get_experiment_id(self) -> int:
        """Return the experiment's id."""
        return _known("get_experiment_id", self._experiment_id)

    def get_trial_id(self) -> int:
        """Return the trial's id."""
        return _known("get_trial_id", self._trial_id)

    def get_trial_seed(self) -> int:
        """Return the seed that everything random in this trial derives from."""
        return _known("get_trial_seed", self._trial_seed)

    def get_initial_batch(self) -> int:
        """Return how many batches were trained before this run."""
        return self.position.first_batch_idx

    def is_epoch_start(self) -> bool:
        """Return whether this batch is the first of an epoch."""
        return self.position.started_units().is_epoch_start(self.position.batch_idx)

    def is_epoch_end(self) -> bool:
        """Return whether this batch is the last of an epoch."""
        return self.position.started_units().is_epoch_end(self.position.batch_idx)

    def current_train_epoch(self) -> int:
        """Return the number of the epoch in training, from 0."""
        return self.position.started_units().epoch_of(self.position.batch_idx)

    def current_train_batch(self) -> int:
        """Return the number of the batch in training, from 0 at the trial's beginning."""
        self.position.started_units()
        return self.position.batch_idx

    @property
    def _epoch_len(self) -> int | None:
        """Batches of an epoch; None before training. Not public: code for Determined reads it."""
        units = self.position.units
        return units.batches_per_epoch if units is not None else None

    def set_stop_requested(self, stop_requested: bool) -> None:
        """Request the end of the trial, at the next report, validation or checkpoint.

        Any rank may request it; all ranks end at the same batch. Not collective.
        """
        if not isinstance(stop_requested, bool):
            raise TypeError(f"set_stop_requested: got {stop_requested!r}, expected True or False")
        self._stop_requested = stop_requested

    def get_stop_requested(self) -> bool:
        """Return whether this rank has asked to end the trial."""
        return self._stop_requested


def _known(method: str, value: int | None) -> int:
    if value is None:
        raise ValueError(f"{method}: this trial was not started by an experiment")
    return value
