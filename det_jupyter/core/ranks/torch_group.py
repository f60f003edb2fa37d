"""Lets ranks meet by torch's process group, where a script has made one."""

from __future__ import annotations

import secrets
from itertools import count
from typing import Any

import torch.distributed as dist

from det_jupyter.core.ranks.place import Place
from det_jupyter.system.ports import free_port

_contexts = count()  # all ranks make theirs in the same order


def check_group(place: Place) -> None:
    """Refuse variables that torch's process group contradicts.

    Raises:
        ValueError: It has another rank or size.
    """
    if (dist.get_rank(), dist.get_world_size()) != (place.rank, place.size):
        raise ValueError(
            f"distributed: torch's process group has rank {dist.get_rank()} of "
            f"{dist.get_world_size()}, but RANK is {place.rank} and WORLD_SIZE {place.size}"
        )


def draw_secret(place: Place) -> dict[str, Any]:
    """Return a secret and a free port of the chief's, which the group's own store brings to all.

    It is as secret as that store: torchrun's answers every program that reaches its port.
    """
    store = dist.distributed_c10d._get_default_store()
    key = f"det_jupyter/ranks/{next(_contexts)}"
    if place.rank == 0:
        store.set(key, f"{secrets.token_hex(32)} {free_port('')}")
    secret, port = store.get(key).decode().split()
    return {"secret": bytes.fromhex(secret), "pub_port": int(port)}
