"""The time to check and merge a large configuration.

    python -m tests.benchmarks.config_speed [--quick]

The configuration has 200 hyperparameters, 100 labels, 200 environment variables and 200 entries of
data, half of them in a template. The aim is to merge and check it within 5 ms. Reading its YAML is
also measured, but is not part of the aim.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from det_jupyter.config import merge, notices, origins, parse_config, parse_yaml, to_yaml
from det_jupyter.errors import ConfigError
from tests.benchmarks.quick import arguments

QUICK = "--repeats 3"
KEYS = {"benchmark", "system", "ms"}  # keys of the JSON in the last line

AIM_MS = 5.0
_IMPORT = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"


def make_document(first: int) -> dict[str, Any]:
    """Return half of the configuration; its numbered entries begin at `first`."""
    numbers = range(first, first + 100)
    hparams: dict[str, Any] = {
        f"layer_{i}": {"type": "double", "minval": 0, "maxval": 0.5, "count": 3} for i in numbers
    }
    return {
        "hyperparameters": hparams | {"global_batch_size": 64},
        "labels": [f"label {i}" for i in range(first // 2, first // 2 + 50)],
        "environment": {"environment_variables": [f"NAME_{i}=value {i}" for i in numbers]},
        "data": {f"key_{i}": {"path": f"/data/{i}", "sizes": [1, 2, 3]} for i in numbers},
        "resources": {"slots_per_trial": 2},
    }


def whole() -> dict[str, Any]:
    """Return the half that has the required keys."""
    searcher = {"name": "adaptive_asha", "metric": "loss", "max_trials": 64, "max_length": 1024}
    return make_document(100) | {"entrypoint": "MyTrial", "searcher": searcher}


def median_ms(repeats: int, work: Callable[[], Any]) -> float:
    """Return the median time of a function."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def import_ms(statement: str) -> float:
    """Return the least of several times that an import takes in a fresh process."""
    command = [sys.executable, "-c", _IMPORT.format(statement)]
    runs = [subprocess.run(command, capture_output=True, check=True) for _ in range(5)]
    return min(1000 * float(run.stdout) for run in runs)


def measure(repeats: int) -> dict[str, float]:
    """Return all results in milliseconds."""
    template, document = make_document(0), whole()
    merged = merge(template, document)
    config = parse_config(merged, default_seed=1)
    effective = config.to_document()
    found = origins(document, template, effective)
    text = to_yaml(merged)
    wrong = merged | {"resourcs": {}, "max_restarts": "five"}
    ms = partial(median_ms, repeats)
    return {
        "merge": ms(lambda: merge(template, document)),
        "check the whole": ms(lambda: parse_config(merged, default_seed=1)),
        "merge and check": ms(lambda: parse_config(document, default_seed=1, template=template)),
        "check what a rank gets": ms(lambda: parse_config(effective)),
        "find what is wrong": ms(lambda: _refuse(wrong)),
        "effective document": ms(config.to_document),
        "origins": ms(lambda: origins(document, template, effective)),
        "notices": ms(lambda: notices(effective)),
        "write YAML": ms(lambda: to_yaml(effective, found)),
        "read YAML (once)": _once_ms(lambda: parse_yaml(text)),
        "import det_jupyter.config": import_ms("import det_jupyter.config"),
        "import pydantic and yaml alone": import_ms(
            "import yaml, pydantic.main, pydantic.fields, pydantic.types"
        ),
    }


def _refuse(document: dict[str, Any]) -> None:
    with suppress(ConfigError):
        parse_config(document, default_seed=1)
        raise AssertionError("it was not refused")


def _once_ms(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - start)


def main() -> None:
    """Print a table, then one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=200)
    figures = measure(parser.parse_args(arguments(QUICK)).repeats)
    for name, figure in figures.items():
        print(f"{name:32} {figure:8.2f} ms")
    is_met = figures["merge and check"] <= AIM_MS
    print(f"aim: merge and check within {AIM_MS:g} ms: {'met' if is_met else 'MISSED'}")
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    rounded = {name: round(figure, 3) for name, figure in figures.items()}
    print(json.dumps({"benchmark": "config_speed", "system": system, "ms": rounded}))


if __name__ == "__main__":
    main()
