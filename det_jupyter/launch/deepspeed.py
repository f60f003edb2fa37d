"""Starts the ranks of a script that uses DeepSpeed.

    python -m det_jupyter.launch.deepspeed [[OPTION ...] --] SCRIPT [ARGUMENT ...]

In an experiment it starts a rank for each slot of this computer; elsewhere one for each GPU, or
one without GPUs. It handles the options `--num_gpus`, `--num_nodes`, `--node_rank`,
`--master_addr` and `--master_port` itself. With any other option of `deepspeed`, that program
starts the ranks of each computer. Neither needs ssh: each computer of an experiment runs this
launcher.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from det_jupyter.launch.computers import Computers
from det_jupyter.launch.options import find_program, parse_command_line, rank_command, wrapped
from det_jupyter.launch.torch_distributed import find_computers, start_ranks
from det_jupyter.launch.workers import Worker, complain, exit_code, run_workers

_NAME = "deepspeed"
_ARITY = {"num_gpus": 1, "num_nodes": 1, "node_rank": 1, "master_addr": 1, "master_port": 1}


def main(words: list[str]) -> int:
    try:
        line = parse_command_line(words, _ARITY)
        if "num_nodes" in line.known:
            line.known["nnodes"] = line.known.pop("num_nodes")
        computers = find_computers(line, "num_gpus")
        command = rank_command(line.target)
        program = find_program(_NAME, "pip install deepspeed") if line.others else ""
    except ValueError as error:
        return complain(f"{_NAME}: {error}")
    if not program:
        return start_ranks(_NAME, computers, command, _variables(computers))
    folder = computers.run.folder.path if computers.run is not None else None
    with TemporaryDirectory(prefix="hosts-", dir=folder, ignore_cleanup_errors=True) as place:
        hostfile = Path(place, "hostfile")
        # The computers' names only have to differ: nothing connects to them.
        lines = (f"computer-{i} slots={computers.num_ranks}\n" for i in range(computers.num))
        hostfile.write_text("".join(lines))
        argv = deepspeed_command(program, computers, line.others, command, hostfile)
        env = {"USE_DEEPSPEED": "1"}
        return exit_code(run_workers([Worker(rank=None, argv=argv, env=env)], _NAME))


def _variables(computers: Computers) -> dict[str, str]:
    """Return the variables that DeepSpeed's launcher sets besides torchrun's."""
    return {
        "USE_DEEPSPEED": "1",
        "LOCAL_SIZE": str(computers.num_ranks),
        "CROSS_RANK": str(computers.index),
        "CROSS_SIZE": str(computers.num),
    }


def deepspeed_command(
    program: str,
    computers: Computers,
    options: tuple[str, ...],
    command: tuple[str, ...],
    hostfile: Path,
) -> tuple[str, ...]:
    """Return the command line of `deepspeed`, which starts each rank through wrap_rank."""
    # `deepspeed` numbers the devices of its ranks from 0 on, but those of this run may be others.
    devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    shown = ("env", f"CUDA_VISIBLE_DEVICES={devices}") if devices is not None else ()
    return (
        program,
        f"--hostfile={hostfile}",
        "--no_ssh",
        f"--node_rank={computers.index}",
        f"--master_addr={computers.master_addr}",
        f"--master_port={computers.port()}",
        "--no_python",
        "--no_local_rank",
        *options,
        *wrapped("RANK"),
        *shown,
        *command,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
