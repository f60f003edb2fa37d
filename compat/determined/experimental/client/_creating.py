"""Submitting files, as `det e create` does."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from det_jupyter.blobs import BlobStore
from det_jupyter.client import Client
from det_jupyter.config import read_yaml
from det_jupyter.context import pack_context
from det_jupyter.errors import ConfigError
from det_jupyter.wire import Capsule, CreateExperiment


def create(
    client: Client,
    config: str | Path | Mapping[str, Any],
    model_dir: str | Path | None,
    includes: Sequence[str | Path],
    template: str | None,
) -> int:
    """Submit an experiment and return its number.

    Raises:
        ConfigError: Everything that is wrong with the configuration or the folder.
    """
    document = _document(config)
    blobs = BlobStore(Path(client.session.info.data_dir) / "blobs")
    folder = Path(model_dir) if model_dir is not None else Path.cwd()
    packed = pack_context(folder, blobs, include=[Path(each) for each in includes])
    entrypoint = document.get("entrypoint")
    sources = blobs.put(b"{}")
    name = entrypoint if isinstance(entrypoint, str) else " ".join(entrypoint or [])
    request = CreateExperiment(
        config=document,
        capsule=Capsule(entrypoint=name, sources=sources, context=packed.ref),
        python=sys.executable,
        cwd=str(Path.cwd()),
        template=template,
    )
    return client.create(request).id


def _document(config: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(config, Mapping):
        return dict(config)
    reading = read_yaml(Path(config).read_text(encoding="utf-8"))
    if reading.problems:
        raise ConfigError([f"{config}: {problem}" for problem in reading.problems])
    return reading.document
