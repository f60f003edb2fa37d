"""Handles on models of the registry and their versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from det_jupyter.client.calls import methods_explain_arguments
from det_jupyter.client.client import Client
from det_jupyter.client.handles.checkpoint import Checkpoint
from det_jupyter.client.handles.mlflow_push import push_to_mlflow
from det_jupyter.client.handles.pushing import Layout, check_place, push_version
from det_jupyter.client.requests import make_request
from det_jupyter.client.tables import plain_table
from det_jupyter.contract.messages import (
    CreateModel,
    DeleteModel,
    DeleteVersion,
    EditModel,
    EditVersion,
    ModelView,
    OfModel,
    RegisterVersion,
    SetAlias,
    VersionView,
)
from det_jupyter.contract.values.text import length, number
from det_jupyter.errors import ConfigError, Problem

Words = str | Iterable[str]  # one, or several


@methods_explain_arguments
class ModelVersion:
    """A version of a model. The handle stores its number; each call fetches its data."""

    def __init__(self, client: Client, model: str, number: int) -> None:
        self._client = client
        self.model_name = model
        self.number = number

    @property
    def view(self) -> VersionView:
        """All data of the version that the master stores, fetched now."""
        return self._client.model(self.model_name).version(self.number)

    @property
    def checkpoint(self) -> Checkpoint:
        """The version's checkpoint: `checkpoint.load()` returns the trained model."""
        view = self.view
        data_dir = Path(self._client.session.info.data_dir)
        return Checkpoint(view.checkpoint, data_dir, view.hparams)

    @property
    def name(self) -> str:
        """The name of the version; it may be empty."""
        return self.view.name

    @property
    def comment(self) -> str:
        """The difference from other versions, in a line."""
        return self.view.comment

    @property
    def notes(self) -> str:
        """Longer text about the version."""
        return self.view.notes

    @property
    def labels(self) -> list[str]:
        """Labels of the version."""
        return self.view.labels

    @property
    def metadata(self) -> dict[str, Any]:
        """Values that were stored with the version, by name."""
        return self.view.metadata

    @property
    def aliases(self) -> list[str]:
        """Aliases of the version."""
        return self._client.model(self.model_name).aliases_of(self.number)

    def edit(
        self,
        *,
        name: str | None = None,
        comment: str | None = None,
        notes: str | None = None,
        add_labels: Words = (),
        remove_labels: Words = (),
        add_metadata: Mapping[str, Any] | None = None,
        remove_metadata: Words = (),
    ) -> None:
        """Change data of the version; arguments that are not given change nothing."""
        self._change(
            EditVersion,
            name=name,
            comment=comment,
            notes=notes,
            add_labels=_words(add_labels),
            remove_labels=_words(remove_labels),
            add_metadata=add_metadata or {},
            remove_metadata=_words(remove_metadata),
        )

    def push(
        self,
        to: str | Path,
        *,
        folder: str | Path | None = None,
        tracking_uri: str | None = None,
        safetensors: bool = False,
    ) -> Path | str:
        """Write the version for others, who need no master.

        Each layout has `model.json` (name, labels, metadata, origin), `config.yaml`, and a
        README.md that says how the model is loaded.

        Args:
            to: A folder that is empty or does not exist, for `code/` and `checkpoint/`, which
                `det_jupyter.load_checkpoint` loads. "hf": a folder as huggingface.co has it: what
                `save_pretrained` writes, or the weights alone if the model has no such method.
                "mlflow": a version in MLflow's registry. `Path("hf")` is a folder of that name.
            folder: The folder for "hf"; by default NAME-NUMBER here.
            tracking_uri: The address of MLflow; by default the one in MLFLOW_TRACKING_URI, the
                only one that gets credentials of the environment.
            safetensors: Write the weights alone, as `model.safetensors`, instead of the
                checkpoint and the code.

        Returns:
            The folder; for MLflow the version's address, such as models:/digits/3.

        Raises:
            CheckpointError: The checkpoint is damaged, or cannot be loaded here.
            ConfigError: There is no address of MLflow, or an argument is not for this layout.
            Conflict: There are files in the folder.
            DetError: safetensors or MLflow is not installed, the folder cannot be written, or
                MLflow refuses it.
        """
        check_place(to, folder, tracking_uri, safetensors=safetensors)
        view = self.view
        layout: Layout = "safetensors" if safetensors else "plain"
        if to == "mlflow":
            return push_to_mlflow(self._client, self.model_name, view, tracking_uri, layout)
        if to == "hf":
            layout, to = "hf", folder or f"{self.model_name}-{self.number}"
        return push_version(self._client, self.model_name, view, Path(to), layout)

    def delete(self) -> None:
        """Delete the version and its aliases; its checkpoint stays, and may be deleted then."""
        self._change(DeleteVersion)

    def _change(self, kind: type[OfModel], **given: Any) -> None:
        request = make_request(kind, model=self.model_name, number=self.number, **given)
        self._client.change(request)

    def __repr__(self) -> str:
        return version_line(self._client.model(self.model_name), self.view)


@methods_explain_arguments
class Model:
    """A model of the registry. The handle stores its name; each call fetches its data."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name = name

    @property
    def view(self) -> ModelView:
        """All data of the model that the master stores, fetched now."""
        return self._client.model(self.name)

    @property
    def description(self) -> str:
        """Purpose of the model."""
        return self.view.description

    @property
    def notes(self) -> str:
        """Longer text about the model."""
        return self.view.notes

    @property
    def labels(self) -> list[str]:
        """Labels of the model."""
        return self.view.labels

    @property
    def metadata(self) -> dict[str, Any]:
        """Values that were stored with the model, by name."""
        return self.view.metadata

    @property
    def aliases(self) -> dict[str, int]:
        """Numbers of versions, by alias."""
        return self.view.aliases

    def versions(self) -> list[ModelVersion]:
        """Return the versions, oldest first."""
        return [self._version(version.number) for version in self.view.versions]

    def version(self, which: int | str | None = None) -> ModelVersion:
        """Return a version.

        Args:
            which: Its number, or an alias; by default the newest.

        Raises:
            NotFound: There is none; the message has those that there are.
        """
        return self._version(self.view.version(which).number)

    def register_version(
        self,
        checkpoint: Checkpoint | str,
        *,
        name: str = "",
        comment: str = "",
        notes: str = "",
        labels: Words = (),
        metadata: Mapping[str, Any] | None = None,
        alias: Words = (),
    ) -> ModelVersion:
        """Make a checkpoint the next version; a registered checkpoint is not deleted.

        Args:
            checkpoint: A handle, or the uuid.
            name: Name of the version.
            comment: The difference from other versions, in a line.
            notes: Longer text.
            labels: Labels of the version.
            metadata: Anything that JSON can store, by name.
            alias: An alias for the version, such as "production", or several.

        Raises:
            Conflict: The checkpoint is deleted, is a version of this model already, or the model
                is archived.
            NotFound: There is no such checkpoint.
        """
        uuid = checkpoint.uuid if isinstance(checkpoint, Checkpoint) else checkpoint
        view = self._change(
            RegisterVersion,
            uuid=uuid,
            name=name,
            comment=comment,
            notes=notes,
            labels=_words(labels),
            metadata=metadata or {},
            aliases=_words(alias),
        )
        return self._version(next(v.number for v in view.versions if v.uuid == uuid))

    def set_alias(self, alias: str, version: ModelVersion | int | str | None = None) -> None:
        """Give an alias to a version, and take it from the one that had it.

        Args:
            alias: A name that is no number.
            version: A handle, a number or another alias; by default the newest version.
        """
        number = version.number if isinstance(version, ModelVersion) else self._number(version)
        self._change(SetAlias, alias=alias, number=number)

    def remove_alias(self, alias: str) -> None:
        """Remove an alias; the version stays."""
        self._change(SetAlias, alias=alias, number=None)

    def edit(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        notes: str | None = None,
        add_labels: Words = (),
        remove_labels: Words = (),
        add_metadata: Mapping[str, Any] | None = None,
        remove_metadata: Words = (),
    ) -> None:
        """Change data of the model; arguments that are not given change nothing."""
        view = self._change(
            EditModel,
            name=name,
            description=description,
            notes=notes,
            add_labels=_words(add_labels),
            remove_labels=_words(remove_labels),
            add_metadata=add_metadata or {},
            remove_metadata=_words(remove_metadata),
        )
        self.name = view.name

    def archive(self) -> None:
        """Hide the model from lists; no version can be registered then."""
        self._change(EditModel, is_archived=True)

    def unarchive(self) -> None:
        """Show the model in lists again."""
        self._change(EditModel, is_archived=False)

    def delete(self) -> None:
        """Delete the model with its versions; their checkpoints stay, and may be deleted then."""
        self._change(DeleteModel)

    def _version(self, number: int) -> ModelVersion:
        return ModelVersion(self._client, self.name, number)

    def _number(self, which: int | str | None) -> int:
        return self.view.version(which).number

    def _change(self, kind: type[OfModel], **given: Any) -> ModelView:
        view: ModelView = self._client.change(make_request(kind, model=self.name, **given))
        return view

    def __repr__(self) -> str:
        view = self.view
        lines = [f"Model {view.name}{': ' if view.description else ''}{view.description}"]
        lines += [f"  {version_line(view, version)}" for version in view.versions]
        return "\n".join(lines if view.versions else [f"{lines[0]} (no version yet)"])


class FoundModels(list[Model]):
    """A list of handles on models; prints as a table."""

    def __init__(self, client: Client, found: Sequence[ModelView]) -> None:
        super().__init__(Model(client, view.name) for view in found)
        self._found = found

    def __repr__(self) -> str:
        if not self._found:
            return "No models; det_jupyter.create_model(name) makes one."
        rows = [
            (view.name, str(len(view.versions)), aliases_text(view), view.description)
            for view in self._found
        ]
        return plain_table(("name", "versions", "aliases", "description"), rows)


def create_model_in(
    client: Client,
    name: str,
    *,
    description: str = "",
    notes: str = "",
    labels: Words = (),
    metadata: Mapping[str, Any] | None = None,
) -> ModelView:
    """Create a model, and return its view.

    Raises:
        ConfigError: The name cannot be one, or something else is wrong.
        Conflict: There is a model of this name.
    """
    request = make_request(
        CreateModel,
        name=name,
        description=description,
        notes=notes,
        labels=_words(labels),
        metadata=metadata or {},
    )
    view: ModelView = client.change(request)
    return view


def find_models(
    client: Client, text: str = "", *, labels: Words = (), archived: bool = False
) -> list[ModelView]:
    """Return the models, by name, that have all words in name or description, and all labels.

    Args:
        archived: Include archived ones.
    """
    wanted = {*_words(labels)}
    words = text.lower().split()
    return sorted(
        (
            view
            for view in client.models()
            if (archived or not view.is_archived)
            and wanted <= {*view.labels}
            and all(word in f"{view.name} {view.description}".lower() for word in words)
        ),
        key=lambda view: view.name,
    )


def _words(given: Words) -> Any:
    """Return words as a list; a request refuses anything else."""
    if isinstance(given, str):
        return [given]
    return list(given) if isinstance(given, Iterable) else given


def check_name(name: Any) -> str:
    """Return the name of a model.

    Raises:
        ConfigError: It is no text.
    """
    if not isinstance(name, str):
        raise ConfigError([Problem("name", f"got {name!r:.60}, expected the name of a model")])
    return name


def aliases_text(view: ModelView) -> str:
    """Return the aliases of a model with their versions, such as "production: 3"."""
    return ", ".join(f"{alias}: {number}" for alias, number in sorted(view.aliases.items()))


def version_line(model: ModelView, version: VersionView) -> str:
    """Return a version's number, aliases, metric, origin and comment."""
    checkpoint = version.checkpoint
    aliases = "".join(f" ({alias})" for alias in model.aliases_of(version.number))
    parts = [f"{model.name} version {version.number}{aliases}"]
    if version.name:
        parts.append(version.name)
    if checkpoint.searcher_metric is not None:
        parts.append(f"{version.metric} {number(checkpoint.searcher_metric)}")
    parts.append(
        f"experiment {checkpoint.experiment_id}, trial {checkpoint.trial_id}, "
        f"{length({'batches': checkpoint.steps_completed})}"
    )
    if checkpoint.state != "COMPLETED":
        parts.append("its checkpoint was deleted by code of the trial")
    if version.comment:
        parts.append(version.comment)
    return ": ".join([parts[0], ", ".join(parts[1:])])
