"""The time to list many experiments, and to get the metrics of many trials.

    python -m tests.benchmarks.looking_back [--experiments 10000] [--trials 100]

The lists are of 10,000 experiments, the metrics of 100 trials with 1,000 reports of 5 metrics. The
master's part (query and JSON) and the client's part (parsing) are counted; the loopback connection
is not. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import TypeAdapter

from det_jupyter.client.handles.exports import metric_columns
from det_jupyter.client.handles.queries import to_rows
from det_jupyter.client.tables import to_frame
from det_jupyter.contract.messages import (
    Curve,
    ExperimentQuery,
    ExperimentRows,
    State,
)
from det_jupyter.contract.run.journal import MetricsReported, to_line
from det_jupyter.master.http.responses import JsonResponse
from det_jupyter.master.machine.model.state import Experiment, Trial
from det_jupyter.master.service.service import Service
from det_jupyter.master.service.storing.store import Store
from det_jupyter.master.service.storing.stored_rows import read_metrics
from det_jupyter.master.views.metric_curves import to_curves
from tests.benchmarks.quick import arguments
from tests.unit.master.machine_world import CAPSULE, make_config

QUICK = "--experiments 200 --trials 1"
KEYS = {"lists_ms", "metrics_s"}  # keys of the JSON in the last line

REPORTS, METRICS = 1_000, 5
_CURVES = TypeAdapter(list[Curve])


def seconds(act: Callable[[], object], repeats: int = 5) -> float:
    """Return the median duration of several calls."""
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        act()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def add_experiments(service: Service, num: int) -> None:
    """Add this many experiments to the master, each of them over and with one trial."""
    state = service.machine.state
    for number in range(1, num + 1):
        config = make_config(f"digits {number}", labels=[f"week {number % 50}"])
        config["hyperparameters"] = {f"hparam_{i}": i / 7 for i in range(10)}
        state.experiments[number] = Experiment(
            id=number, config=config, capsule=CAPSULE, python="python", cwd="/home/a",
            notebook=f"/home/a/book{number % 20}.ipynb", state=State.COMPLETED,
            trial_ids=[number], best_metric=number / num, created_at=float(number),
        )  # fmt: skip
        state.trials[number] = Trial(
            id=number, experiment_id=number, hparams=config["hyperparameters"], seed=1,
            state=State.COMPLETED, best_metric=number / num, created_at=float(number),
        )  # fmt: skip


def measure_lists(service: Service, num: int) -> dict[str, float]:
    """Print the times of lists; return them in milliseconds."""
    taken_ms = {}

    def found(**query: object) -> None:
        asked = ExperimentQuery.model_validate(query)
        answer = JsonResponse(service.views.find(asked)).body
        to_rows(ExperimentRows.model_validate_json(bytes(answer)).rows)

    print(f"{num:,} experiments")
    for title, query in {
        "50 newest": {"limit": 50},
        "50 best": {"limit": 50, "sort": "metric"},
        "50 of one label": {"limit": 50, "label": ["week 7"]},
        "50 by two words": {"limit": 50, "text": "digits book3"},
        "all": {},
    }.items():
        taken = seconds(lambda query=query: found(**query))  # type: ignore[misc]
        taken_ms[title] = round(1000 * taken, 1)
        print(f"  {title:29}  {taken_ms[title]:8.0f} ms")
    return taken_ms


def measure_metrics(store: Store, trials: int) -> float:
    """Print the time to get all metrics as a DataFrame; return the seconds."""
    with store.transaction():
        for trial_id in range(1, trials + 1):
            for step in range(1, REPORTS + 1):
                values = {f"metric_{i}": step / (i + 1) for i in range(METRICS)}
                record = MetricsReported(
                    at=float(step), group="training", steps_completed=step, metrics=values,
                    trained={"epochs": step / 10},
                )  # fmt: skip
                row = (float(step), 1, trial_id, step, step, to_line(record))
                store.feed.add_metrics([row])
    print(f"metrics of {trials} trials, {REPORTS:,} reports, {METRICS} metrics")
    started = time.perf_counter()
    body = bytes(JsonResponse(list(to_curves(read_metrics(store.path, 1)))).body)
    answered = time.perf_counter()
    curves = _CURVES.validate_json(body)
    read = time.perf_counter()
    frame = to_frame(metric_columns(curves))
    done = time.perf_counter()
    print(f"  master: rows to {len(body) / 1e6:.0f} MB of JSON  {answered - started:6.2f} s")
    print(f"  client: JSON to curves         {read - answered:6.2f} s")
    print(f"  client: curves to DataFrame    {done - read:6.2f} s  ({len(frame):,} rows)")
    return done - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--experiments", type=int, default=10_000)
    parser.add_argument("--trials", type=int, default=100)
    options = parser.parse_args(arguments(QUICK))
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "det.sqlite3")
        service = Service(store)
        add_experiments(service, options.experiments)
        lists_ms = measure_lists(service, options.experiments)
        metrics_s = measure_metrics(store, options.trials)
        service.close()
    print(json.dumps({"lists_ms": lists_ms, "metrics_s": round(metrics_s, 3)}))


if __name__ == "__main__":
    main()
