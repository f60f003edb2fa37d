"""Where checkpoints are kept."""

from det_jupyter.storage.local import CheckpointStorage, LocalStorage, default_root

__all__ = ["CheckpointStorage", "LocalStorage", "default_root"]
