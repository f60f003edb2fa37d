"""A checkpoint, with the methods that Determined's has."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from det_jupyter.client import Checkpoint as OwnCheckpoint
from det_jupyter.contract.messages import DropCheckpoints
from determined._lacking import Handle


class DownloadMode(Enum):
    """Where a checkpoint is read from; here there is one way, whatever is asked for."""

    AUTO = "auto"
    DIRECT = "direct"
    MASTER = "master"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTrainingMetadata:
    """Where a checkpoint comes from."""

    experiment_id: int
    trial_id: int
    hparams: dict[str, Any]
    searcher_metric: float | None


class Checkpoint(OwnCheckpoint, Handle):
    """A saved state of a trial."""

    @property
    def state(self) -> str:
        """COMPLETED, PARTIALLY_DELETED or DELETED."""
        return self.view.state

    @property
    def training(self) -> CheckpointTrainingMetadata:
        """Where it comes from."""
        return CheckpointTrainingMetadata(
            experiment_id=self.view.experiment_id,
            trial_id=self.view.trial_id,
            hparams=self.hparams,
            searcher_metric=self.searcher_metric,
        )

    @property
    def resources(self) -> dict[str, int]:
        """Its files, with their sizes in bytes."""
        return self.files

    def download(  # type: ignore[override]  # Determined's returns text
        self, path: str | Path | None = None, mode: DownloadMode = DownloadMode.AUTO
    ) -> str:
        """Copy its files to a folder, by default `checkpoints/<uuid>`, and return that."""
        return str(super().download(path))

    def write_metadata_file(self, path: str | Path) -> None:
        """Write its metadata to a file, as JSON."""
        Path(path).write_text(json.dumps(self.metadata, indent=2), encoding="utf-8")

    def delete(self) -> None:
        """Delete its files.

        Raises:
            Conflict: It is deleted already, or a trial needs it.
        """
        from determined.experimental.client._determined import client

        client().change(DropCheckpoints(uuids=[self.uuid]))

    def remove_files(self, globs: list[str]) -> None:
        """Delete those of its files that patterns match.

        Raises:
            Conflict: It is deleted already, or a trial needs it.
            NotFound: They match none.
        """
        from determined.experimental.client._determined import client

        client().change(DropCheckpoints(uuids=[self.uuid], globs=globs))

    def reload(self) -> None:
        """Do nothing: the folder is asked each time."""
