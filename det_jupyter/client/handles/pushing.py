"""Writes a version of a model into a folder, for use without a master.

    model.json          what is stored of the model and the version, and where it comes from;
                        written last: if it is there, all is
    README.md           the same for people, and how it is loaded
    config.yaml         the configuration of its experiment, without values of variables

and, by the layout:

    plain               code/           the captured cells and modules
                        checkpoint/     the checkpoint, which `load_checkpoint` loads
    safetensors         model.safetensors, of several models model_1.safetensors and so on
    hf                  what `save_pretrained` of the model and its tokenizer writes: config.json,
                        model.safetensors; of a model without it as safetensors. README.md begins
                        with the card that huggingface.co reads
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any, Literal

from det_jupyter.client.client import Client
from det_jupyter.client.handles.checkpoint import Checkpoint
from det_jupyter.client.handles.exports import Code
from det_jupyter.config import to_yaml
from det_jupyter.contract.messages import ModelView, VersionView
from det_jupyter.contract.values.variables import without_values
from det_jupyter.errors import Conflict, DetError

Layout = Literal["plain", "safetensors", "hf"]
_WEIGHTS = "det_jupyter.integrations.weights"
_LOAD_CHECKPOINT = """\
```python
import det_jupyter

trained = det_jupyter.load_checkpoint("checkpoint")
```"""
_LOAD_WEIGHTS = "`safetensors.torch.load_file` reads the weights."


def push_version(
    client: Client, name: str, version: VersionView, folder: Path, layout: Layout
) -> Path:
    """Write a version of the model `name` into a folder; see `ModelVersion.push`."""
    folder = folder.expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Conflict(f"{folder}: there are files already; give a folder that is empty or new")
    model, number = client.model(name), version.checkpoint.experiment_id
    checkpoint = Checkpoint(
        version.checkpoint, Path(client.session.info.data_dir), version.hparams
    )
    # Before anything is written:
    loaded = None if layout == "plain" else checkpoint.load()
    code = client.code(number) if layout == "plain" else {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if layout == "plain":
            checkpoint.download(folder / "checkpoint")
            Code(code).write(folder / "code")
            written = None
        else:
            # By name: handles must not import torch, which only this needs.
            weights = importlib.import_module(_WEIGHTS)
            written = weights.write_weights(loaded, folder, pretrained=layout == "hf")
        config = without_values(client.experiment(number).config)
        (folder / "config.yaml").write_text(to_yaml(config), encoding="utf-8")
        card = _card(model, version, layout, written)
        (folder / "README.md").write_text(card, encoding="utf-8")
        text = json.dumps(facts_of(model, version), indent=2, ensure_ascii=False)
        (folder / "model.json").write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise DetError(f"{folder}: cannot be written: {error.strerror or error}") from None
    return folder


def facts_of(model: ModelView, version: VersionView) -> dict[str, Any]:
    """Return what is stored of a model and a version, and where the version comes from."""
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


def _card(model: ModelView, version: VersionView, layout: Layout, pretrained: type | None) -> str:
    """Return README.md; `pretrained` is the class whose `from_pretrained` reads the folder."""
    checkpoint = version.checkpoint
    module = "" if pretrained is None else pretrained.__module__.partition(".")[0]
    loading = _LOAD_CHECKPOINT if layout == "plain" else _LOAD_WEIGHTS
    if pretrained is not None:
        name = pretrained.__name__
        loading = f'```python\nfrom {module} import {name}\n\n{name}.from_pretrained(".")\n```'
    front = ""
    if layout == "hf":  # what huggingface.co reads
        library = {"library_name": module} if module else {}
        tags = sorted({*model.labels, *version.labels, "det_jupyter"})
        front = f"---\n{to_yaml({**library, 'tags': tags})}---\n\n"
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
    parts = [f"# {model.name}, version {version.number}", *filter(None, texts), origin, loading]
    return front + "\n\n".join(parts) + "\n"
