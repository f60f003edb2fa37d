"""The file that each checkpoint has: its uuid, and what it was stored with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from det_jupyter.errors import CheckpointError

METADATA_FILE = "metadata.json"


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata of the checkpoint in this folder.

    Raises:
        CheckpointError: The folder is not a checkpoint.
    """
    try:
        metadata: dict[str, Any] = json.loads((path / METADATA_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is not a checkpoint: it has no {METADATA_FILE}") from None
    except ValueError as error:
        raise CheckpointError(f"{path / METADATA_FILE} is damaged: {error}") from None
    return metadata
