"""Random number generators: seeding, and their states in a form that checkpoints can hold.

Every rank is seeded with the trial's seed before the trial is built, so that all ranks build the
same weights and draw the same splits. Then each rank but the chief is seeded anew: with the same
numbers everywhere, dropout would drop the same units on every rank.

The order of the data is not drawn from these generators (see data/order.py), so it depends neither
on what the user's code draws nor on the number of loader workers.
"""

from __future__ import annotations

import random
from typing import Any

import numpy
import torch

RngStates = dict[str, Any]

_CPU = torch.device("cpu")


def derive_seed(*parts: object) -> int:
    """Return a seed that depends on all parts, and on nothing else.

    >>> derive_seed("rank", 42, 1) == derive_seed("rank", 42, 1) != derive_seed("rank", 42, 2)
    True
    """
    return random.Random(" ".join(map(str, parts))).getrandbits(63)


def draw_seed() -> int:
    """Return a random seed, for a trial without one."""
    return random.SystemRandom().randrange(2**31)


def seed_everything(seed: int) -> None:
    """Seed the global generators of Python, numpy, torch and CUDA."""
    seed_cpu(seed)
    if _can_have_devices():
        torch.manual_seed(seed)


def _can_have_devices() -> bool:
    """Return whether this torch was built for any accelerator.

    `torch.manual_seed` stores a traceback for each kind of device that may be initialized later:
    [m] 5 to 12 ms of a rank's start.
    """
    try:
        return torch.accelerator.current_accelerator() is not None
    except (AttributeError, RuntimeError):  # torch before 2.7 has no such function
        return True


def seed_cpu(seed: int) -> None:
    """Seed the global generators that draw on the CPU; cheap enough to do for every batch."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)


def seed_rank(seed: int, rank: int) -> None:
    """Seed each rank but the chief anew; the chief continues with the trial's seed."""
    if rank > 0:
        seed_everything(derive_seed("rank", seed, rank))


def get_states(device: torch.device = _CPU) -> RngStates:
    """Return the states of the generators of CPU and device, as tensors and plain values."""
    gathered = numpy.random.get_state(legacy=False)
    assert isinstance(gathered, dict)
    numpy_state = gathered["state"]
    states = {
        "python": random.getstate(),
        "numpy": {
            "bit_generator": gathered["bit_generator"],
            "key": torch.from_numpy(numpy_state["key"].astype("int64")),
            "pos": int(numpy_state["pos"]),
            "has_gauss": int(gathered["has_gauss"]),
            "gauss": float(gathered["gauss"]),
        },
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_states(states: RngStates, device: torch.device = _CPU) -> None:
    """Restore what `get_states` returned."""
    random.setstate(states["python"])
    saved = states["numpy"]
    numpy.random.set_state(
        {
            "bit_generator": saved["bit_generator"],
            "state": {"key": saved["key"].numpy().astype("uint32"), "pos": saved["pos"]},
            "has_gauss": saved["has_gauss"],
            "gauss": saved["gauss"],
        }
    )
    torch.set_rng_state(states["torch"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
