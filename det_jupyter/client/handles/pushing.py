"""Writes a version of a model into a folder, for use without a master.

    model.json          what is stored of the model and the version, and where it comes from;
                        written last: if it is there, all is
    README.md           the same for people, and how it is loaded
    config.yaml         the configuration of its experiment, without values of variables
    code/               the captured cells and modules
    checkpoint/         the files of the checkpoint, which `load_checkpoint` loads

With `safetensors` there are `model.safetensors` (of several models `model_1.safetensors` and so
on) in place of the last two: weights alone.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from det_jupyter.client.client import Client
from det_jupyter.client.handles.checkpoint import Checkpoint
from det_jupyter.client.handles.exports import Code
from det_jupyter.config import to_yaml
from det_jupyter.contract.messages import ModelView, VersionView
from det_jupyter.contract.values.variables import without_values
from det_jupyter.errors import Conflict, DetError

_WRITE_WEIGHTS = "det_jupyter.integrations.weights", "write_weights"


def push_version(
    client: Client, name: str, version: VersionView, folder: Path, *, safetensors: bool
) -> Path:
    """Write a version of the model `name`; see `ModelVersion.push`."""
    folder = folder.expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Conflict(f"{folder}: there are files already; give a folder that is empty or new")
    model, number = client.model(name), version.checkpoint.experiment_id
    checkpoint = Checkpoint(
        version.checkpoint, Path(client.session.info.data_dir), version.hparams
    )
    # Before anything is written:
    loaded = checkpoint.load() if safetensors else None
    code = {} if safetensors else client.code(number)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if safetensors:
            # By name: handles must not import torch, which only this needs.
            module, function = _WRITE_WEIGHTS
            getattr(importlib.import_module(module), function)(loaded, folder)
        else:
            checkpoint.download(folder / "checkpoint")
            Code(code).write(folder / "code")
        config = without_values(client.experiment(number).config)
        (folder / "config.yaml").write_text(to_yaml(config), encoding="utf-8")
        card = _card(model, version, has_checkpoint=not safetensors)
        (folder / "README.md").write_text(card, encoding="utf-8")
        text = json.dumps(_facts(model, version), indent=2, ensure_ascii=False)
        (folder / "model.json").write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise DetError(f"{folder}: cannot be written: {error.strerror or error}") from None
    return folder


def _facts(model: ModelView, version: VersionView) -> dict[str, Any]:
    checkpoint = version.checkpoint
    return {
        "model": model.model_dump(include={"name", "description", "notes", "labels", "metadata"}),
        "version": {
            **version.model_dump(
                include={"number", "name", "comment", "notes", "labels", "metadata", "created_at"}
            ),
            "aliases": model.aliases_of(version.number),
        },
        "origin": {
            "checkpoint": version.uuid,
            "experiment": {"id": checkpoint.experiment_id, "name": version.experiment},
            "trial": checkpoint.trial_id,
            "steps_completed": checkpoint.steps_completed,
            "metric": {version.metric: checkpoint.searcher_metric},
            "hyperparameters": version.hparams,
        },
    }


def _card(model: ModelView, version: VersionView, *, has_checkpoint: bool) -> str:
    checkpoint = version.checkpoint
    texts = [model.description, version.comment, model.notes, version.notes]
    measured = (
        ""
        if checkpoint.searcher_metric is None
        else f" with {version.metric} {checkpoint.searcher_metric:.6g}"
    )
    origin = (
        f"From experiment {checkpoint.experiment_id} ({version.experiment}), trial "
        f"{checkpoint.trial_id}, after {checkpoint.steps_completed:,} batches{measured}."
    )
    loading = (
        '```python\nimport det_jupyter\n\ntrained = det_jupyter.load_checkpoint("checkpoint")\n```'
        if has_checkpoint
        else "`safetensors.torch.load_file` reads the weights."
    )
    parts = [f"# {model.name}, version {version.number}", *filter(None, texts), origin, loading]
    return "\n\n".join(parts) + "\n"
