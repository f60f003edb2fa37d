"""What is left when experiments have ended, or were killed: nothing that grows with each run."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.errors import RankFailed
from tests.processes import DetHome, wait_until
from tests.trials import TRIAL_SOURCE, small_config, submit

pytestmark = pytest.mark.e2e

STEPS = 12
SOURCE = "import helpers_of_leftovers as helpers\n" + TRIAL_SOURCE.replace(
    "time.sleep(self.pause_s)", "helpers.act(self.context, batch_idx)"
).replace(
    "get_per_slot_batch_size(), shuffle", "get_per_slot_batch_size(), num_workers=1, shuffle"
)
HELPERS = """
import os

def act(context, batch_idx):
    if batch_idx == 7 and context.get_hparam("is_killed"):
        os.kill(os.getpid(), 9)
"""


def entries(folder: Path) -> set[Path]:
    return set(folder.iterdir()) if folder.exists() else set()


def test_runs_leave_no_files_and_share_their_modules(
    home: DetHome, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "helpers.act" in SOURCE
    assert "num_workers" in SOURCE
    (tmp_path / "helpers_of_leftovers.py").write_text(HELPERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    client = home.client()
    data = home.path / "data"
    before = {name: entries(data / name) for name in ("runs", "code")}
    before["pymp"] = set(temporary.rglob("pymp-*"))
    length = {"name": "single", "metric": "error", "max_length": {"batches": STEPS}}
    for is_killed in (False, True):
        hparams = {"global_batch_size": 16, "pause_s": 0.0, "is_killed": is_killed}
        config = small_config(searcher=length, hyperparameters=hparams, max_restarts=1)
        experiment = submit(client, config, SOURCE, cwd=tmp_path)
        if is_killed:
            with pytest.raises(RankFailed, match="killed by SIGKILL"):
                experiment.wait()
        else:
            assert experiment.wait() == "COMPLETED"
    wait_until(lambda: entries(data / "runs") <= before["runs"], "the files of runs are removed")
    (code,) = entries(data / "code") - before["code"]  # of two experiments and four runs
    assert (code / "helpers_of_leftovers.py").read_text() == HELPERS
    assert set(temporary.rglob("pymp-*")) <= before["pymp"]  # of data-loader workers
    client.session.close()
