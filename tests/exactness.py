"""Number of examples for exactness properties: few in `make test`, many in `make test-long`.

A file of such properties has a mark, and a size for each property:

    pytestmark = pytest.mark.exactness

    @settings(max_examples=examples(20))
"""

from __future__ import annotations

import os

VARIABLE = "DET_JUPYTER_EXAMPLES"  # by how much the usual number of examples is multiplied


def examples(usual: int) -> int:
    """Return the number of examples in this run for a property that usually has `usual`."""
    return usual * int(os.environ.get(VARIABLE, "1"))
