"""Where checkpoints are kept."""

from det_jupyter.storage.local import CheckpointStorage, Draft, LocalStorage, default_root

__all__ = ["CheckpointStorage", "Draft", "LocalStorage", "default_root"]
