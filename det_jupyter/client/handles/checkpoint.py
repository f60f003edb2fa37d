"""A handle on one checkpoint; the checkpoints of an experiment."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from det_jupyter.client.calls import explains_arguments, methods_explain_arguments
from det_jupyter.client.client import Client
from det_jupyter.client.copying import check_target, copied_path, copy_checkpoint
from det_jupyter.client.handle_text import checkpoint_line
from det_jupyter.contract.host.regular_files import read_regular
from det_jupyter.contract.messages import CheckpointView, ExperimentView
from det_jupyter.contract.trial.origin import TRIALS, Origin
from det_jupyter.contract.trial.plain_trainers import describe_plain
from det_jupyter.contract.values.bucket_urls import is_in_bucket
from det_jupyter.errors import CheckpointError, Conflict, NotFound
from det_jupyter.storage import METADATA_FILE, find_checkpoint, reading

POLICY = "checkpoint_storage.save_*"
_TRIAL_LOADER = "det_jupyter.pytorch", "load_trial_from_checkpoint_path"
_MODEL_LOADER = "det_jupyter.integrations.loading", "load_model"


@methods_explain_arguments
class Checkpoint:
    """A saved state of a trial, whose hyperparameters are `hparams`."""

    def __init__(
        self, view: CheckpointView, data_dir: Path, hparams: dict[str, Any] | None = None
    ) -> None:
        self.view = view
        self.hparams = hparams or {}
        self._data_dir = data_dir

    @property
    def uuid(self) -> str:
        """The checkpoint's unique name."""
        return self.view.uuid

    @property
    def path(self) -> Path:
        """The checkpoint's folder in a storage that is a folder.

        Raises:
            CheckpointError: The checkpoint is in a bucket.
        """
        if is_in_bucket(self.view.path):
            raise CheckpointError(
                f"checkpoint {self.uuid}: it has no folder, as it is in a bucket "
                f"({self.view.path}); download() copies it to one, load() needs none"
            )
        return Path(self.view.path)

    @property
    def files(self) -> dict[str, int]:
        """Sizes of its files in bytes, by relative path; empty if it is deleted."""
        storage, name = find_checkpoint(self.view.path)
        return storage.files(name)

    @property
    def steps_completed(self) -> int:
        """Number of batches that the trial had trained."""
        return self.view.steps_completed

    @property
    def searcher_metric(self) -> float | None:
        """The searcher's metric of the validation at the same batch."""
        return self.view.searcher_metric

    @property
    def metadata(self) -> dict[str, Any]:
        """The checkpoint's metadata: `steps_completed`, and what the trial's code added.

        Raises:
            CheckpointError: The checkpoint is deleted or damaged.
        """
        with self._reading(METADATA_FILE.__eq__) as folder:
            file = folder / METADATA_FILE
            try:
                metadata: dict[str, Any] = json.loads(read_regular(file))
            except (OSError, ValueError) as error:
                raise CheckpointError(f"checkpoint {self.uuid}: {file}: {error}") from None
            return metadata

    def download(
        self, folder: str | Path | None = None, selector: Callable[[str], bool] | None = None
    ) -> Path:
        """Copy the files into a folder, which is created if necessary, and return its path.

        Args:
            folder: The folder; by default `checkpoints/<uuid>`. Files of the same names are
                replaced; a folder that contains this checkpoint already is left unchanged.
            selector: Returns whether to copy a file, by its path in the checkpoint. The copy does
                not have metadata.json then, which says that it is complete.

        Raises:
            CheckpointError: The checkpoint is deleted, or files of it are damaged; they are named.
            Conflict: The folder is in the checkpoint's own.
        """
        folder = Path(folder) if folder is not None else Path("checkpoints") / self.uuid
        if not self._is_in(folder):
            check_outside(folder, self.view.path)
            with self._reading(selector) as own:

                def left_out(of: str, names: list[str]) -> list[str]:
                    paths = {name: Path(of, name).relative_to(own).as_posix() for name in names}
                    return [name for name, path in paths.items() if not is_copied(path)]

                def is_copied(path: str) -> bool:
                    is_chosen = selector is None or (own / path).is_dir() or selector(path)
                    return is_chosen and path != METADATA_FILE

                shutil.copytree(own, folder, ignore=left_out, dirs_exist_ok=True)
                if selector is None:
                    shutil.copy2(own / METADATA_FILE, folder)  # means: the copy is complete
        return folder

    def _is_in(self, folder: Path) -> bool:
        try:
            metadata = json.loads(read_regular(folder / METADATA_FILE))
            return bool(metadata["uuid"] == self.uuid)
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def copy(self, to: str | Path) -> str:
        """Copy the checkpoint to another storage, and return the path of the copy there.

        `load_checkpoint` loads it, and `det_jupyter.adopt` lists it. Repeatable: a copy that is
        there is left as it is.

        Args:
            to: A folder, or the location of a bucket such as s3://models/team.

        Raises:
            CheckpointError: The checkpoint is deleted or damaged, or cannot be written there.
        """
        location = check_target(str(to))
        copy_checkpoint(self.view, location)
        return copied_path(self.view, location)

    def load(self, **kwargs: Any) -> Any:
        """Return the trained model, in this process; see `load_checkpoint`.

        Raises:
            CheckpointError: The checkpoint is deleted or damaged, or cannot be loaded here.
        """
        with self._reading() as folder:
            return _load(folder, data_dir=self._data_dir, **kwargs)

    @contextmanager
    def _reading(self, takes: Callable[[str], bool] | None = None) -> Iterator[Path]:
        """Yield a folder with the files that `takes` selects; see CheckpointStorage.reading."""
        if self.view.state == "DELETED":
            raise CheckpointError(
                f"checkpoint {self.uuid} is deleted, on request or by the policy of experiment "
                f"{self.view.experiment_id} ({POLICY}); checkpoints() shows which are COMPLETED"
            )
        storage, name = find_checkpoint(self.view.path)
        if not storage.files(name):
            raise CheckpointError(
                f"checkpoint {self.uuid}: {self.view.path} is not there any more; its "
                f"experiment's policy ({POLICY}) may have deleted it since"
            )
        with storage.reading(name, takes) as folder:
            yield folder

    def __repr__(self) -> str:
        return checkpoint_line(self.view, self.hparams)


def check_outside(folder: Path, checkpoint: str) -> None:
    """Check that a folder to write into is not in that of the checkpoint at a path.

    Raises:
        Conflict: It is.
    """
    if is_in_bucket(checkpoint):
        return
    if folder.resolve().is_relative_to(Path(checkpoint).resolve()):
        raise Conflict(f"{folder}: it is in the checkpoint's own folder; give one elsewhere")


@explains_arguments
def load_checkpoint(path: str | Path, **kwargs: Any) -> Any:
    """Return the trained model, as an object of its library; for a `PyTorchTrial`, the trial.

    The class is loaded from the code captured at submission, a copy of which the checkpoint
    contains, so it need not be defined here. Only load what you trust: that code is run. Neither a
    master nor det_jupyter's data folder is needed.

    Args:
        path: Path of the checkpoint, as `Checkpoint.path` and the view show it; or a copied
            folder.
        kwargs: For `det_jupyter.pytorch.load_trial_from_checkpoint_path`, or for
            `det_jupyter.integrations.loading.load_model`, such as `device="cuda"`: without it the
            model is on the CPU, and a model that is given stays where it is.

    Raises:
        CheckpointError: The checkpoint is deleted or damaged, or cannot be loaded here.
    """
    with reading(str(path)) as folder:
        return _load(folder, **kwargs)


def _load(folder: Path, **kwargs: Any) -> Any:
    is_trial = Origin.read(folder).library == TRIALS
    module, name = _TRIAL_LOADER if is_trial else _MODEL_LOADER
    # By name: handles must not import torch, which only this needs.
    load = getattr(importlib.import_module(module), name)
    return load(folder, **kwargs)


def fetch_checkpoints(client: Client, experiment_id: int) -> list[Checkpoint]:
    """Return handles on the checkpoints of an experiment, oldest first."""
    return checkpoints_from(client, experiment_id, client.checkpoints(experiment_id))


def checkpoints_from(
    client: Client, experiment_id: int, views: Sequence[CheckpointView]
) -> list[Checkpoint]:
    """Return handles on checkpoints of an experiment, with their trials' hyperparameters."""
    data_dir = Path(client.session.info.data_dir)
    if not views:
        return []
    hparams = {trial.id: trial.hparams for trial in client.experiment(experiment_id).trials}
    return [Checkpoint(view, data_dir, hparams.get(view.trial_id)) for view in views]


def _why_none(view: ExperimentView, *, has_others: bool) -> str:
    """Return why there is no checkpoint with a validation, and what saves one."""
    if view.plain_trainer and not has_others:
        said = describe_plain(view.plain_trainer, view.capsule.entrypoint)
        return f"has no checkpoint: {said}"
    yet = "" if view.state.is_terminal else " yet"
    return (
        f"has no checkpoint with a validation{yet}; a PyTorchTrial saves one when a validation is "
        "the best so far, and at the end; a function or script where it calls "
        "context.checkpoint or a trainer with a callback of det_jupyter.integrations"
    )


def find_best_checkpoint(client: Client, view: ExperimentView) -> Checkpoint:
    """Return an experiment's best checkpoint; see `Experiment.best_checkpoint`."""
    found = fetch_checkpoints(client, view.id)
    measured = [c for c in found if c.searcher_metric is not None]
    kept = [c for c in measured if c.view.state == "COMPLETED"]
    if kept:
        loss = view.direction.loss
        return min(kept, key=lambda c: (loss(c.searcher_metric), c.steps_completed))
    if not measured:
        raise NotFound(f"experiment {view.id} {_why_none(view, has_others=bool(found))}")
    deleted = "its only checkpoint" if len(measured) == 1 else f"all {len(measured)} checkpoints"
    raise NotFound(
        f"experiment {view.id}: its policy ({POLICY}) deleted {deleted} with a validation; "
        "checkpoints() shows what is left"
    )
