"""What a rank of `--trial MODULE:CLASS` does (trial.py starts it).

It does what a rank of an entrypoint `module:Class` does, in a process that a launcher has started.
It needs an experiment: the configuration has the hyperparameters, and how long to train.
"""

from __future__ import annotations

import os
import time
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist

from det_jupyter import core, pytorch
from det_jupyter.contract.run.journal import RunEnded
from det_jupyter.core import managed
from det_jupyter.errors import ConfigError
from det_jupyter.launch.workers import complain


def train(words: list[str]) -> int:
    """Train the class, and return the exit code. Collective: all ranks call it."""
    if len(words) != 1 or ":" not in words[0]:
        return complain(f"trial: got {' '.join(words)!r}, expected one MODULE:CLASS")
    run = managed.find_run()
    if run is None:
        return complain("trial: it is started by the launchers' --trial, in experiments only")
    with core.init(distributed=_join(run)) as context:  # first: it journals what goes wrong later
        info = run.info(context.distributed.rank)
        device = run.device(context.distributed.rank, context.distributed.local_rank)
        planned = pytorch.PlannedRun(
            _find(words[0]), run.plan, info.config, context, device, data_dir=run.data_dir
        )
        reason = planned.run()
        if reason == "preempted":
            context.preempt.acknowledge_preemption_signal()
        steps = planned.steps_completed
        context.sink.write(RunEnded(at=time.time(), reason=reason, steps_completed=steps))
    return 0


def _join(run: managed.Run) -> core.DistributedContext:
    """Connect the ranks by torchrun's variables."""
    if int(os.environ["WORLD_SIZE"]) == 1:
        return core.DistributedContext()
    device = run.device(int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"]))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return core.DistributedContext.from_torch_distributed()


def _find(name: str) -> type[pytorch.PyTorchTrial]:
    module, _, path = name.partition(":")
    found: Any = import_module(module)
    for part in path.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"--trial: {module} has no {part}")
        found = getattr(found, part)
    if not isinstance(found, type) or not issubclass(found, pytorch.PyTorchTrial):
        raise ConfigError(f"--trial: {name} is no class of PyTorchTrial")
    return found
