"""On the path of Ray's programs in tests: they load in a quarter of the time.

They import jsonschema, which compiles a grammar if this is installed: 1.1 s CPU of 1.5, and a
raylet aborts if its programs take 15 s. See engine/ray/connecting.py.
"""

import sys

sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # "it is not installed"
