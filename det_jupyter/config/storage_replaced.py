"""A folder for checkpoints in the place of a storage that this version cannot write to.

    --checkpoint-storage FOLDER                     of a submission: `with_storage`
    DET_JUPYTER_CHECKPOINT_STORAGE=FOLDER           of the master: `with_default_storage`

So a file that names s3, gcs, azure or hdfs runs as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from det_jupyter.config.merging import merge
from det_jupyter.config.paths import look_up

VARIABLE = "DET_JUPYTER_CHECKPOINT_STORAGE"
UNWRITABLE = ("s3", "gcs", "azure", "hdfs")
WAYS_OUT = (
    f"submit it with --checkpoint-storage FOLDER, start the master with {VARIABLE}=FOLDER, or "
    "write {type: directory, container_path: FOLDER}"
)
_KEPT = ("save_experiment_best", "save_trial_best", "save_trial_latest")


def with_storage(document: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return a configuration whose checkpoints go to a folder, whatever it or its template says.

    Which checkpoints are kept stays. The option `--checkpoint-storage FOLDER` is laid over a
    document by this function, before it is parsed and sent.

    Args:
        document: What the user wrote.
        folder: An absolute path; of a relative one `parse_config` says that it is wrong.
    """
    given = document.get("checkpoint_storage")
    kept = {key: given[key] for key in _KEPT if key in given} if isinstance(given, Mapping) else {}
    return {
        **document,
        "checkpoint_storage": {"type": "directory", "container_path": folder, **kept},
    }


def unwritable_storage(document: Mapping[str, Any], template: Mapping[str, Any]) -> str:
    """Return the kind of a configuration's storage if it cannot be written to here, else ""."""
    storages = [{"checkpoint_storage": d.get("checkpoint_storage")} for d in (template, document)]
    kind = look_up(merge(*storages), "checkpoint_storage.type")
    return kind if kind in UNWRITABLE else ""


def with_default_storage(
    document: Mapping[str, Any], template: Mapping[str, Any], folder: str
) -> tuple[dict[str, Any], list[str]]:
    """Return a configuration with the master's folder, if its storage cannot be written to.

    The second is a notice about it, if so.

    Args:
        document: What the user wrote.
        template: What it is laid over; empty if over nothing.
        folder: An absolute path; "": the master has none.
    """
    kind = unwritable_storage(document, template)
    if not folder or not kind:
        return dict(document), []
    notice = f"checkpoint_storage: {kind} has no backend here; checkpoints go to {folder}, as "
    return with_storage(document, folder), [f"{notice}the master's {VARIABLE} says."]
