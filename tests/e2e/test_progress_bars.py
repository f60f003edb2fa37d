"""Progress bars in ranks: the plain ones, and one line of the log for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.client import Client
from det_jupyter.contract.messages import State
from tests.scripts import create

pytestmark = pytest.mark.e2e

SOURCE = """
import sys, time
from IPython import get_ipython

def main(core_context, hparams):
    while hparams["awaits_kernel"] and get_ipython() is None:
        time.sleep(0.1)
    print("kernel:", get_ipython() is not None)
    from tqdm.auto import tqdm, trange
    for step in tqdm(range(40), desc="epoch"):
        time.sleep(0.05)
    for _ in trange(3, desc="outer"):
        for _ in tqdm(range(30), desc="inner", leave=False):
            time.sleep(0.01)
    with tqdm(total=5, desc="short") as bar:
        bar.update(5)
    is_notebook = "IPKernelApp" in getattr(get_ipython(), "config", ())
    print("a notebook, as transformers finds:", is_notebook)
"""
CONFIG = """
entrypoint: fits:main
hyperparameters: {awaits_kernel: {type: categorical, vals: [false, true]}}
searcher: {name: grid, metric: loss, max_length: {batches: 1}}
max_restarts: 0
"""


def test_bars_of_tqdm_auto_are_lines_at_100_percent_with_and_without_a_kernel(
    client: Client, tmp_path: Path
) -> None:
    (tmp_path / "fits.py").write_text(SOURCE)
    experiment = create(client, CONFIG, context=tmp_path)
    assert experiment.wait() == State.COMPLETED
    for trial in experiment.trials:
        lines = [line.text for line in trial.logs()]
        awaits = trial.view.hparams["awaits_kernel"]
        assert lines[0] == f"kernel: {awaits}"
        bars = [line for line in lines if "%" in line]
        assert [line.partition(":")[0] for line in bars] == ["epoch", "outer", "short"]
        assert all(": 100%|█" in line and "?it/s" not in line for line in bars[:2])
        assert lines[-1] == "a notebook, as transformers finds: False"
