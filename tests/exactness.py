"""How many examples the exactness properties try: a few in `make test`, many in `make test-long`.

A file of such properties says so, and sizes each of them:

    pytestmark = pytest.mark.exactness

    @settings(max_examples=examples(20))
"""

from __future__ import annotations

import os

VARIABLE = "DET_JUPYTER_EXAMPLES"  # how many times as many as usual


def examples(usual: int) -> int:
    """Return how many examples this run tries of a property that usually gets `usual`."""
    return usual * int(os.environ.get(VARIABLE, "1"))
