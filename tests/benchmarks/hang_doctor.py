"""Which stalls are diagnosed, after how long: `python -m tests.benchmarks.hang_doctor`.

    --load 10     with this many busy processes at the same time
    --only NAME   only the kinds whose names contain this

Two ranks with gloo on the CPU. For each kind of stall, the time from the stall until `why()` names
it is measured; if the ranks fail by themselves, until the error names it. For kinds that only look
like a stall, for 12 s, nothing may be reported. Prints a table and one line of JSON:

    named         stalls for which the expected sentence was reported
    missed        the others
    false_alarms  look-alikes for which something was reported
    median_s      median of the seconds until a stall was named
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.messages import AllocationView, State
from tests.benchmarks.hang_kinds import AT, CELL, LOOK_ALIKES, STALLS, Kind
from tests.placed_trial import submit_cell
from tests.processes import DetHome, det_home

_PATIENCE_S = 60.0  # longest time until a stall is named
_LOOK_ALIKE_S = 12.0
_POLL_S = 0.1


class Said(NamedTuple):
    """The report on a kind, and after how many seconds; "" and None: no report."""

    sentence: str
    after_s: float | None


def submit(client: Client, kind: Kind, **config: object) -> Experiment:
    """Submit the trial of a kind, as if it was defined in cell 12 of a notebook."""
    document = {
        "name": kind.name,
        "hyperparameters": {"global_batch_size": 16},
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 4 * AT}},
        "min_validation_period": {"batches": 4 * AT},
        "resources": {"slots_per_trial": 2},
        "max_restarts": 0,
        **kind.config,
        **config,
    }
    return submit_cell(client, kind.source, CELL, document, kind.entrypoint)


def watch(experiment: Experiment, kind: Kind) -> Said:
    """Return the report on a stall, or on a look-alike until its trial has continued."""
    stalled_at, is_stall = None, bool(kind.words)
    began, last = time.monotonic(), ""
    while time.monotonic() - began < _PATIENCE_S + 60:
        view = experiment.view
        trial = view.trials[0] if view.trials else None
        if trial is not None:
            run = trial.allocation
            if run is not None and stalled_at is None and _has_begun(run, experiment, kind):
                stalled_at = time.monotonic()
            sentence = trial.failure.error if trial.failure else ""
            if run is not None and run.hang is not None:
                sentence = experiment.why().sentence
            since = stalled_at or time.monotonic()
            if sentence:
                last = sentence
                if not is_stall or all(word in sentence for word in kind.words):
                    return Said(sentence, time.monotonic() - since)
        if stalled_at is not None and time.monotonic() - stalled_at > _PATIENCE_S:
            break
        if view.state.is_terminal:
            break
        time.sleep(_POLL_S)
    return Said(last if is_stall else "", None)


def _has_begun(run: AllocationView, experiment: Experiment, kind: Kind) -> bool:
    return bool(run.ranks) if kind.is_at_start else _has_reached(run.id, experiment)


def _has_reached(run_id: str, experiment: Experiment) -> bool:
    """Return whether a rank has reached the batch AT, according to the control page."""
    from det_jupyter.contract.host.rundir import run_dir
    from det_jupyter.contract.run.control_page import ControlPage

    folder = run_dir(Path(experiment._client.session.info.data_dir), run_id)
    with suppress(OSError, ValueError):
        page = ControlPage(folder.control)
        try:
            return any((page.batch_of(rank) or 0) >= AT - 1 for rank in range(2))
        finally:
            page.close()
    return False


def freeze(experiment: Experiment, kind: Kind, home: DetHome) -> None:
    """Stop processes for 12 s: the ranks, or the agent and its descendants."""
    run = _await_batch(experiment)
    pids = [rank.pid for rank in run.ranks]
    if kind.freezes == "all":
        parent = psutil.Process(pids[0]).parent()
        agent = parent.parent() if parent is not None else None
        assert parent is not None
        assert agent is not None
        pids = [agent.pid, parent.pid, *pids]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(_LOOK_ALIKE_S)
    for pid in reversed(pids):
        os.kill(pid, signal.SIGCONT)


def _await_batch(experiment: Experiment) -> AllocationView:
    """Wait until a rank is in the batch AT; return the run."""
    while True:
        run = experiment.view.trials[0].allocation if experiment.view.trials else None
        if run is not None and run.ranks and _has_reached(run.id, experiment):
            return run
        time.sleep(_POLL_S)


def measure(client: Client, kind: Kind, home: DetHome) -> Said:
    """Run the trial of a kind, and return the report."""
    experiment = submit(client, kind)
    try:
        if kind.freezes:
            freeze(experiment, kind, home)
        if kind.cell:
            _await_batch(experiment)
            execute = partial(experiment.trial.ranks[1].execute, timeout=_PATIENCE_S)
            threading.Thread(target=execute, args=(kind.cell,), daemon=True).start()
        said = watch(experiment, kind)
        if kind.lasts_s:
            _await_end(experiment, kind.lasts_s + _PATIENCE_S)
            if experiment.view.state is not State.COMPLETED:
                return Said(f"was disturbed: {experiment.view.message}", None)
        return said
    finally:
        with suppress(Exception):
            experiment.kill()
        _await_end(experiment)


def _await_end(experiment: Experiment, patience_s: float = 30.0) -> None:
    deadline = time.monotonic() + patience_s
    while not experiment.view.state.is_terminal and time.monotonic() < deadline:
        time.sleep(_POLL_S)


@contextmanager
def load(number: int) -> Iterator[None]:
    """Run busy processes during the block."""
    busy = "while True: sum(range(1000))"
    processes = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main(words: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--only", default="")
    options = parser.parse_args(words)
    seconds, missed, alarms = [], [], []
    variables = {"DET_JUPYTER_CPU_SLOTS": "2"}
    with (
        tempfile.TemporaryDirectory(prefix="hd-") as folder,
        det_home(Path(folder) / "home", variables) as home,
        load(options.load),
    ):
        client = home.client()
        for kind in [*STALLS, *LOOK_ALIKES]:
            if options.only not in kind.name:
                continue
            said = measure(client, kind, home)
            after = "" if said.after_s is None else f"{said.after_s:.1f} s"
            print(f"{kind.name:32} {after:>7}  {said.sentence or '-'}", flush=True)
            if not kind.words:
                alarms += [kind.name] if said.sentence else []
            elif said.after_s is None:
                missed.append(kind.name)
            else:
                seconds.append(said.after_s)
        client.session.close()
    result = {
        "named": len(seconds),
        "missed": missed,
        "false_alarms": alarms,
        "median_s": round(median(seconds), 1) if seconds else None,
        "longest_s": round(max(seconds), 1) if seconds else None,
        "load": options.load,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
