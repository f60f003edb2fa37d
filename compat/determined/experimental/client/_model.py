"""A model of the registry and its versions, with the methods that Determined's have."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

from det_jupyter.client import Model as OwnModel
from det_jupyter.client import ModelVersion as OwnVersion
from det_jupyter.contract.messages import ModelView
from det_jupyter.errors import NotFound
from determined._lacking import Handle
from determined.experimental.client._checkpoint import Checkpoint
from determined.experimental.client._sorting import OrderBy, in_order


class ModelSortBy(Enum):
    """What models are sorted by."""

    NAME = "name"
    DESCRIPTION = "description"
    CREATION_TIME = "created_at"
    LAST_UPDATED_TIME = "updated_at"


ModelOrderBy = OrderBy


class ModelVersion(OwnVersion, Handle):
    """A version of a model."""

    @property
    def model_version(self) -> int:
        """Number of the version."""
        return self.number

    @property
    def checkpoint(self) -> Checkpoint:
        """The version's checkpoint."""
        view, folder = self.view, Path(self._client.session.info.data_dir)
        return Checkpoint(view.checkpoint, folder, view.hparams)

    @property
    def creation_time(self) -> datetime:
        """Time of the registration."""
        return datetime.fromtimestamp(self.view.created_at, UTC)

    @property
    def last_updated_time(self) -> datetime:
        """Time of the last change."""
        return datetime.fromtimestamp(self.view.updated_at, UTC)

    def set_name(self, name: str) -> None:
        """Rename the version."""
        self.edit(name=name)

    def set_notes(self, notes: str) -> None:
        """Replace the notes."""
        self.edit(notes=notes)

    def reload(self) -> None:
        """Do nothing: the master is asked each time."""


class Model(OwnModel, Handle):
    """A model of the registry."""

    @property
    def model_id(self) -> int:
        """Number of the model."""
        return self.view.id

    @property
    def archived(self) -> bool:
        """Whether the model is archived."""
        return self.view.is_archived

    @property
    def creation_time(self) -> datetime:
        """Time of the creation."""
        return datetime.fromtimestamp(self.view.created_at, UTC)

    @property
    def last_updated_time(self) -> datetime:
        """Time of the last change."""
        return datetime.fromtimestamp(self.view.updated_at, UTC)

    def get_version(self, version: int = -1) -> ModelVersion | None:
        """Return a version; -1: the newest. None if there is none."""
        try:
            found = self.view.version(None if version == -1 else version)
        except NotFound:
            return None
        return ModelVersion(self._client, self.name, found.number)

    def list_versions(
        self, sort_by: Any = None, order_by: OrderBy = OrderBy.DESCENDING
    ) -> list[ModelVersion]:
        """Return the versions, by default the newest first."""
        numbers = in_order([v.number for v in self.view.versions], int, order_by)
        return [ModelVersion(self._client, self.name, number) for number in numbers]

    def get_versions(self, order_by: OrderBy = OrderBy.DESCENDING) -> list[ModelVersion]:
        """Return the versions, by default the newest first."""
        return self.list_versions(order_by=order_by)

    def register_version(  # type: ignore[override]  # Determined's takes a uuid alone
        self, checkpoint_uuid: str
    ) -> ModelVersion:
        """Make a checkpoint the next version.

        Raises:
            Conflict: It is deleted, or is a version of this model already.
        """
        number = super().register_version(checkpoint_uuid).number
        return ModelVersion(self._client, self.name, number)

    def add_metadata(self, metadata: dict[str, Any]) -> None:
        """Add metadata; values of the same names are replaced."""
        self.edit(add_metadata=metadata)

    def remove_metadata(self, keys: list[str]) -> None:
        """Remove the metadata with these names."""
        self.edit(remove_metadata=keys)

    def set_labels(self, labels: Iterable[str]) -> None:
        """Replace the labels."""
        wanted, before = list(labels), self.labels
        removed = [label for label in before if label not in wanted]
        added = [label for label in wanted if label not in before]
        if added or removed:
            self.edit(add_labels=added, remove_labels=removed)

    def set_description(self, description: str) -> None:
        """Replace the description."""
        self.edit(description=description)

    def reload(self) -> None:
        """Do nothing: the master is asked each time."""


def sorted_models(
    views: Iterable[ModelView], sort_by: ModelSortBy, order_by: OrderBy
) -> list[ModelView]:
    """Return models in an order."""
    return in_order(list(views), lambda view: getattr(view, sort_by.value), order_by)
