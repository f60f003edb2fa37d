"""What a captured object keeps, whichever version of cloudpickle there is."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import Capsule
from det_jupyter.contract.trial.captured import load_capsule
from det_jupyter.front.notebook.capture.pickling import is_importable, pack

SOURCE = "def main():\n    return [x for x in (lambda: (1, 2))()]\n"


REDUCE = cloudpickle.Pickler.dispatch_table[types.CodeType]


def nameless(code: types.CodeType) -> Any:
    """Reduce as cloudpickle 3.1.3 does."""
    make, arguments = REDUCE(code)
    return make, (*arguments[:10], "<dynamic-code>", *arguments[11:])


def file_names(code: types.CodeType) -> set[str]:
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return {code.co_filename}.union(*map(file_names, inner))


@pytest.mark.parametrize("is_new", [False, True])
def test_code_keeps_the_name_of_its_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    if is_new:
        table = {**cloudpickle.Pickler.dispatch_table, types.CodeType: nameless}
        monkeypatch.setattr(cloudpickle.Pickler, "dispatch_table", table)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(SOURCE, "/tmp/ipykernel_1/7.py", "exec"), namespace)
    blobs = BlobStore(tmp_path)
    stream, pickler = pack(namespace["main"], [], namespace, blobs)
    capsule = Capsule(
        entrypoint="main",
        payload=blobs.put(stream),
        buffers=pickler.buffers,
        sources=blobs.put(b"{}"),
    )
    main = load_capsule(capsule, blobs, tmp_path / "code", as_main=False)
    assert main() == [1, 2]
    assert file_names(main.__code__) == {"/tmp/ipykernel_1/7.py"}
    assert pickler.code_files == {"/tmp/ipykernel_1/7.py"}


def test_a_class_whose_module_is_not_loaded_yet_is_sent_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "numpy.rec", raising=False)
    assert is_importable(np.recarray)


@pytest.mark.parametrize("module", ["no_such_module", "", None, 7, "__main__", "sys"])
def test_a_class_that_no_module_has_is_not_importable(module: object) -> None:
    assert not is_importable(type("Trial", (), {"__module__": module}))
