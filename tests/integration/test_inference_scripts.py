"""Batch inference in scripts that a launcher starts as several ranks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from det_jupyter.pytorch.experimental import output_files

SCRIPT = """
import sys
import torch.distributed as dist
from det_jupyter import core
from det_jupyter.pytorch.experimental import TorchBatchProcessor, torch_batch_process


class Writing(TorchBatchProcessor):
    def __init__(self, context):
        self.context = context
        self.count = context.wrap_reducer(sum, "count")

    def process_batch(self, batch, batch_idx):
        self.count.update(len(batch))
        with self.context.upload_path() as path:
            (path / str(batch_idx)).write_text(" ".join(map(str, batch.tolist())))


dist.init_process_group("gloo")
distributed = core.DistributedContext.from_torch_distributed()
with core.init(distributed=distributed, checkpoint_storage=sys.argv[1]):
    outcome = torch_batch_process(
        Writing, list(range(23)), batch_size=2, checkpoint_interval=2,
        distributed_context=distributed,
    )
assert outcome.metrics == {"count": 23}
if distributed.is_chief:
    print(outcome.path)
dist.destroy_process_group()
"""


def run_ranks(script: Path, folder: Path, size: int) -> str:
    """Run the script as torchrun would, and return what the chief printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = []
    for rank in range(size):
        variables = {
            "RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1,
        }  # fmt: skip
        processes.append(
            subprocess.Popen(
                [sys.executable, str(script), str(folder)],
                env=os.environ | {name: str(value) for name, value in variables.items()},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        outputs = [process.communicate(timeout=90)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * size, "\n".join(outputs)
    return outputs[0]


def test_ranks_of_a_launcher_share_the_records(tmp_path: Path) -> None:
    script = tmp_path / "infer.py"
    script.write_text(SCRIPT)
    folder = tmp_path / "checkpoints"
    checkpoint = Path(run_ranks(script, folder, size=2).splitlines()[-1])
    files = output_files(checkpoint)
    assert sorted(int(n) for file in files for n in file.read_text().split()) == list(range(23))
    by_rank = {rank: {int(f.name) for f in files if f.parent.name == rank}
               for rank in ("rank_0", "rank_1")}  # fmt: skip
    assert by_rank == {"rank_0": {0, 2, 4, 6, 8, 10}, "rank_1": {1, 3, 5, 7, 9, 11}}
