"""Storage of checkpoints: the protocol, the kinds of storage, and functions for all kinds."""

from det_jupyter.storage.contract import (
    METADATA_FILE,
    CheckpointStorage,
    StorageDraft,
    path_of,
    read_metadata,
)
from det_jupyter.storage.kinds import (
    find_checkpoint,
    folder_at,
    open_storage,
    open_storage_of_ranks,
    reading,
)

__all__ = [
    "METADATA_FILE",
    "CheckpointStorage",
    "StorageDraft",
    "find_checkpoint",
    "folder_at",
    "open_storage",
    "open_storage_of_ranks",
    "path_of",
    "read_metadata",
    "reading",
]
