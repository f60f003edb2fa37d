"""The rival of recovery.py: torchft's replica groups of one rank, of which one is killed.

    PYTHON -m tests.benchmarks.recovery_torchft RANKS WIDTH FOLDER

A replica writes the time of each step that it has committed into the folder. The last replica is
killed and started again at once. Prints JSON: seconds from the kill to the next step of a
survivor, and to the first step of the new replica, which has got its state from a survivor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

WARM, LIMIT_S = 30, 90.0


def train(replica: int, width: int, folder: Path) -> None:
    """Train as one replica until the process is ended."""
    import torch
    from torch import nn
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # it is public
    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

    torch.set_num_threads(1)
    records = torch.randn(1024, 16, generator=torch.Generator().manual_seed(0))
    layers = nn.Sequential(nn.Linear(16, width), nn.Dropout(0.2), nn.Linear(width, 16))

    adam = torch.optim.Adam(layers.parameters())

    def load(state: dict[str, Any]) -> None:
        layers.load_state_dict(state["model"])
        adam.load_state_dict(state["optimizer"])

    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=10)),
        load_state_dict=load,
        state_dict=lambda: {"model": layers.state_dict(), "optimizer": adam.state_dict()},
        min_replica_size=1,
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
        replica_id=f"replica-{replica}",
        timeout=timedelta(seconds=60),
    )
    model = DistributedDataParallel(manager, layers)
    optimizer = Optimizer(manager, adam)
    file = os.open(folder / str(replica), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        batch = records[torch.randint(0, 1024, (8,))]
        optimizer.zero_grad()
        (model(batch) - batch).square().mean().backward()
        before = manager.current_step()
        optimizer.step()
        time.sleep(0.005)
        if manager.current_step() > before:
            os.write(file, f"{time.time()} {os.getpid()}\n".encode())


def steps_of(folder: Path, replica: int) -> list[tuple[float, int]]:
    """Return time and pid of each step of a replica."""
    file = folder / str(replica)
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [(float(at), int(pid)) for at, pid in map(str.split, lines)]


def main(ranks: int, width: int, folder: Path) -> None:
    """Kill a replica, and print how long it takes the others and a new one to go on."""
    from torchft.coordination import LighthouseServer

    house = LighthouseServer(
        bind="[::]:0", min_replicas=1, join_timeout_ms=100, heartbeat_timeout_ms=1000
    )
    running: list[subprocess.Popen[bytes]] = []

    def start(replica: int) -> subprocess.Popen[bytes]:
        argv = [
            sys.executable,
            "-m",
            __spec__.name,
            str(replica),
            str(width),
            str(folder),
            "train",
        ]
        place = os.environ | {"TORCHFT_LIGHTHOUSE": house.address()}
        with (folder / f"log-{len(running)}").open("wb") as log:
            process = subprocess.Popen(argv, env=place, stdout=log, stderr=log)
        running.append(process)
        return process

    try:
        first = [start(replica) for replica in range(ranks)]
        _await(lambda: all(len(steps_of(folder, one)) > WARM for one in range(ranks)))
        killed_at = time.time()
        first[-1].kill()
        again = start(ranks - 1)

        def after() -> list[float]:
            return [at for at, _ in steps_of(folder, 0) if at > killed_at + 0.1]

        def healed() -> list[float]:
            return [at for at, pid in steps_of(folder, ranks - 1) if pid == again.pid]

        _await(lambda: bool(after() and healed()))
        print(json.dumps({"next_s": after()[0] - killed_at, "healed_s": healed()[0] - killed_at}))
    finally:
        for process in running:
            process.kill()
            process.wait()
        house.shutdown()


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("torchft made no progress")
        time.sleep(0.02)


if __name__ == "__main__":
    number, wide, where = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    train(number, wide, where) if sys.argv[4:] else main(number, wide, where)
