"""Information about a trial: hyperparameters, configuration, ids, and its position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from det_jupyter.config import ExperimentConfig
from det_jupyter.core import DistributedContext
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.messages import warn_user
from det_jupyter.pytorch.steps.position import Position


class ContextInfo:
    """Methods of a PyTorchTrialContext that return information. None of them is collective."""

    distributed: DistributedContext
    config: ExperimentConfig | None
    position: Position  # shared with the loop, which writes it
    _hparams: Mapping[str, Any] | None
    _experiment_id: int | None  # None outside of experiments, like `_trial_id`
    _trial_id: int | None
    _trial_seed: int | None  # None in a context that only loads a checkpoint
    _stop_requested = False

    @property
    def has_hparams(self) -> bool:
        """Whether hyperparameters were given."""
        return self._hparams is not None

    @property
    def has_batch_size(self) -> bool:
        """Whether the hyperparameters have a `global_batch_size`."""
        return "global_batch_size" in (self._hparams or {})

    def get_per_slot_batch_size(self) -> int:
        """Return how many records this rank trains per batch.

        The ranks' sizes add up to `get_global_batch_size()`: a remainder is divided among the
        first ranks, one record each.
        """
        each, rest = divmod(self.get_global_batch_size(), self.distributed.size)
        return each + (self.distributed.rank < rest)

    def get_global_batch_size(self) -> int:
        """Return how many records all ranks together train per batch."""
        where = "hyperparameters.global_batch_size"
        slots = self.distributed.size
        size = self.get_hparams().get("global_batch_size")
        if isinstance(size, bool) or not isinstance(size, int):
            given = "missing" if size is None else f"got {size!r}"
            raise ConfigError(f"{where}: {given}, expected a whole number of records")
        if size < slots:
            raise ConfigError(
                f"{where}: got {size}, expected at least resources.slots_per_trial "
                f"({slots}): each rank needs a record of every batch"
            )
        return size

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
            warn_user(
                "get_hparam('global_batch_size') is the size for all slots together; "
                "use get_per_slot_batch_size() or get_global_batch_size()",
            )
        return hparams[name]

    def get_experiment_config(self) -> dict[str, Any]:
        """Return the experiment's effective configuration."""
        return self._required_config("get_experiment_config").to_document()

    def get_data_config(self) -> dict[str, Any]:
        """Return the `data` section of the configuration."""
        return dict(self._required_config("get_data_config").data)

    def _required_config(self, method: str) -> ExperimentConfig:
        if self.config is None:
            raise ValueError(
                f"{method}: no configuration was given to this context; "
                "pass it: pytorch.init(exp_conf={...})"
            )
        return self.config

    def get_experiment_id(self) -> int:
        """Return the experiment's id."""
        return _required("get_experiment_id", self._experiment_id)

    def get_trial_id(self) -> int:
        """Return the trial's id."""
        return _required("get_trial_id", self._trial_id)

    def get_trial_seed(self) -> int:
        """Return the seed from which all random numbers of this trial derive."""
        return _required("get_trial_seed", self._trial_seed)

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
        """Batches per epoch; None before training. Code written for Determined reads it."""
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
        """Return whether this rank has requested the end of the trial."""
        return self._stop_requested


def _required(method: str, value: int | None) -> int:
    if value is None:
        raise ValueError(f"{method}: this trial was not started by an experiment")
    return value
