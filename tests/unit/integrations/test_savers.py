"""The savers of libraries are where timings look for them, in the versions that are installed."""

from __future__ import annotations

import pickle
import sys

import pytest

from det_jupyter.core.journal import RecordList
from det_jupyter.core.timings.any_loop import LoopTimings
from det_jupyter.core.timings.savers import _SAVERS, watch_savers

# Another name of the same package.
_ALIASES = {"pytorch_lightning.trainer.trainer", "lightning_fabric.fabric"}


@pytest.mark.parametrize("module", sorted(_SAVERS.keys() - _ALIASES))
def test_each_saver_is_timed_once_its_library_is_imported(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    owner, names = _SAVERS[module]
    imported = pytest.importorskip(module)
    holder = getattr(imported, owner) if owner else imported
    for name in names:
        save = getattr(holder, name)
        monkeypatch.setattr(holder, name, save)  # to restore them
        home = sys.modules[save.__module__]
        if getattr(home, name, None) is save:
            monkeypatch.setattr(home, name, save)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr("det_jupyter.core.timings.savers._SAVERS", {module: (owner, names)})
    before = [getattr(holder, name) for name in names]
    watch_savers(LoopTimings(RecordList()))
    for name, save in zip(names, before, strict=True):
        timed = getattr(holder, name)
        assert timed.__wrapped__ is save
        if not owner:  # a process in the background may get it
            assert pickle.loads(pickle.dumps(timed)) is timed
