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
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from det_jupyter.client.client import Client
from det_jupyter.client.handles.checkpoint import Checkpoint, check_outside
from det_jupyter.client.handles.exports import Code
from det_jupyter.config import to_yaml
from det_jupyter.contract.messages import ModelView, VersionView
from det_jupyter.contract.values.variables import without_values
from det_jupyter.errors import CheckpointError, ConfigError, Conflict, DetError, Problem

Layout = Literal["plain", "safetensors", "hf"]
_PLACES = {"hf": "hf", "huggingface": "hf", "mlflow": "mlflow"}  # names, and those meant by them
_WEIGHTS = "det_jupyter.integrations.weights"
_LOAD_CHECKPOINT = """\
```python
import det_jupyter

trained = det_jupyter.load_checkpoint("checkpoint")
```"""
_LOAD_WEIGHTS = "`safetensors.torch.load_file` reads the weights."


def check_place(
    to: str | Path, folder: object, tracking_uri: object, *, safetensors: bool
) -> None:
    """Check the arguments of `ModelVersion.push`.

    Raises:
        ConfigError: Some are not for this layout, or `to` is a layout's name misspelt.
    """
    problems = []
    if to != "hf" and folder is not None:
        problems.append(Problem("folder", "it is for hf; elsewhere `to` is the folder"))
    if to != "mlflow" and tracking_uri is not None:
        problems.append(Problem("tracking_uri", "it is for mlflow"))
    if to == "hf" and safetensors:
        problems.append(Problem("safetensors", "hf has the weights so already; leave it out"))
    if isinstance(to, str) and to not in ("hf", "mlflow"):
        near = get_close_matches(to.lower(), _PLACES, n=1, cutoff=0.85)
        if near:
            problems.append(
                Problem("to", f"got {to!r}, expected {_PLACES[near[0]]}, or for a folder ./{to}")
            )
    if problems:
        raise ConfigError(problems)


def push_version(
    client: Client, name: str, version: VersionView, folder: Path, layout: Layout
) -> Path:
    """Write a version of the model `name` into a folder; see `ModelVersion.push`."""
    folder = Path(os.path.expanduser(folder))  # a user who does not exist is a name
    model, number = client.model(name), version.checkpoint.experiment_id
    checkpoint = Checkpoint(
        version.checkpoint, Path(client.session.info.data_dir), version.hparams
    )
    with _filling(folder, version.checkpoint.path):
        written = None
        if layout == "plain":
            code = client.code(number)
            _check_whole(checkpoint)
            checkpoint.download(folder / "checkpoint")
            Code(code).write(folder / "code")
        else:
            # By name: handles must not import torch, which only this needs.
            weights = importlib.import_module(_WEIGHTS)
            loaded = checkpoint.load()
            written = weights.write_weights(loaded, folder, pretrained=layout == "hf")
        config = without_values(client.experiment(number).config)
        (folder / "config.yaml").write_text(to_yaml(config), encoding="utf-8")
        card = _card(model, version, layout, written)
        (folder / "README.md").write_text(card, encoding="utf-8")
        text = json.dumps(facts_of(model, version), indent=2, ensure_ascii=False)
        (folder / "model.json").write_text(f"{text}\n", encoding="utf-8")
    return folder


def _check_whole(checkpoint: Checkpoint) -> None:
    """Check that files have not lost bytes since they were saved: these are not loaded here.

    Raises:
        CheckpointError: They have.
    """
    found, saved = sum(checkpoint.files.values()), checkpoint.view.size_bytes
    if found < saved:
        raise CheckpointError(
            f"checkpoint {checkpoint.uuid}: {checkpoint.view.path} has {found:,} bytes, and had "
            f"{saved:,} when it was saved: files are missing or cut off"
        )


@contextmanager
def _filling(folder: Path, checkpoint: str) -> Iterator[None]:
    """Make a folder, which the block fills; if that fails, remove what it has written.

    Args:
        folder: It is empty or new, and not in the checkpoint.
        checkpoint: Path of the checkpoint.
    """
    try:
        check_outside(folder, checkpoint)
        is_there = folder.exists()
        if is_there and (not folder.is_dir() or any(folder.iterdir())):
            raise Conflict(
                f"{folder}: there are files already; give a folder that is empty or new"
            )
        folder.mkdir(parents=True, exist_ok=True)
        try:
            yield
        except BaseException:  # an interrupt too
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if not is_there:
                folder.rmdir()
            raise
    except OSError as error:
        why = error.args[0][0][-1] if isinstance(error, shutil.Error) else error  # of one file
        raise DetError(f"{folder}: cannot be written: {why}") from None


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
    module = ""
    loading = _LOAD_CHECKPOINT if layout == "plain" else _LOAD_WEIGHTS
    if pretrained is not None:
        name, package = pretrained.__name__, pretrained.__module__.partition(".")[0]
        call = f'{name}.from_pretrained(".")'
        if getattr(sys.modules.get(package), name, None) is pretrained:
            module = package
            loading = f"```python\nfrom {module} import {name}\n\n{call}\n```"
        else:  # a class of the experiment's own code
            loading = f"`{call}` loads it; its class is in the code of the experiment."
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
