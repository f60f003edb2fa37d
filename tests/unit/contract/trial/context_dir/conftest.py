"""A folder with code and a store of blobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.contract.host.blobs import BlobStore
from tests.unit.contract.trial.context_dir.folders import write


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    write(folder, "train.py", "print('hi')\n")
    write(folder, "package/net.py", "WIDTH = 3\n")
    return folder
