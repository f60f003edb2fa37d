"""A rank that trains a class of a module: `--trial MODULE:CLASS` of the launchers starts it.

What a rank needs is imported with the garbage collector off, which would visit all of it again and
again ([m] 2.7 instead of 4.3 s of CPU).
"""

from __future__ import annotations

import gc
import sys
from contextlib import suppress


def main(words: list[str]) -> int:
    """Train the class, and return the exit code. Collective: each rank is such a process."""
    gc.disable()
    with suppress(ImportError):
        import torch._dynamo  # noqa: F401  # the first optimizer imports it
    from det_jupyter.launch.trial_rank import train

    gc.freeze()
    gc.enable()
    return train(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
