"""The Core API in scripts that load torch late, or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch

from det_jupyter import core
from det_jupyter.core.peer_errors import is_lost_peer
from det_jupyter.core.ranks.link import rank_ended

# Loads as slowly as torch, and notices a part that is loaded while the whole is not.
SLOW_TORCH = """
import time
time.sleep(0.3)
__version__ = "2.9.1"
from torch import distributed
"""
DISTRIBUTED = """
import sys
assert hasattr(sys.modules["torch"], "__version__"), "torch is not loaded yet"
class DistNetworkError(RuntimeError): pass
"""
SCRIPT = """
import sys, threading, time
from det_jupyter.core.drafts import versions
from det_jupyter.core.ranks.link import rank_ended
assert "torch" not in sys.modules
failed = []
threading.excepthook = failed.append
loading = threading.Thread(target=__import__, args=("torch",))
loading.start()
while "torch" not in sys.modules:
    time.sleep(0.001)
print({call})
loading.join()
assert not failed, failed
"""


@pytest.mark.parametrize(
    ("call", "printed"),
    [
        ("type(rank_ended('x')).__name__", "DistNetworkError"),
        ("versions()['torch_version']", "2.9.1"),
    ],
)
def test_it_waits_for_a_thread_that_loads_torch(call: str, printed: str, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(SLOW_TORCH)
    (tmp_path / "torch" / "distributed.py").write_text(DISTRIBUTED)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(call=call)],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{printed}\n", "")


def test_the_end_of_another_rank_loads_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_lost_peer(rank_ended("rank 1 has ended"))
    monkeypatch.delitem(sys.modules, torch.__name__)
    error = rank_ended("rank 1 has ended")
    assert repr(error) == "RankEnded('rank 1 has ended')"
    assert is_lost_peer(error)
    assert "torch" not in sys.modules


@pytest.mark.parametrize("version", ["2.9.1", None])
def test_a_checkpoint_is_saved_whether_torch_is_installed_or_not(
    version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(name: str) -> str:
        if version is None:
            raise PackageNotFoundError(name)
        return version

    monkeypatch.delitem(sys.modules, torch.__name__)
    monkeypatch.setattr("importlib.metadata.version", find)
    context = core.init(checkpoint_storage=tmp_path)
    with context.checkpoint.store_path({"steps_completed": 1}) as (_, uuid):
        pass
    assert context.checkpoint.get_metadata(uuid).get("torch_version") == version
    assert "torch" not in sys.modules


def test_an_error_is_judged_without_a_torch_that_could_not_be_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, torch.__name__)  # Python keeps what it had imported
    assert not is_lost_peer(RuntimeError("Failed to load the backend extension"))
    assert "torch" not in sys.modules
