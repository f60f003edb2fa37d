"""Changes of an experiment: its life cycle, its share of the slots, its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from det_jupyter.client.asking import ask_for
from det_jupyter.client.checkpoint import Checkpoint
from det_jupyter.client.client import Client
from det_jupyter.client.trial import Trial
from det_jupyter.config import merge, read_changes
from det_jupyter.contract.messages import (
    Activate,
    Archive,
    Cancel,
    ChangeDetails,
    ChangeResources,
    ChangeSearch,
    CheckpointView,
    ContinueExperiment,
    CreateExperiment,
    Delete,
    Kill,
    MoveInQueue,
    OfExperiment,
    Pause,
    SetRetention,
    Unarchive,
)
from det_jupyter.errors import ConfigError

_SOURCES = ("source_trial_id", "source_checkpoint_uuid")


class SteeredExperiment:
    """The part of a handle that changes an experiment; `Experiment` adds what reads it."""

    def __init__(self, client: Client, experiment_id: int) -> None:
        self._client = client
        self.id = experiment_id

    def pause(self) -> None:
        """Ask all ranks to save their state at the same batch and give their slots back."""
        self._client.change(Pause(experiment_id=self.id))

    def activate(self) -> None:
        """Go on from where `pause` left off."""
        self._client.change(Activate(experiment_id=self.id))

    def cancel(self) -> None:
        """End it: ranks save their state first."""
        self._client.change(Cancel(experiment_id=self.id))

    def kill(self) -> None:
        """End it now; what was not saved is lost."""
        self._client.change(Kill(experiment_id=self.id))

    def archive(self) -> None:
        """Hide it from lists.

        Raises:
            Conflict: It is not over, or archived already.
        """
        self._client.change(Archive(experiment_id=self.id))

    def unarchive(self) -> None:
        """Show it in lists again."""
        self._client.change(Unarchive(experiment_id=self.id))

    def delete(self) -> None:
        """Delete it, with its checkpoints, metrics and logs, for ever.

        Raises:
            Conflict: It is not over, or another experiment still needs one of its checkpoints.
        """
        self._client.change(Delete(experiment_id=self.id))

    def set_name(self, name: str) -> None:
        """Give it another name."""
        self._change(ChangeDetails, name=name)

    def set_description(self, description: str) -> None:
        """Write what it is about, or what came out: text of any number of lines."""
        self._change(ChangeDetails, description=description)

    def add_label(self, *labels: str) -> None:
        """Give it labels, by which it can be found; those that it has already stay."""
        self._change(ChangeDetails, add_labels=list(labels))

    def remove_label(self, *labels: str) -> None:
        """Take labels away from it."""
        self._change(ChangeDetails, remove_labels=list(labels))

    def _change(self, kind: type[OfExperiment], **given: Any) -> Any:
        return self._client.change(ask_for(kind, experiment_id=self.id, **given))

    def set_priority(self, priority: int) -> None:
        """Have it go before, or after, others: 1 to 99, a lower number is more urgent."""
        self._change(ChangeResources, priority=priority)

    def set_weight(self, weight: float) -> None:
        """Give it another share of the slots, in pools with fair share."""
        self._change(ChangeResources, weight=weight)

    def set_max_slots(self, max_slots: int | None) -> None:
        """Limit the slots that its trials hold together; None: no limit."""
        self._change(ChangeResources, max_slots="none" if max_slots is None else max_slots)

    def set_pool(self, name: str) -> None:
        """Have its trials wait for slots of another pool; those that run go there too."""
        self._change(ChangeResources, resource_pool=name)

    def move_ahead_of(self, other: SteeredExperiment | int) -> None:
        """Have it stand right ahead of another experiment in the queue, with its priority."""
        self._change(MoveInQueue, ahead_of=_number(other))

    def move_behind(self, other: SteeredExperiment | int) -> None:
        """Have it stand right behind another experiment in the queue, with its priority."""
        self._change(MoveInQueue, behind=_number(other))

    def change_search(
        self,
        *,
        max_trials: int | None = None,
        max_length: dict[str, int] | int | None = None,
        max_concurrent_trials: int | None = None,
        hyperparameters: dict[str, Any] | None = None,
    ) -> None:
        """Give a running search other limits; what is not given stays as it is.

        Args:
            max_trials: More trials than before.
            max_length: A longer training, such as {"epochs": 12}.
            max_concurrent_trials: Number of trials that train at once from now on.
            hyperparameters: Narrower ranges for the trials that are still to come.

        Raises:
            ConfigError: All reasons why it cannot be changed so; nothing has changed.
            Conflict: It is over.
        """
        change = ask_for(
            ChangeSearch,
            experiment_id=self.id,
            max_trials=max_trials,
            max_length=max_length,
            max_concurrent_trials=max_concurrent_trials,
            hyperparameters=hyperparameters,
        )
        if not change.given():
            raise ConfigError(
                ["nothing to change: give max_trials, max_length, max_concurrent_trials or "
                 "hyperparameters"]
            )  # fmt: skip
        self._client.change(change)

    def continue_(self, config: Mapping[str, Any] | None = None) -> None:
        """Go on with it after its end, under its own number: trials that did not finish do.

        Args:
            config: Laid over its configuration, such as {"searcher.max_length.epochs": 12}; only
                for the searcher `single`.

        Raises:
            ConfigError: Everything that is wrong with the configuration.
            Conflict: It is not over, or nothing of it is left to do.
        """
        self._client.go_on(self.id, _changes(config))

    def fork(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        trial: Trial | int | None = None,
        checkpoint: Checkpoint | str | None = None,
        queue_anyway: bool = False,
    ) -> Self:
        """Submit it anew as an experiment of its own, with the code that it was made with.

        Args:
            config: Laid over its configuration, such as {"hyperparameters.lr": 0.1}.
            trial: The trials start from the latest checkpoint of this one.
            checkpoint: The trials start from this one.
            queue_anyway: Submit it though no pool can run it now: slots may come.

        Raises:
            ConfigError: Everything that is wrong with the configuration.
            Conflict: It is archived.
        """
        if trial is not None and checkpoint is not None:
            raise ConfigError(["fork: give a trial or a checkpoint, not both"])
        view = self._client.experiment(self.id)
        document = merge(view.config, _changes(config).config)
        if trial is not None:
            document = _from_source(document, "source_trial_id", _number(trial))
        if checkpoint is not None:
            uuid = checkpoint.uuid if isinstance(checkpoint, Checkpoint) else checkpoint
            document = _from_source(document, "source_checkpoint_uuid", uuid)
        request = CreateExperiment(
            config=document,
            capsule=view.capsule,
            python=view.python,
            cwd=view.cwd,
            notebook=view.notebook,
            queue_anyway=queue_anyway,
            parent_id=self.id,
        )
        return type(self)(self._client, self._client.create(request).id)

    def set_retention(
        self,
        *,
        save_experiment_best: int,
        save_trial_best: int,
        save_trial_latest: int,
        dry_run: bool = False,
    ) -> list[Checkpoint]:
        """Keep only these checkpoints: the best of all, the best and the latest of each trial.

        Args:
            dry_run: Delete nothing; return those that would be.

        Returns:
            The checkpoints that are deleted.
        """
        request = ask_for(
            SetRetention,
            experiment_id=self.id,
            save_experiment_best=save_experiment_best,
            save_trial_best=save_trial_best,
            save_trial_latest=save_trial_latest,
            dry_run=dry_run,
        )
        return self._checkpoints(self._client.change(request))

    def _checkpoints(self, views: list[CheckpointView]) -> list[Checkpoint]:
        data_dir = Path(self._client.session.info.data_dir)
        if not views:
            return []
        hparams = {trial.id: trial.hparams for trial in self._client.experiment(self.id).trials}
        return [Checkpoint(view, data_dir, hparams.get(view.trial_id)) for view in views]


def _number(handle: Any) -> Any:
    """Return the number of a handle; anything else is returned as it is, and checked later."""
    return getattr(handle, "id", handle)


def _changes(config: Mapping[str, Any] | None) -> ContinueExperiment:
    """Return changes of a configuration without dots in their keys."""
    given = ask_for(ContinueExperiment, config=config or {})
    return ContinueExperiment(config=read_changes(given.config))


def _from_source(
    document: dict[str, Any],
    key: Literal["source_trial_id", "source_checkpoint_uuid"],
    value: Any,
) -> dict[str, Any]:
    searcher = {k: v for k, v in document["searcher"].items() if k not in _SOURCES}
    return document | {"searcher": searcher | {key: value}}
