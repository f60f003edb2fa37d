"""Times the functions by which libraries save, such as torch.save, as the part `checkpoint`.

A saver that calls another one is timed as a whole. If a library saves in a thread or process of
its own, only the time in which the training waits is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from det_jupyter.core.timings.after_import import after_import
from det_jupyter.core.timings.any_loop import LoopTimings

# By module: a class whose methods these are, or "" for functions of the module; their names.
_SAVERS = {
    "torch": ("", ("save",)),
    "torch.distributed.checkpoint": ("", ("save", "async_save")),
    "safetensors.torch": ("", ("save_file", "save_model")),
    "transformers.trainer": ("Trainer", ("_save_checkpoint", "save_model")),
    "transformers.modeling_utils": ("PreTrainedModel", ("save_pretrained",)),
    "lightning.pytorch.trainer.trainer": ("Trainer", ("save_checkpoint",)),
    "pytorch_lightning.trainer.trainer": ("Trainer", ("save_checkpoint",)),
    "lightning.fabric.fabric": ("Fabric", ("save",)),
    "lightning_fabric.fabric": ("Fabric", ("save",)),
    "accelerate.accelerator": ("Accelerator", ("save_state", "save_model")),
    "keras.src.saving.saving_api": ("", ("save_model", "save_weights")),
}


def watch_savers(loop: LoopTimings) -> None:
    """Time the savers of `loop` from now on, each once its library is imported. Call it once."""
    for module, (owner, names) in _SAVERS.items():
        after_import(module, partial(_wrap, loop, module), has=owner or names[0])


def _wrap(loop: LoopTimings, module: str) -> None:
    owner, names = _SAVERS[module]
    holder = getattr(sys.modules[module], owner) if owner else sys.modules[module]
    for name in names:
        if (save := getattr(holder, name, None)) is not None:
            timed = _timed(loop, save)
            setattr(holder, name, timed)
            # A function is pickled by the name of the module that defines it.
            home = sys.modules.get(save.__module__)
            if not owner and getattr(home, name, None) is save:
                setattr(home, name, timed)


def _timed(loop: LoopTimings, save: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(save)
    def timed(*args: Any, **kwargs: Any) -> Any:
        with loop.timed_block("checkpoint"):
            return save(*args, **kwargs)

    return timed
