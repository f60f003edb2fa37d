"""`python3 -m determined.launch.deepspeed`, which is det_jupyter's."""

import sys

from det_jupyter.launch.deepspeed import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
