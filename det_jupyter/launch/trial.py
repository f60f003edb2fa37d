"""A rank that trains a class of a module: `--trial MODULE:CLASS` of the launchers starts it.

It does what a rank of an entrypoint `module:Class` does, in a process that a launcher has started.
It needs an experiment, whose configuration has the hyperparameters and the length.

`main` imports torch and the training library with the garbage collector off: it would scan all of
their objects again and again ([m] 2.7 instead of 4.3 s of CPU).
"""

from __future__ import annotations

import gc
import os
import sys
import time
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from det_jupyter.contract.run.journal import RunEnded
from det_jupyter.errors import ConfigError
from det_jupyter.launch.workers import complain

if TYPE_CHECKING:
    from det_jupyter import core, pytorch


def main(words: list[str]) -> int:
    """Train the class, and return the exit code. Collective: each rank runs it."""
    gc.disable()
    with suppress(ImportError):
        import torch._dynamo  # noqa: F401  # the first optimizer imports it
    import det_jupyter.pytorch  # noqa: F401

    gc.freeze()
    gc.enable()
    return train(words)


def train(words: list[str]) -> int:
    """Train the class named MODULE:CLASS, and return the exit code. Collective."""
    from det_jupyter import core, pytorch
    from det_jupyter.core import managed

    if len(words) != 1 or ":" not in words[0]:
        return complain(f"trial: got {' '.join(words)!r}, expected one MODULE:CLASS")
    info = managed.find_info()
    if info is None:
        return complain("trial: it is started by the launchers' --trial, in experiments only")
    # The context first: it journals the errors that follow.
    with core.init(distributed=_connect_ranks(info)) as context:
        work = pytorch.TrialRun(_import_class(words[0]), context)
        reason = work.run()
        if reason == "preempted":
            context.preempt.acknowledge_preemption_signal()
        steps = work.steps_completed
        context.sink.write(RunEnded(at=time.time(), reason=reason, steps_completed=steps))
    return 0


def _connect_ranks(info: core.TrialInfo) -> core.DistributedContext:
    """Make torch's process group from torchrun's variables, and the context of the ranks."""
    import torch
    import torch.distributed as dist

    from det_jupyter import core

    if int(os.environ["WORLD_SIZE"]) == 1:
        return core.DistributedContext()
    device = info.at(int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])).device
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return core.DistributedContext.from_torch_distributed()


def _import_class(name: str) -> type[pytorch.PyTorchTrial]:
    from det_jupyter import pytorch

    module, _, path = name.partition(":")
    found: Any = import_module(module)
    for attribute in path.split("."):
        if not hasattr(found, attribute):
            raise ConfigError(f"--trial: {module} has no {attribute}")
        found = getattr(found, attribute)
    if not isinstance(found, type) or not issubclass(found, pytorch.PyTorchTrial):
        raise ConfigError(f"--trial: {name} is no class of PyTorchTrial")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
