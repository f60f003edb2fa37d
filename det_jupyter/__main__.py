"""`python -m det_jupyter`: the `det` command."""

import sys

from det_jupyter.front.cli.__main__ import main

sys.exit(main())
