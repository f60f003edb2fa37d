"""`make demo`: run the quickstart notebook as it is, show its progress, and say what came out.

The executed notebook is kept in build/, curves and all; open it with `make lab`'s JupyterLab.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from tqdm import tqdm

from det_jupyter.client import Client
from det_jupyter.client.follow import states
from det_jupyter.connection import connect
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import ExperimentView
from det_jupyter.errors import DetError

SOURCE = Path(__file__).with_name("quickstart.ipynb")
EXECUTED = Path(__file__).parents[1] / "build" / "quickstart-executed.ipynb"
WANTED_ACCURACY = 0.97
WANTED_SLOTS = 2


def main() -> int:
    """Run the demo; returns the exit status."""
    started = time.monotonic()
    print(f"Running {SOURCE.name}: real digits, one trial on {WANTED_SLOTS} slots.")
    client = connect_with_slots()
    before = {view.id for view in client.experiments()}
    ranks: dict[int, tuple[str, str]] = {}
    watcher = threading.Thread(target=_watch, args=(client, before, ranks), daemon=True)
    watcher.start()
    try:
        executed = _execute()
    except CellExecutionError as error:
        print(error, file=sys.stderr)
        return 1
    watcher.join(timeout=10)
    experiment = _newest(client, before)
    if experiment is None:
        print("The notebook submitted no experiment.", file=sys.stderr)
        return 1
    return _report(experiment, ranks, executed, time.monotonic() - started)


def connect_with_slots() -> Client:
    """Return a client of the user's master, or of one with simulated slots on a small computer."""
    client = Client(connect())
    deadline = time.monotonic() + 10
    while not (agents := client.agents()) and time.monotonic() < deadline:
        time.sleep(0.1)
    if agents and max(len(agent.slots) for agent in agents) >= WANTED_SLOTS:
        return client
    print(
        "This computer has fewer: the demo simulates them on CPU cores, with a master of its own."
    )
    client.session.close()
    os.environ[paths.HOME_VARIABLE] = str(EXECUTED.parent / "demo-home")
    os.environ["DET_JUPYTER_CPU_SLOTS"] = str(WANTED_SLOTS)
    return Client(connect())


def _execute() -> Path:
    notebook = nbformat.read(SOURCE, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=300,
        resources={"metadata": {"path": str(SOURCE.parent)}},
        extra_arguments=["--IPKernelApp.log_level=40"],  # it warns of plain TCP, on loopback
    )
    try:
        client.execute()
    finally:
        EXECUTED.parent.mkdir(exist_ok=True)
        nbformat.write(notebook, EXECUTED)
    return EXECUTED


def _newest(client: Client, before: set[int]) -> ExperimentView | None:
    new = [row.id for row in client.experiments() if row.id not in before]
    return client.experiment(new[-1]) if new else None


def _watch(client: Client, before: set[int], ranks: dict[int, tuple[str, str]]) -> None:
    """Draw a progress bar for the experiment, and note devices and backends of its ranks."""
    while (view := _newest(client, before)) is None:
        time.sleep(0.1)
    bar = tqdm(total=1000, bar_format="{desc} {percentage:3.0f}% |{bar:40}| [{elapsed}]{postfix}")
    for state in states(client, view.id):
        if state is None:
            continue
        for trial in state["trials"]:
            if trial["backend"]:
                backend = trial["backend"]
                ranks.update({r["rank"]: (r["device"], backend) for r in trial["ranks"]})
            if trial["latest"] is not None:
                metric = state["checkpoints"]["metric"]
                bar.set_postfix_str(f" {metric} {trial['latest']:.4f}", refresh=False)
        bar.set_description_str(f"Experiment {state['id']} “{state['name']}”", refresh=False)
        bar.update(round(1000 * state["progress"]) - bar.n)
    bar.close()


def _report(
    view: ExperimentView, ranks: dict[int, tuple[str, str]], path: Path, seconds: float
) -> int:
    accuracy = view.trials[0].best_metric if view.trials else None
    backends = sorted({backend for _, backend in ranks.values()})
    print(f"Experiment {view.id}: {view.state} {view.message}".rstrip())
    print(f"Accuracy: {accuracy:.4f}" if accuracy is not None else "Accuracy: none reported")
    print(f"Ranks:    {len(ranks)} ({', '.join(device for device, _ in ranks.values())})")
    print(f"Backend:  {', '.join(backends)}")
    print(f"Notebook: {path}")
    print(f"Took:     {seconds:.1f} s (the master stays, warm: python -m det_jupyter.master stop)")
    reached = accuracy is not None and accuracy >= WANTED_ACCURACY
    if not reached:
        print(f"The accuracy is below {WANTED_ACCURACY}.", file=sys.stderr)
    return 0 if reached and view.state == "COMPLETED" and len(ranks) == WANTED_SLOTS else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DetError as failure:
        sys.exit(str(failure))
