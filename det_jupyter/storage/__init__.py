"""Where checkpoints are kept."""

from det_jupyter.storage.local import LocalDraft, LocalStorage, default_root

__all__ = ["LocalDraft", "LocalStorage", "default_root"]
