"""The rival: Ray Train's TorchTrainer on two nodes of a cluster that runs already.

    python -m tests.benchmarks.machines_ray

Prints `ready` when the cluster has two nodes. For each line on stdin it trains once, and prints
the seconds from before the creation of the trainer until after the first optimizer step of rank 0.
The workers train the same model as first_step_script.py, each on a node of its own.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def train(config: dict[str, Any]) -> None:
    """Take one step; rank 0 writes the time to a file."""
    import ray.train
    import ray.train.torch
    import torch
    from torch import nn

    torch.manual_seed(0)
    inputs, targets = torch.randn(256, 64), torch.randint(0, 10, (256,))
    model = ray.train.torch.prepare_model(
        nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rank = ray.train.get_context().get_world_rank()
    share = slice(rank * 32, (rank + 1) * 32)
    loss = nn.functional.cross_entropy(model(inputs[share]), targets[share])
    loss.backward()
    optimizer.step()
    if rank == 0:
        Path(config["file"]).write_text(repr(time.time()))
    ray.train.report({"loss": loss.item()})


def main() -> None:
    """Run the cluster, and train for each line on stdin."""
    # On a busy computer Ray's own limits are too short for a node to start.
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "180")
    os.environ.setdefault("RAY_agent_register_timeout_ms", "180000")
    import ray
    from ray.cluster_utils import Cluster
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False}
        )
        cluster.add_node(num_cpus=2)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        cluster.wait_for_nodes()
        print("ready", flush=True)
        for number, _ in enumerate(sys.stdin):
            file = Path(folder, f"first-step-{number}")
            began_at = time.time()
            trainer = TorchTrainer(
                train,
                train_loop_config={"file": str(file)},
                scaling_config=ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD"),
                run_config=RunConfig(storage_path=folder),
            )
            trainer.fit()
            print(float(file.read_text()) - began_at, flush=True)
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
