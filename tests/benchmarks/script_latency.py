"""The time from submitting a script to its first step, against torchrun with the same script.

    python -m tests.benchmarks.script_latency [--warm 9] [--rounds 5]

The script (first_step_script.py) does not import det_jupyter: two ranks create a process group
over gloo and take the first step of a DDP model. Our time is from before the folder is packed and
submitted to the output of rank 0; torchrun's is from before its process starts. We measure two
kinds of start:

    forked      `python3 -m det_jupyter.launch.torch_distributed script.py`: ranks from the fork
                server, as the launcher would start them
    launched    the same with an option, so that the launcher itself runs, and starts Pythons

Starts of all kinds take turns, so that a busy computer slows all alike. Prints a table and last
one JSON line.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import Capsule, CreateExperiment, State
from det_jupyter.contract.trial.context_dir import pack_context, plan_context
from tests.benchmarks.quick import arguments
from tests.benchmarks.start_latency import RIVAL, torchrun
from tests.processes import det_home

QUICK = "--warm 1 --rounds 1"
KEYS = {
    "forked_p50_s",
    "launched_s",
    "cold_s",
    "torchrun_s",
    "ratio",
    "ratio_cold",
}  # keys of the JSON in the last line

_LAUNCHER = "python3 -m det_jupyter.launch.torch_distributed"
FORKED = f"{_LAUNCHER} script.py"
LAUNCHED = f"{_LAUNCHER} --nnodes 1 -- script.py"


def ours(client: Client, folder: Path, entrypoint: str) -> float:
    """Return seconds from packing the folder to the first step."""
    began_at = time.time()
    blobs = BlobStore(Path(client.session.info.data_dir) / "blobs")
    context = pack_context(plan_context(folder), blobs)
    capsule = Capsule(entrypoint=entrypoint, sources=blobs.put(b"{}"), context=context)
    config = {
        "name": "first step of a script",
        "entrypoint": entrypoint,
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
        "resources": {"slots_per_trial": 2},
        "max_restarts": 0,
    }
    request = CreateExperiment(
        config=config, capsule=capsule, python=sys.executable, cwd=str(folder)
    )
    experiment = Experiment(client, client.create(request).id)
    if experiment.wait(60) is not State.COMPLETED:
        raise RuntimeError(f"{experiment!r}: {experiment.view.message}")
    text = "\n".join(line.text for line in experiment.trial.logs())
    match = re.search(r"first step at ([\d.]+)", text)
    if match is None:
        raise RuntimeError(f"no first step:\n{text}")
    return float(match[1]) - began_at


def cold(scratch: Path, folder: Path) -> float:
    """Return the same with no process running: master, agent and fork server are started too."""
    with det_home(scratch, {"DET_JUPYTER_CPU_SLOTS": "2"}) as home:
        began_at = time.time()
        client = home.client()
        started_s = time.time() - began_at
        seconds = ours(client, folder, FORKED)
        client.session.close()
    return started_s + seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--warm", type=int, default=9, help="warm submissions")
    parser.add_argument("--rounds", type=int, default=5, help="cold, launched and torchrun starts")
    options = parser.parse_args(arguments(QUICK))
    forked, launched, colds, rivals = [], [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "context"
        folder.mkdir()
        (folder / "script.py").write_text(RIVAL.read_text())
        with det_home(Path(scratch) / "warm", {"DET_JUPYTER_CPU_SLOTS": "2"}) as home:
            client = home.client()
            ours(client, folder, FORKED)
            for index in range(options.warm):
                forked.append(ours(client, folder, FORKED))
                if index * options.rounds % options.warm < options.rounds:
                    rivals.append(torchrun())
                    launched.append(ours(client, folder, LAUNCHED))
                    colds.append(cold(Path(scratch) / f"cold{index}", folder))
            client.session.close()
    rows = {"forked": forked, "launched": launched, "forked, cold": colds, "torchrun": rivals}
    report(rows)


def report(rows: dict[str, list[float]]) -> None:
    """Print the table and the JSON line."""
    print(f"{'script, 2 ranks: to the first step':34} {'median':>8} {'min':>8} {'max':>8}   n")
    for name, values in rows.items():
        numbers = [statistics.median(values), min(values), max(values)]
        print(f"{name:34} " + " ".join(f"{v:7.3f}s" for v in numbers) + f" {len(values):3d}")
    forked, launched, cold_start, rival = (statistics.median(v) for v in rows.values())
    result = {
        "forked_p50_s": round(forked, 4),
        "launched_s": round(launched, 3),
        "cold_s": round(cold_start, 3),
        "torchrun_s": round(rival, 3),
        "ratio": round(rival / forked, 1),
        "ratio_cold": round(rival / cold_start, 2),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
