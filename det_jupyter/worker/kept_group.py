"""Scripts that make their process group, and end it, go on with the one that their rank has.

    dist.init_process_group("nccl")
    distributed = DistributedContext.from_torch_distributed()
    ...
    dist.destroy_process_group()

That is how a script under torchrun begins and ends. In a rank the group is there before the
script, and is needed after it: both calls do nothing, and one that asks for another group is
refused.
"""

from __future__ import annotations

import re
from functools import wraps
from typing import Any

import torch.distributed as dist


def keep_group() -> None:
    """Let the process group that this process is going to have outlive the user's code."""
    begin, end = dist.init_process_group, dist.destroy_process_group

    @wraps(begin)
    def init_process_group(backend: str | None = None, *args: Any, **options: Any) -> None:
        if not dist.is_initialized():
            begin(backend, *args, **options)
        elif backend is not None and (own := dist.get_backend()) not in re.split("[:,]", backend):
            raise ValueError(
                f"init_process_group: got {backend!r}, but this rank has a process group of "
                f"{own!r} already; leave the call out"
            )

    @wraps(end)
    def destroy_process_group(group: dist.ProcessGroup | None = None) -> None:
        if group is not None and group is not dist.group.WORLD:
            end(group)

    for module in (dist, dist.distributed_c10d):  # scripts use both names
        setattr(module, "init_process_group", init_process_group)  # noqa: B010
        setattr(module, "destroy_process_group", destroy_process_group)  # noqa: B010
