"""The origin of a checkpoint: the data from which its trial or model can be built again anywhere.

    load_data.json         library and name of the class, hyperparameters, configuration, seed, ids
    code/files/            the captured class: the blobs that the capsule in load_data.json names

The blobs are hard links into the blob store where possible, so a hundred checkpoints of a trial
that captured a large array store it once. A class that was not captured is imported by its name
(origin_code.py).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from det_jupyter.contract.host.blobs import BlobStore, FlatBlobs
from det_jupyter.contract.host.regular_files import read_regular
from det_jupyter.contract.messages import Capsule, GangPlan
from det_jupyter.contract.trial.captured import blobs_of
from det_jupyter.contract.values.nested import describe_changes
from det_jupyter.contract.values.variables import without_values
from det_jupyter.errors import CheckpointError

LOAD_DATA_FILE = "load_data.json"
CODE_FOLDER = "code"
TRIALS = "pytorch"  # the library of a PyTorchTrial
_FORMAT = 2
_PLAIN = ("trial_class", "config", "hparams", "seed", "experiment_id", "trial_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of a checkpoint: its trial.

    Args:
        trial_class: `module:qualname`; of a captured class, the entrypoint. If another library has
            trained, the class of the model; "" if its class is unknown.
        library: The library that trained and saved: `TRIALS`, or a module of
            det_jupyter.integrations.
        hparams: The hyperparameters; None if there are none.
        config: The experiment's configuration; None if there is none.
        seed: The trial's.
        experiment_id, trial_id: None outside of experiments.
        capsule: The captured class; None if it was not captured.
        blobs: The store of the capsule's blobs; None: they are not copied into the checkpoint.
        modules: A folder with the class's modules, if Determined saved the checkpoint.
    """

    trial_class: str
    library: str = TRIALS
    hparams: Mapping[str, Any] | None = None
    config: Mapping[str, Any] | None = None
    seed: int | None = None
    experiment_id: int | None = None
    trial_id: int | None = None
    capsule: Capsule | None = None
    blobs: BlobStore | None = None
    modules: Path | None = None

    @classmethod
    def of_plan(
        cls,
        plan: GangPlan,
        blobs: BlobStore | None,
        *,
        trial_class: str | None = None,
        library: str = TRIALS,
    ) -> Origin:
        """Return the origin for checkpoints of the plan's trial.

        Args:
            blobs: The store of the capsule's blobs.
            trial_class: By default the entrypoint.
        """
        return cls(
            trial_class=plan.capsule.entrypoint if trial_class is None else trial_class,
            library=library,
            hparams=plan.hparams,
            config=plan.config,
            seed=plan.seed,
            experiment_id=plan.experiment_id,
            trial_id=plan.trial_id,
            capsule=plan.capsule,
            blobs=blobs,
        )

    def write(self, path: Path) -> None:
        """Write the origin into the folder of a checkpoint."""
        # A checkpoint may be given to others: it must not name the blob of environment variables,
        # nor contain values that are written into the configuration.
        capsule = self.capsule and self.capsule.model_dump(mode="json", exclude={"environment"})
        load_data = {"format": _FORMAT, "library": self.library}
        load_data |= {name: getattr(self, name) for name in _PLAIN}
        load_data["config"] = self.config and without_values(self.config)
        load_data["capsule"] = capsule
        text = json.dumps(load_data, indent=2, default=str)
        (path / LOAD_DATA_FILE).write_text(text, encoding="utf-8")
        if self.capsule is not None and self.blobs is not None:
            _link_blobs(self.capsule, self.blobs, FlatBlobs(path / CODE_FOLDER / "files"))

    @classmethod
    def read(cls, path: Path) -> Origin:
        """Read the origin from the folder of a checkpoint.

        Raises:
            CheckpointError: The folder has none, or it is damaged.
        """
        try:
            load_data = json.loads(read_regular(path / LOAD_DATA_FILE))
            if "trial_type" in load_data:
                return cls._of_determined(load_data, path)
            capsule = load_data["capsule"]
            return cls(
                **{name: load_data[name] for name in _PLAIN},
                library=load_data.get("library", TRIALS),
                capsule=Capsule.model_validate(capsule) if capsule is not None else None,
                blobs=_stored_blobs(path) if (path / CODE_FOLDER).is_dir() else None,
            )
        except FileNotFoundError:
            raise CheckpointError(
                f"{path} is not a checkpoint of a trial: no {LOAD_DATA_FILE}; if a script has "
                "saved it, or a trainer of another library with an earlier det_jupyter, load the "
                "files in this folder with that library (docs/integrations.md)"
            ) from None
        except OSError as error:
            raise CheckpointError(f"{path / LOAD_DATA_FILE}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"{path / LOAD_DATA_FILE} is damaged: {error!r}") from None

    @classmethod
    def _of_determined(cls, load_data: Mapping[str, Any], path: Path) -> Origin:
        if (kind := load_data["trial_type"]) != "PyTorchTrial":
            raise CheckpointError(
                f"{path}: a {kind} of Determined saved it, and of Determined's only those of a "
                "PyTorchTrial can be loaded; load its files with the library that wrote them"
            )
        return cls(
            trial_class=load_data["trial_cls_spec"],
            hparams=load_data["hparams"],
            config=load_data["experiment_config"],
            modules=path / CODE_FOLDER,
        )


def changed_hparams(path: Path, hparams: Mapping[str, Any] | None) -> list[str]:
    """Return the hyperparameters that differ from those in the folder of a checkpoint.

    [] if the checkpoint contains no hyperparameters, or the training has none.
    """
    with suppress(CheckpointError):
        saved = Origin.read(path).hparams
        if saved is not None and hparams is not None:
            return describe_changes(saved, json.loads(json.dumps(hparams, default=str)))
    return []


def name_of_class(trial_class: type) -> str:
    """Return `module:qualname`, the form of the field `trial_class`."""
    return f"{trial_class.__module__}:{trial_class.__qualname__}"


def _stored_blobs(path: Path) -> BlobStore:
    """Return the blobs in the folder of a checkpoint."""
    files = path / CODE_FOLDER / "files"
    # Checkpoints of earlier versions have a folder for each two letters of a name.
    return FlatBlobs(files) if files.is_dir() else BlobStore.of(path / CODE_FOLDER)


def _link_blobs(capsule: Capsule, source: BlobStore, target: BlobStore) -> None:
    target.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for digest in sorted(blobs_of(capsule)):
        path = target.path(digest)
        path.unlink(missing_ok=True)  # left by an attempt for which the disk had no room
        try:
            os.link(source.path(digest), path)
        except FileNotFoundError:
            raise
        except OSError:  # another file system, or one without hard links
            shutil.copyfile(source.path(digest), path)
