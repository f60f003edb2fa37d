"""The format of an archive: a zip file with one experiment, and no secrets.

    manifest.json                  format, version, the experiment (ImportExperiment), and size and
                                   SHA-256 of each other member
    blobs/DIGEST                   the captured code: the blobs that its capsule names
    trials/INDEX/metrics.jsonl     metrics and progress, as lines of a journal
    trials/INDEX/logs.jsonl        what its ranks printed (ImportedLine)
    checkpoints/UUID/FILE          the files of a checkpoint

No member is compressed: none can be larger than the file, and checkpoints hardly shrink. A field
more in the manifest is another version.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from pydantic import Field

from det_jupyter.config.storages import LOCATING
from det_jupyter.contract.messages import ImportedLine, ImportExperiment, Wire
from det_jupyter.contract.values.variables import without_values

FORMAT = "det_jupyter experiment"
VERSION = 1
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 256 * 1024 * 1024
# Sections with addresses of the user's own services.
_SERVICES = ("alerts", "trackers")


class Member(Wire):
    """A file in an archive."""

    size_bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Manifest(Wire):
    """The content of manifest.json; paths of checkpoints are those of their folders there."""

    format: str
    version: int
    written_by: str  # version of det_jupyter
    experiment: ImportExperiment
    members: dict[str, Member]


def blob_name(digest: str) -> str:
    """Return the member with a blob."""
    return f"blobs/{digest}"


def metrics_name(index: int) -> str:
    """Return the member with the metrics of a trial."""
    return f"trials/{index}/metrics.jsonl"


def logs_name(index: int) -> str:
    """Return the member with what a trial printed."""
    return f"trials/{index}/logs.jsonl"


def checkpoint_folder(uuid: str) -> str:
    """Return the folder with the files of a checkpoint."""
    return f"checkpoints/{uuid}"


def is_inside(name: str) -> bool:
    """Return whether a relative path stays in its folder, on any system.

    >>> is_inside("a/b.pt"), is_inside("../b"), is_inside("/b"), is_inside("a//b"), is_inside("")
    (True, False, False, False, False)
    """
    path = PurePosixPath(name)
    is_plain = str(path) == name and name.isprintable() and "\\" not in name
    return is_plain and name not in ("", ".") and not path.is_absolute() and ".." not in path.parts


def shareable(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without what belongs to one user and master.

    That are values of environment variables, addresses of alerts and trackers, the place of
    checkpoints, the pool, and numbers of trials that it starts from.
    """
    kept = {key: value for key, value in without_values(config).items() if key not in _SERVICES}
    places = {
        "checkpoint_storage": LOCATING,
        "resources": ("resource_pool",),
        "searcher": ("source_trial_id", "source_checkpoint_uuid"),
    }
    for section, keys in places.items():
        if isinstance(values := kept.get(section), Mapping):
            kept[section] = {key: values[key] for key in values if key not in keys}
    return kept


def python_version() -> str:
    """Return the version of Python without the last number: captured code depends on it."""
    return ".".join(map(str, sys.version_info[:2]))


def parse_lines(text: str) -> list[ImportedLine]:
    """Return the lines in logs.jsonl.

    Raises:
        ValueError: The text is something else.
    """
    return [ImportedLine.model_validate_json(line) for line in text.split("\n") if line]
