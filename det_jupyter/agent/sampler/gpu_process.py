"""`python -m det_jupyter.agent.sampler.gpu_process INTERVAL_S UUID...` prints samples of GPUs.

One JSON object per line:

    {"values": {source: {name: value}}, "memory": {pid: bytes},
     "missing": {source: {name: reason}}}    `missing` only when it has changed
    {"failed": reason}                       the last line, when NVML does not work

A number on a line of standard input is the interval from then on; its end ends the process. It is
a process of its own because calls into the driver can hang, or crash.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Mapping
from typing import Any

from det_jupyter.agent.devices.driver import DriverError, initialised_nvml
from det_jupyter.agent.sampler.gpus import GpuReader

_MOST_FAILURES = 5  # samples without any value, after which NVML is opened anew


def main(interval_s: float, uuids: list[str]) -> int:
    """Print samples until standard input or output ends."""
    try:
        return _print_samples(interval_s, uuids)
    except BrokenPipeError:
        return 0


def _print_samples(interval_s: float, uuids: list[str]) -> int:
    try:
        reader = GpuReader(initialised_nvml(), uuids)
    except DriverError as error:
        _print({"failed": str(error)})
        return 1
    told: Mapping[str, Any] = {}
    failures = 0
    due = time.monotonic()
    while True:
        reading = reader.read()
        sample: dict[str, Any] = {"values": reading.values, "memory": reading.memory}
        if reading.missing != told:
            sample["missing"] = told = reading.missing
        _print(sample)
        failures = 0 if any(reading.values.values()) else failures + 1
        if failures == _MOST_FAILURES:
            return 1
        reader.measure_pcie()
        due = max(due + interval_s, time.monotonic())
        if select.select([0], [], [], max(0.0, due - time.monotonic()))[0]:
            words = os.read(0, 1000).split()
            if not words:
                return 0
            interval_s = float(words[-1])
            due = time.monotonic()


def _print(line: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
