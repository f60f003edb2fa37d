"""`%load_ext det_jupyter`: what it registers, starts and imports, and what it takes back."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.front.notebook import extension
from det_jupyter.front.notebook.extension import (
    load_ipython_extension,
    match_det_experiment,
    unload_ipython_extension,
)
from det_jupyter.front.notebook.handles import experiment_handles
from det_jupyter.front.notebook.magics import DetMagics


def test_an_extension_that_is_loaded_twice_completes_once_and_is_unloaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[Any] = []
    monkeypatch.setattr(extension, "spawn_master", lambda: done.append("master"))
    monkeypatch.setattr(extension, "IMPORTED_LATER", ["nothing_of_this_name", "magics"])
    monkeypatch.setattr(experiment_handles, "enliven_page", lambda: done.append("page"))
    other = object()
    shell: Any = SimpleNamespace(
        Completer=SimpleNamespace(custom_matchers=[other]), register_magics=done.append
    )
    for _ in range(2):
        load_ipython_extension(shell)
        for thread in threading.enumerate():
            if thread.name == "det-import":
                assert thread.daemon
                thread.join()
    assert done == [DetMagics, "master", "page"] * 2
    assert shell.Completer.custom_matchers == [other, match_det_experiment]
    for _ in range(2):
        unload_ipython_extension(shell)
    assert shell.Completer.custom_matchers == [other]
    unload_ipython_extension(SimpleNamespace(Completer=object()))  # type: ignore[arg-type]
