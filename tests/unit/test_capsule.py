"""A capsule that this version cannot load says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.blobs import BlobStore
from det_jupyter.capsule import load_capsule
from det_jupyter.errors import ProtocolMismatch
from det_jupyter.wire import Capsule


def load(stream: bytes, folder: Path) -> object:
    blobs = BlobStore(folder / "blobs")
    capsule = Capsule(entrypoint="T", payload=blobs.put(stream), sources=blobs.put(b"{}"))
    return load_capsule(capsule, blobs, folder / "code", as_main=False)


@pytest.mark.parametrize(
    "stream", [b"cdet_jupyter.gone\nThing\n.", b"cdet_jupyter.words\ngone\n."]
)
def test_a_name_of_ours_that_is_gone_is_a_mismatch_of_versions(
    tmp_path: Path, stream: bytes
) -> None:
    problem = "T was captured with another version of det_jupyter .*gone.* submit it anew"
    with pytest.raises(ProtocolMismatch, match=problem):
        load(stream, tmp_path)


def test_a_module_of_the_user_that_is_gone_is_named_by_python(tmp_path: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'det_other'"):
        load(b"cdet_other\nThing\n.", tmp_path)
