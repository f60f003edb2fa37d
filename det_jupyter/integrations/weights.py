"""Writes the weights of a loaded model as safetensors, or as `from_pretrained` reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from det_jupyter.contract.values.text import error_line
from det_jupyter.errors import CheckpointError, DetError


def write_weights(loaded: Any, folder: Path, *, pretrained: bool = False) -> type | None:
    """Write `model.safetensors`; of several models `model_1.safetensors` and so on, too.

    Args:
        loaded: What `load_checkpoint` has returned: a model, or a trial with its models.
        folder: It must exist.
        pretrained: Let a model with `save_pretrained` write its folder itself: configuration,
            weights, and the tokenizer or processor that it was loaded with.

    Returns:
        The class whose `from_pretrained` reads the folder; None if it has weights alone.

    Raises:
        CheckpointError: It has no torch model, or one whose state safetensors does not hold.
        DetError: safetensors is not installed.
    """
    try:
        from safetensors.torch import save_model
    except ModuleNotFoundError:
        raise DetError(
            "safetensors is not installed; run `python -m pip install safetensors`"
        ) from None
    models = loaded.context.models if hasattr(loaded, "context") else [loaded]
    if not models or not all(isinstance(each, nn.Module) and each.state_dict() for each in models):
        raise CheckpointError(f"{type(loaded).__name__} has no torch model with weights")
    try:
        return _write(models, folder, save_model, pretrained=pretrained)
    except OSError:
        raise
    except Exception as error:  # the model's own code may raise anything
        raise CheckpointError(
            f"the weights cannot be written as safetensors: {error_line(error)}"
        ) from error


def _write(
    models: Sequence[Any], folder: Path, save_model: Callable[..., None], *, pretrained: bool
) -> type | None:
    if pretrained and len(models) == 1 and hasattr(models[0], "save_pretrained"):
        models[0].save_pretrained(folder)
        processing = getattr(models[0], "processing_class", None)
        if processing is not None:
            processing.save_pretrained(folder)
        return type(models[0])
    for index, model in enumerate(models):
        name = f"model{f'_{index}' if index else ''}.safetensors"
        save_model(model, str(folder / name))  # tied weights once
    return None
