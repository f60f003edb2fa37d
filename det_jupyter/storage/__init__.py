"""Where checkpoints are kept: the contract, the kinds of storage, and what all of them share."""

from det_jupyter.storage.contract import (
    METADATA_FILE,
    CheckpointStorage,
    StorageDraft,
    path_of,
    read_metadata,
)
from det_jupyter.storage.kinds import find_checkpoint, folder_at, open_storage, reading

__all__ = [
    "METADATA_FILE",
    "CheckpointStorage",
    "StorageDraft",
    "find_checkpoint",
    "folder_at",
    "open_storage",
    "path_of",
    "read_metadata",
    "reading",
]
