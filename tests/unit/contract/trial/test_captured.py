"""A capsule that this version cannot load says why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import Capsule
from det_jupyter.contract.trial.captured import code_key, code_of, load_capsule
from det_jupyter.errors import ProtocolMismatch


def load(stream: bytes, folder: Path) -> object:
    blobs = BlobStore(folder / "blobs")
    capsule = Capsule(entrypoint="T", payload=blobs.put(stream), sources=blobs.put(b"{}"))
    return load_capsule(capsule, blobs, folder / "code", as_main=False)


@pytest.mark.parametrize(
    "stream", [b"cdet_jupyter.gone\nThing\n.", b"cdet_jupyter.contract.values.text\ngone\n."]
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


def test_captured_code_is_text_by_label_and_by_path(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path / "blobs")
    cells = {"<ipython-input-3>": {"label": "Cell In[3]", "source": "class T: ...\n"}}
    capsule = Capsule(
        entrypoint="T",
        payload="",
        sources=blobs.put(json.dumps(cells).encode()),
        modules={"helpers/nets.py": blobs.put(b"WIDTH = 8\n")},
    )
    assert code_of(capsule, blobs) == {
        "Cell In[3]": "class T: ...\n",
        "helpers/nets.py": "WIDTH = 8\n",
    }


def test_captured_code_with_another_module_lies_elsewhere() -> None:
    one = Capsule(entrypoint="T", payload="1" * 64, sources="2" * 64, modules={"a.py": "3" * 64})
    other = one.model_copy(update={"modules": {"a.py": "4" * 64}})
    assert code_key(one) != code_key(other)
    assert code_key(one) == code_key(one.model_copy())
