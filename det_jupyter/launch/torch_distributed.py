"""Starts the ranks of a script that uses torch.distributed, as torchrun does.

    python -m det_jupyter.launch.torch_distributed [[OPTION ...] --] SCRIPT [ARGUMENT ...]
    python -m det_jupyter.launch.torch_distributed [[OPTION ...] --] -m MODULE [ARGUMENT ...]
    python -m det_jupyter.launch.torch_distributed [[OPTION ...] --] --trial MODULE:CLASS

In an experiment it starts a rank for each slot of this computer; elsewhere one for each GPU, or
one without GPUs. It handles these options of torchrun itself: `--nproc_per_node`, `--nnodes`,
`--node_rank`, `--master_addr`, `--master_port`, `--standalone` and `--max_restarts 0`. With any
other option torchrun starts the ranks, which takes longer.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from det_jupyter.launch.computers import Computers, computers_of, count_gpus, find_run
from det_jupyter.launch.options import (
    CommandLine,
    WrongUsage,
    number,
    parse_command_line,
    rank_command,
    wrapped,
)
from det_jupyter.launch.workers import RANK_VARIABLES, Worker, complain, exit_code, run_workers

_NAME = "torch_distributed"
_ARITY = {
    "nproc_per_node": 1,
    "nnodes": 1,
    "node_rank": 1,
    "master_addr": 1,
    "master_port": 1,
    "max_restarts": 1,
    "standalone": 0,
}


def main(words: list[str]) -> int:
    try:
        line = parse_command_line(words, _ARITY)
        computers = find_computers(line)
        command = rank_command(line.target)
        is_ours = not line.others and line.known.get("max_restarts", "0") == "0"
    except ValueError as error:
        return complain(f"{_NAME}: {error}")
    if not is_ours:
        worker = Worker(rank=None, argv=_torchrun(line, computers, command))
        return exit_code(run_workers([worker], _NAME))
    return start_ranks(_NAME, computers, command, {"USE_TORCH_DISTRIBUTED": "True"})


def start_ranks(
    name: str, computers: Computers, command: tuple[str, ...], variables: dict[str, str]
) -> int:
    """Start this computer's ranks, wait for them, and return the exit code.

    Args:
        variables: Variables of each rank, in addition to torchrun's.
    """
    port, run = computers.port(), computers.run
    workers = []
    for local_rank in range(computers.num_ranks):
        rank = computers.first_rank + local_rank
        workers.append(
            Worker(
                rank=rank,
                argv=command,
                env=RANK_VARIABLES | computers.environment(local_rank, port) | variables,
                output=run.folder.output(rank) if run is not None else None,
                prefix=b"[rank=%d] " % rank,
            )
        )
    return exit_code(run_workers(workers, name, run=run))


def find_computers(line: CommandLine, ranks_option: str = "nproc_per_node") -> Computers:
    """Return the computers of the job: of the experiment, or as the options say.

    Raises:
        WrongUsage: The options contradict the experiment, or each other.
        ValueError: This process has no place in its experiment.
    """
    num_ranks = _num_ranks(line, ranks_option)
    num = number(line, "nnodes", least=1)
    index = number(line, "node_rank")
    port = number(line, "master_port", least=1)
    address = line.known.get("master_addr")
    run = find_run()
    if run is None:
        return _as_asked(num_ranks, num or 1, index, address, port)
    own = computers_of(run)
    if num_ranks is not None and num_ranks > own.num_ranks:
        raise WrongUsage(
            f"--{ranks_option}: got {num_ranks}, but the trial has {own.num_ranks} slot(s) on "
            f"this computer; leave it out, or set resources.slots_per_trial: {num_ranks}"
        )
    given = {"nnodes": (num, own.num), "node_rank": (index, own.index)}
    for name, (value, theirs) in given.items():
        if value is not None and value != theirs:
            raise WrongUsage(
                f"--{name}: got {value}, but the experiment has {theirs}; leave it out there"
            )
    return replace(own, num_ranks=num_ranks or own.num_ranks, master_port=port or own.master_port)


def _as_asked(
    num_ranks: int | None, num: int, index: int | None, address: str | None, port: int | None
) -> Computers:
    if num > 1 and (index is None or address is None or port is None):
        raise WrongUsage(
            f"--nnodes {num} needs --node_rank, --master_addr and --master_port: outside of "
            "experiments the other computers are not known"
        )
    if index is not None and index >= num:
        raise WrongUsage(f"--node_rank: got {index}, expected less than --nnodes, {num}")
    return Computers(
        num_ranks=num_ranks or max(1, count_gpus()),
        index=index or 0,
        num=num,
        master_addr=address or "127.0.0.1",
        master_port=port,
    )


def _num_ranks(line: CommandLine, option: str) -> int | None:
    text = line.known.get(option)
    if text == "auto":
        return max(1, count_gpus())
    if text != "gpu":
        return number(line, option, least=1)
    if not (found := count_gpus()):
        raise WrongUsage(f"--{option} gpu: this computer has no GPU that can be used")
    return found


def _torchrun(
    line: CommandLine, computers: Computers, command: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the command line of torchrun, which starts each rank through wrap_rank."""
    restarts = line.known.get("max_restarts")
    return (
        *(sys.executable, "-m", "torch.distributed.run"),
        f"--nproc_per_node={computers.num_ranks}",
        f"--nnodes={computers.num}",
        f"--node_rank={computers.index}",
        f"--master_addr={computers.master_addr}",
        f"--master_port={computers.port()}",
        *([f"--max_restarts={restarts}"] if restarts is not None else []),
        *line.others,
        *wrapped("RANK")[1:],
        *command,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
