"""Views of models of the registry, made from the state. Pure."""

from __future__ import annotations

from det_jupyter.contract.messages import ModelView, StoredVersion, VersionView
from det_jupyter.contract.values.direction import Direction
from det_jupyter.master.machine.model.state import MachineState, Model


def model_view(state: MachineState, model: Model) -> ModelView:
    """Return a model with its versions, and where each comes from."""
    versions = [_version_view(state, version) for version in model.versions]
    return ModelView.built_from(model, versions=versions)


def _version_view(state: MachineState, version: StoredVersion) -> VersionView:
    checkpoint = state.checkpoints[version.uuid]  # its experiment stays while it is registered
    experiment = state.experiments[checkpoint.experiment_id]
    return VersionView.built_from(
        version,
        checkpoint=checkpoint,
        experiment=experiment.name,
        metric=experiment.metric,
        smaller_is_better=experiment.direction is Direction.MINIMIZE,
        hparams=state.trials[checkpoint.trial_id].hparams,
    )
