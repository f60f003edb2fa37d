"""Seeds: one for the experiment, and one derived from it for each trial."""

from __future__ import annotations

import random

MAX_SEED = 2**31 - 1


def trial_seed(experiment_seed: int, index: int) -> int:
    """Return the seed of the experiment's `index`-th trial (from 0), within 0..2**31-1."""
    return random.Random(f"det_jupyter trial {experiment_seed} {index}").randint(0, MAX_SEED)
